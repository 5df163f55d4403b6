//! Receipt ⇄ (epoch, queue, message, fence, hand-out): an opaque string that only this store can make.
//!
//! A receipt is checked without touching the store, so forged ones cost nothing. It says which delivery it is; whether that
//! delivery still holds the message is decided by [`crate::rules::settle`].

use crate::model::{MessageId, Millis, QueueUid};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

const VERSION: u8 = 1;
const BODY: usize = 1 + 4 + 4 + 8 + 4 + 8;
/// 128 bits of HMAC-SHA-256: as long as RFC 2104 §5 asks for a truncated tag (at least half of the hash, at least 80 bits).
const TAG: usize = 16;

/// The delivery that a receipt names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The store's epoch when it was made; a restore starts a new one.
    pub epoch: i32,
    /// The queue, for the right to consume it.
    pub queue: QueueUid,
    /// The message.
    pub id: MessageId,
    /// The delivery.
    pub fence: i32,
    /// When it was handed out.
    pub handed_out_at: Millis,
}

/// Makes and checks receipts of one store.
#[derive(Clone)]
pub struct Receipts {
    mac: Hmac<Sha256>,
}

impl std::fmt::Debug for Receipts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipts(secret)")
    }
}

impl Receipts {
    /// `secret` is the store's own, the same on every replica.
    pub fn new(secret: &[u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mac = Hmac::new_from_slice(secret).expect("HMAC takes a key of any length");
        Self { mac }
    }

    /// 60 characters of base64url.
    pub fn seal(&self, receipt: &Receipt) -> String {
        let mut bytes = [0u8; BODY + TAG];
        bytes[0] = VERSION;
        bytes[1..5].copy_from_slice(&receipt.epoch.to_be_bytes());
        bytes[5..9].copy_from_slice(&receipt.queue.0.to_be_bytes());
        bytes[9..17].copy_from_slice(&receipt.id.0.to_be_bytes());
        bytes[17..21].copy_from_slice(&receipt.fence.to_be_bytes());
        bytes[21..29].copy_from_slice(&receipt.handed_out_at.to_be_bytes());
        let tag = self.tag(&bytes[..BODY]);
        bytes[BODY..].copy_from_slice(&tag);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// `None` for anything that [`Receipts::seal`] did not make with the same secret. Constant time in the tag.
    pub fn open(&self, text: &str) -> Option<Receipt> {
        // Decoded into a fixed buffer: a receipt of a megabyte costs nothing.
        let mut bytes = [0u8; BODY + TAG];
        if text.len() != (BODY + TAG) * 4 / 3 {
            return None;
        }
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        if length != BODY + TAG || bytes[0] != VERSION {
            return None;
        }
        if !bool::from(self.tag(&bytes[..BODY]).ct_eq(&bytes[BODY..])) {
            return None;
        }
        Some(Receipt {
            epoch: i32::from_be_bytes(bytes[1..5].try_into().ok()?),
            queue: QueueUid(i32::from_be_bytes(bytes[5..9].try_into().ok()?)),
            id: MessageId(i64::from_be_bytes(bytes[9..17].try_into().ok()?)),
            fence: i32::from_be_bytes(bytes[17..21].try_into().ok()?),
            handed_out_at: i64::from_be_bytes(bytes[21..29].try_into().ok()?),
        })
    }

    fn tag(&self, body: &[u8]) -> [u8; TAG] {
        let mut mac = self.mac.clone();
        mac.update(body);
        let full = mac.finalize().into_bytes();
        let mut tag = [0u8; TAG];
        tag.copy_from_slice(&full[..TAG]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Receipt {
        Receipt {
            epoch: 3,
            queue: QueueUid(7),
            id: MessageId(987_654_321),
            fence: 4,
            handed_out_at: 1_764_513_000_123,
        }
    }

    #[test]
    fn a_receipt_comes_back_as_it_was() {
        let receipts = Receipts::new(&[9; 32]);
        let text = receipts.seal(&sample());
        assert_eq!(text.len(), 60);
        assert_eq!(receipts.open(&text), Some(sample()));
    }

    #[test]
    fn another_secret_opens_nothing() {
        let text = Receipts::new(&[9; 32]).seal(&sample());
        assert_eq!(Receipts::new(&[8; 32]).open(&text), None);
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", Receipts::new(&[9; 32])), "Receipts(secret)");
    }

    proptest! {
        #[test]
        fn any_receipt_comes_back(epoch: i32, queue: i32, id: i64, fence: i32, handed_out_at: i64) {
            let receipts = Receipts::new(&[9; 32]);
            let receipt = Receipt { epoch, queue: QueueUid(queue), id: MessageId(id), fence, handed_out_at };
            prop_assert_eq!(receipts.open(&receipts.seal(&receipt)), Some(receipt));
        }

        #[test]
        fn a_receipt_with_one_flipped_bit_is_never_accepted(at in 0usize..60, bit in 0u8..8) {
            let receipts = Receipts::new(&[9; 32]);
            let mut text = receipts.seal(&sample()).into_bytes();
            text[at] ^= 1 << bit;
            if let Ok(text) = String::from_utf8(text) {
                prop_assert_eq!(receipts.open(&text), None);
            }
        }

        #[test]
        fn a_changed_receipt_is_never_accepted(position in 0usize..60, with in "[A-Za-z0-9_-]") {
            let receipts = Receipts::new(&[9; 32]);
            let text = receipts.seal(&sample());
            let mut changed = text.clone();
            changed.replace_range(position..=position, &with);
            prop_assume!(changed != text);
            prop_assert_eq!(receipts.open(&changed), None);
        }

        #[test]
        fn random_text_is_never_accepted(text in ".{0,80}") {
            prop_assert_eq!(Receipts::new(&[9; 32]).open(&text), None);
        }
    }
}
