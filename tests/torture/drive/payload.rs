//! What is published: every message another one, its text known byte for byte.

use rand::Rng;
use rand::rngs::StdRng;

/// In every payload, and in no log line.
pub(crate) const PLANTED: &str = "planted-7f3a-no-log-line-may-hold-this";

/// The largest message with its key.
pub(crate) const LIMIT: usize = 262_144;

/// How large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// 200 bytes to 2 KiB.
    Small,
    /// 16 KiB.
    Middle,
    /// As large as is allowed.
    Limit,
}

impl Size {
    /// 80 % small, 15 % middle, 5 % at the limit.
    pub(crate) fn draw(chance: &mut StdRng) -> Self {
        match chance.random_range(0..100) {
            0..80 => Self::Small,
            80..95 => Self::Middle,
            _ => Self::Limit,
        }
    }
}

/// JSON text with this id in it, such as a producer would not write: spaces, escapes, numbers with a zero too many. `beside` is
/// what else counts towards the limit.
pub(crate) fn text(id: &str, size: Size, beside: usize, chance: &mut StdRng) -> String {
    let length = match size {
        Size::Small => chance.random_range(200..2_048),
        Size::Middle => 16_384,
        Size::Limit => LIMIT - beside,
    };
    let begin = format!(
        "{{\"id\" : \"{id}\", \"planted\":\"{PLANTED}\", \"amount\": 1.50e2, \"caf\\u00e9\":\"\\ud83d\\ude00 \u{e9}\", \"pad\":\""
    );
    let pad = length.saturating_sub(begin.len() + 2);
    begin + &"x".repeat(pad) + "\"}"
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_payload_at_the_limit_is_exactly_there_and_json() {
        let mut chance = StdRng::seed_from_u64(1);
        for (size, wanted) in [(Size::Limit, LIMIT - 7), (Size::Middle, 16_384)] {
            let text = text("s1-p0-1", size, 7, &mut chance);
            assert_eq!(text.len(), wanted);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["id"], "s1-p0-1");
        }
    }
}
