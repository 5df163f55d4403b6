//! How much one caller may take of what all share.

use super::count;
use crate::auth::bucket::{Class, Rate, Rates};
use clap::Args;
use std::num::NonZeroU32;
use std::time::Duration;

/// Limits of single callers.
#[derive(Args, Clone)]
pub struct LimitConfig {
    /// Messages that one key may publish in a second, 0.001 to 1,000,000, and after a colon how many at once, as in
    /// 100:500; without it, as many at once as in a second. Beyond it a publish is answered 429 `rate_limited`. Each
    /// server counts for itself. Without this setting there is no limit
    #[arg(long, env = "QUITA_RATE_PUBLISH", value_parser = rate, value_name = "RATE[:BURST]")]
    pub rate_publish: Option<Rate>,

    /// Receives of one key in a second. Counted are each receive, each further message that it gets, and each settle; but a
    /// settle is never refused: the next receive waits for it
    #[arg(long, env = "QUITA_RATE_RECEIVE", value_parser = rate, value_name = "RATE[:BURST]")]
    pub rate_receive: Option<Rate>,

    /// Lists and single looks of one key in a second
    #[arg(long, env = "QUITA_RATE_LISTING", value_parser = rate, value_name = "RATE[:BURST]")]
    pub rate_listing: Option<Rate>,

    /// Changes of queues, dead letters, redrives and keys made with one key in a second
    #[arg(long, env = "QUITA_RATE_MANAGEMENT", value_parser = rate, value_name = "RATE[:BURST]")]
    pub rate_management: Option<Rate>,

    /// Wrong keys and tokens from one address in a minute, 0 to 1,000,000; further ones are answered 429 instead of 401.
    /// Good keys from there go on working. 0: no limit
    #[arg(long, env = "QUITA_RATE_FAILED_LOGINS", default_value_t = 20, value_parser = count(0, 1_000_000), value_name = "NUMBER")]
    pub rate_failed_logins: u64,

    /// Receives of one key that may wait at once, 1 to 1,000,000; beyond them one is answered 429 `rate_limited`. Without
    /// it, only their number in all is bounded
    #[arg(long, env = "QUITA_MAX_WAITING_RECEIVES_PER_KEY", value_parser = count(1, 1_000_000), value_name = "NUMBER")]
    pub max_waiting_receives_per_key: Option<u64>,

    /// Requests in flight at once, receives apart, 1 to 1,000,000; settles may be twice as many. Beyond them one is answered
    /// 503 `overloaded`
    #[arg(long, env = "QUITA_MAX_REQUESTS", default_value_t = 10_000, value_parser = count(1, 1_000_000), value_name = "NUMBER")]
    pub max_requests: u64,

    /// Bytes of the bodies of all requests in flight at once, 16 MiB to 64 GiB; settles may bring it to twice as many. Beyond
    /// them one is answered 503 `overloaded`
    #[arg(long, env = "QUITA_MAX_BODY_BYTES", default_value_t = 256 << 20, value_parser = count(16 << 20, 64 << 30), value_name = "BYTES")]
    pub max_body_bytes: u64,
}

impl LimitConfig {
    /// The rates for the limiter.
    pub fn rates(&self) -> Rates {
        let failed = u32::try_from(self.rate_failed_logins).ok();
        let failed = failed.and_then(NonZeroU32::new);
        Rates {
            per_key: Class::ALL.map(|class| match class {
                Class::Publish => self.rate_publish,
                Class::Receive => self.rate_receive,
                Class::Listing => self.rate_listing,
                Class::Management => self.rate_management,
            }),
            failed_logins: failed.and_then(|count| Rate::per_period(count, Duration::from_mins(1))),
        }
    }
}

/// `RATE` or `RATE:BURST`.
fn rate(text: &str) -> Result<Rate, String> {
    let (per_second, burst) = match text.split_once(':') {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    let per_second: Option<f64> = per_second.parse().ok();
    let burst = match burst {
        Some(burst) => burst.parse().ok(),
        None => per_second.and_then(|rate| NonZeroU32::new(rate.ceil() as u32)),
    };
    let burst = burst.filter(|burst| burst.get() <= 1_000_000);
    per_second
        .zip(burst)
        .and_then(|(rate, burst)| Rate::per_second(rate, burst))
        .ok_or_else(|| {
            "a number of requests in a second from 0.001 to 1000000 is needed, and after a colon how many at once, \
             1 to 1000000, as in 100:500"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_perhaps_a_burst() {
        let is = |per_second, burst| Rate::per_second(per_second, NonZeroU32::new(burst).unwrap());
        assert_eq!(rate("100").ok(), is(100.0, 100));
        assert_eq!(rate("100:500").ok(), is(100.0, 500));
        assert_eq!(rate("0.5").ok(), is(0.5, 1));
        assert_eq!(rate("2.5:7").ok(), is(2.5, 7));
        for text in [
            "",
            "0",
            "-1",
            "x",
            "1:",
            "1:0",
            "1:-1",
            "1:x",
            "NaN",
            "inf",
            "1e9",
            "1:2:3",
            "1:1000001",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_failed_logins_are_limited_unless_asked() {
        let rates = crate::config::Config::default().limits.rates();
        assert_eq!(rates.per_key, [None; 4]);
        let twenty = NonZeroU32::new(20).unwrap();
        assert_eq!(
            rates.failed_logins,
            Rate::per_period(twenty, Duration::from_mins(1))
        );
    }
}
