//! Receipts that nobody was given: none opens anything, and none costs the store a look.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use quita_api::auth::Principal;
use quita_api::service::publish::NewMessage;
use quita_api::service::receive::Ask;
use quita_api::service::settle::Settlement;
use quita_api::service::{Error, Service, ServiceSettings};
use quita_storage::coalescer::{Coalescer, Limits};
use quita_storage::receipt::Receipt;
use quita_storage::rules::settle::Action;
use quita_tests::store::{self, Store};
use std::sync::Arc;

const FORGED: u64 = 1_000_000;
/// As many as one request may bring.
const BATCH: usize = 1_000;
/// The parts of a receipt: version, epoch, queue, message, delivery, time of the hand-out, tag.
const PARTS: [std::ops::Range<usize>; 7] = [0..1, 1..5, 5..9, 9..17, 17..21, 21..29, 29..45];
const LENGTH: usize = 45;

/// A plain generator (`SplitMix64`), so that a failure comes again.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Changes at least one bit of these bytes.
    fn change(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let noise = (self.next() | 1).to_le_bytes();
            chunk.iter_mut().zip(noise).for_each(|(b, n)| *b ^= n);
        }
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a forger may try: everything but the last kind is made of a good receipt.
fn forged(kind: u64, good: &[u8; LENGTH], noise: &mut Noise) -> String {
    let mut bytes = *good;
    match kind % 12 {
        // One bit, in the bytes.
        0 => bytes[noise.below(LENGTH)] ^= 1 << noise.below(8),
        // Another version, epoch, queue, message, delivery, time or tag.
        part @ 1..=7 => noise.change(&mut bytes[PARTS[part as usize - 1].clone()]),
        // No tag to speak of.
        8 => bytes[PARTS[6].clone()].fill([0, 0xff][noise.below(2)]),
        // Cut.
        9 => return encode(&bytes)[..noise.below(60)].to_owned(),
        // Too long.
        10 => return encode(&[&bytes[..], &good[..=noise.below(LENGTH)]].concat()),
        // Nothing that was ever a receipt.
        _ => {
            bytes.fill(0);
            noise.change(&mut bytes);
        }
    }
    encode(&bytes)
}

fn acks(receipts: &[String]) -> Vec<Settlement<'_>> {
    let ack = |receipt| Settlement {
        receipt,
        action: Action::Ack { outcome: None },
    };
    receipts.iter().map(|text| ack(&**text)).collect()
}

/// A service, and a good receipt of it.
async fn with_a_receipt(service: &Arc<Service>, caller: &Principal) -> String {
    let message = NewMessage {
        client_request_id: None,
        key: None,
        delay_ms: None,
        priority: 4,
        headers: None,
        payload: "1".into(),
        expires_in_ms: None,
        max_attempts: None,
        backoff: None,
    };
    service.publish(caller, "q", message).await.unwrap();
    let ask = Ask {
        queue: "q",
        max: 1,
        lease_ms: Some(60_000),
        wait_ms: Some(1_000),
        worker: None,
    };
    let got = service
        .receive(caller, ask, std::future::pending())
        .await
        .unwrap();
    if let Some(held) = got.held {
        held.delivered();
    }
    let message = &got.messages[0].message;
    service.receipts().seal(&Receipt {
        epoch: service.epoch(),
        queue: message.envelope.queue,
        id: message.envelope.id,
        fence: message.life.fence,
        handed_out_at: 0,
    })
}

/// The store is closed before the forger comes: whoever asks it is told so, and the last lines see that a good receipt does
/// ask.
#[tokio::test]
async fn of_a_million_forged_receipts_none_opens_anything_or_reaches_the_store() {
    let opened = store::open(Store::Sqlite).await.unwrap();
    let coalescer = Coalescer::start(
        opened.backend.clone(),
        Arc::default(),
        Arc::default(),
        Limits::default(),
    );
    let service = Service::new(coalescer, ServiceSettings::default());
    let caller = Principal::admin("forger");
    let good = with_a_receipt(&service, &caller).await;
    opened.backend.close().await;

    let decoded = URL_SAFE_NO_PAD.decode(&good).unwrap();
    let (mut noise, bytes) = (Noise(1), decoded.try_into().unwrap());
    for first in (0..FORGED).step_by(BATCH) {
        let kinds = first..first + BATCH as u64;
        let texts: Vec<String> = kinds.map(|kind| forged(kind, &bytes, &mut noise)).collect();
        // Who never waits has asked nobody.
        let answered = service.settle(&caller, acks(&texts)).now_or_never();
        for (text, result) in texts.iter().zip(answered.unwrap().unwrap()) {
            assert!(matches!(result, Err(Error::InvalidReceipt)), "{text}");
            assert_ne!(*text, good);
        }
    }
    let asked = service.settle(&caller, acks(&[good])).await;
    assert!(
        matches!(asked, Err(Error::Store(_)))
            || matches!(asked.as_deref(), Ok([Err(Error::Store(_))])),
        "{asked:?}"
    );
    drop(service);
    opened.close().await;
}
