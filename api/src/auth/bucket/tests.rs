//! Facts about buckets, and their comparison with a bucket that counts tokens one by one.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate::per_second(per_second, NonZeroU32::new(burst).unwrap()).unwrap()
}

fn limiter(rate: Rate, start: Instant) -> Limiter {
    let rates = Rates {
        per_key: [Some(rate); 4],
        failed_logins: Some(Rate::per_period(NonZeroU32::new(20).unwrap(), 60 * SECOND).unwrap()),
    };
    Limiter::new(rates, start)
}

#[test]
fn a_burst_goes_through_and_then_the_rate() {
    let now = Instant::now();
    let limiter = limiter(rate(2.0, 5), now);
    for left in (0..5).rev() {
        let verdict = limiter
            .take("key", Class::Publish, Cost::new(1), now)
            .unwrap();
        assert_eq!((verdict.is_allowed(), verdict.remaining), (true, left));
    }
    let refused = limiter
        .take("key", Class::Publish, Cost::new(1), now)
        .unwrap();
    let expected = Verdict {
        retry_after: Some(SECOND / 2),
        limit: 5,
        remaining: 0,
        next: SECOND / 2,
        window: 5 * SECOND / 2,
    };
    assert_eq!(refused, expected);
    let later = now + SECOND / 2;
    assert!(
        limiter
            .take("key", Class::Publish, Cost::new(1), later)
            .unwrap()
            .is_allowed()
    );
    assert!(
        !limiter
            .take("key", Class::Publish, Cost::new(1), later)
            .unwrap()
            .is_allowed()
    );
}

#[test]
fn keys_and_classes_have_buckets_of_their_own() {
    let now = Instant::now();
    let limiter = limiter(rate(1.0, 1), now);
    for key in ["one", "other"] {
        for class in Class::ALL {
            assert!(
                limiter
                    .take(key, class, Cost::new(1), now)
                    .unwrap()
                    .is_allowed()
            );
            assert!(
                !limiter
                    .take(key, class, Cost::new(1), now)
                    .unwrap()
                    .is_allowed()
            );
        }
    }
}

#[test]
fn settles_go_on_and_the_next_receive_waits() {
    let now = Instant::now();
    let limiter = limiter(rate(10.0, 10), now);
    for _ in 0..30 {
        assert!(
            limiter
                .charge("key", Class::Receive, (1, Debt::Bounded), now)
                .unwrap()
                .is_allowed()
        );
    }
    let receive = limiter
        .take("key", Class::Receive, Cost::new(1), now)
        .unwrap();
    // One bucket of debt at most, and the token itself.
    assert_eq!(receive.retry_after, Some(Duration::from_millis(1_100)));
    assert!(
        limiter
            .take("key", Class::Publish, Cost::new(1), now)
            .unwrap()
            .is_allowed()
    );
    assert!(
        limiter
            .take(
                "key",
                Class::Receive,
                Cost::new(1),
                now + Duration::from_millis(1_100)
            )
            .unwrap()
            .is_allowed()
    );
}

#[test]
fn what_is_larger_than_a_bucket_waits_for_a_full_one_and_leaves_a_debt() {
    let now = Instant::now();
    let limiter = limiter(rate(10.0, 10), now);
    assert!(
        limiter
            .take("key", Class::Publish, Cost::new(1_000), now)
            .unwrap()
            .is_allowed()
    );
    let next = limiter
        .take("key", Class::Publish, Cost::new(1), now)
        .unwrap();
    assert_eq!(
        (next.retry_after, next.remaining),
        (Some(Duration::from_millis(99_100)), 0)
    );
}

#[test]
fn what_was_asked_for_is_owed_in_whole() {
    let now = Instant::now();
    let limiter = limiter(rate(1.0, 1), now);
    assert!(
        limiter
            .take("key", Class::Receive, Cost::new(1), now)
            .unwrap()
            .is_allowed()
    );
    limiter.charge("key", Class::Receive, (99, Debt::Whole), now);
    let next = limiter
        .take("key", Class::Receive, Cost::new(1), now)
        .unwrap();
    assert_eq!(next.retry_after, Some(100 * SECOND));
}

#[test]
fn a_token_that_was_paid_before_counts_for_the_rest() {
    let now = Instant::now();
    let limiter = limiter(rate(1.0, 3), now);
    let publish = |cost| limiter.take("key", Class::Publish, cost, now).unwrap();
    assert!(publish(Cost::new(1)).is_allowed() && publish(Cost::beyond_one(10)).is_allowed());
    // Seven more than there were are owed, and one more is wanted.
    assert_eq!(publish(Cost::new(1)).retry_after, Some(8 * SECOND));
}

#[test]
fn no_limit_is_no_verdict() {
    let (now, address) = (Instant::now(), IpAddr::from([127, 0, 0, 1]));
    let limiter = Limiter::new(Rates::default(), now);
    assert_eq!(
        limiter.take("key", Class::Publish, Cost::new(u32::MAX), now),
        None
    );
    assert_eq!(
        limiter.charge("key", Class::Receive, (1, Debt::Bounded), now),
        None
    );
    assert_eq!(limiter.login_failed(address, now), None);
    assert_eq!(limiter.peek("key", Class::Publish, now), None);
}

#[test]
fn twenty_failed_logins_a_minute_from_one_place() {
    let now = Instant::now();
    let limiter = limiter(rate(1.0, 1), now);
    let place = |text: &str| text.parse::<IpAddr>().unwrap();
    for n in 0..20 {
        let from = place(&format!("2001:db8::{n:x}"));
        assert!(limiter.login_failed(from, now).unwrap().is_allowed());
    }
    for from in ["2001:db8::ffff", "2001:db8::1"] {
        assert_eq!(
            limiter.login_failed(place(from), now).unwrap().retry_after,
            Some(3 * SECOND)
        );
    }
    for from in ["2001:db8:0:1::1", "192.0.2.1"] {
        assert!(limiter.login_failed(place(from), now).unwrap().is_allowed());
    }
    assert_eq!(
        Network::of(place("::ffff:192.0.2.1")),
        Network::of(place("192.0.2.1"))
    );
}

#[test]
fn looking_takes_nothing_and_remembers_nothing() {
    let now = Instant::now();
    let buckets = Buckets::<Arc<str>, 1>::new(10, now);
    for _ in 0..100 {
        assert!(buckets.peek("key", 0, rate(1.0, 1), now).is_allowed());
    }
    assert!(buckets.is_empty());
}

#[test]
fn the_number_of_keys_is_bounded_and_full_buckets_go_first() {
    let now = Instant::now();
    let (buckets, rate) = (Buckets::<Arc<str>, 1>::new(SHARDS * 4, now), rate(1.0, 2));
    for n in 0..10_000 {
        buckets.take(&*format!("key {n}"), 0, rate, Cost::new(1), now);
    }
    assert_eq!(buckets.len(), SHARDS * 4);
    let later = now + 10 * SECOND;
    for n in 0..SHARDS * 40 {
        buckets.take(&*format!("late {n}"), 0, rate, Cost::new(1), later);
        assert!(buckets.len() <= SHARDS * 4);
    }
    let old = (0..10_000).filter(|n| {
        !buckets
            .peek(&*format!("key {n}"), 0, rate, later)
            .next
            .is_zero()
    });
    assert_eq!(old.count(), 0);
}

#[test]
fn a_clock_before_the_start_counts_as_the_start() {
    let now = Instant::now();
    let buckets = Buckets::<Arc<str>, 1>::new(10, now + SECOND);
    assert!(
        buckets
            .take("key", 0, rate(1.0, 1), Cost::new(1), now)
            .is_allowed()
    );
    assert!(
        !buckets
            .take("key", 0, rate(1.0, 1), Cost::new(1), now + SECOND)
            .is_allowed()
    );
}

#[test]
fn only_sensible_rates_are_rates() {
    let one = NonZeroU32::MIN;
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7, 1e-9] {
        assert_eq!(Rate::per_second(wrong, one), None);
    }
    for wrong in [Duration::ZERO, Duration::MAX, Duration::from_millis(10)] {
        assert_eq!(Rate::per_period(one, wrong), None);
    }
    assert!(Rate::per_second(1e6, NonZeroU32::MAX).is_some());
}

/// Tokens counted in millionths, filled at every step: the rule in its plain form. It may owe at most one bucket by charging.
struct Plain {
    tokens: i64,
    full: i64,
}

proptest! {
    #[test]
    fn it_decides_as_a_bucket_that_counts_tokens(
        burst in 1u32..20,
        steps in prop::collection::vec((0u64..2_000, 0u32..8, any::<bool>()), 1..200),
    ) {
        let (start, rate) = (Instant::now(), rate(10.0, burst));
        let buckets = Buckets::<Arc<str>, 1>::new(10, start);
        let full = i64::from(burst) * 1_000;
        let (mut plain, mut now) = (Plain { tokens: full, full }, start);
        for (wait_ms, cost, settles) in steps {
            now += Duration::from_millis(wait_ms);
            // 10 tokens a second are 10 thousandths a millisecond.
            plain.tokens = plain.full.min(plain.tokens + wait_ms as i64 * 10);
            let price = i64::from(cost) * 1_000;
            let verdict = if settles {
                plain.tokens = (plain.tokens - price).max(-full).min(plain.tokens);
                buckets.charge("key", 0, rate, (cost, Debt::Bounded), now)
            } else {
                let verdict = buckets.take("key", 0, rate, Cost::new(cost), now);
                let allowed = plain.tokens >= price.min(full);
                prop_assert_eq!(verdict.is_allowed(), allowed);
                if allowed {
                    plain.tokens -= price;
                } else if let Some(wait) = verdict.retry_after {
                    let missing = price.min(full) - plain.tokens;
                    prop_assert_eq!(wait, Duration::from_micros(missing as u64 * 100));
                }
                verdict
            };
            prop_assert_eq!(i64::from(verdict.remaining), plain.tokens.max(0) / 1_000);
            let missing = full - plain.tokens;
            let next = match missing.min(full) % 1_000 {
                0 if missing == 0 => 0,
                0 => (missing - full).max(0) + 1_000,
                part => (missing - full).max(0) + part,
            };
            prop_assert_eq!(verdict.next, Duration::from_micros(next as u64 * 100));
        }
    }
}
