//! How often a caller may call: token buckets, one per key and class of request, and one per address for failed logins.
//!
//! Reading order: [`Rate`] (what a bucket holds and how fast it fills) → [`Buckets`] (many of them, bounded) → [`Limiter`]
//! (which bucket a request is charged to).
//!
//! A bucket is one number, as in the generic cell rate algorithm: the time at which it will be full again. A request that
//! costs n moves that time n refill intervals ahead, and is refused if that would be further ahead than a whole bucket
//! takes to fill. Settles and extends must never be refused, yet cost as much as receives: they are charged without asking,
//! into a debt if need be, and it is the next receive that waits. A bucket that is full again says nothing that a missing one
//! does not, so full ones are what is thrown away.
//!
//! `governor` was looked at and does not fit: it tells what remains only of a check that passed, cannot look without
//! taking, cannot charge beyond what is there, refuses for ever what is larger than a bucket, and puts no bound on the
//! number of keys.

use parking_lot::Mutex;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Parts of a table, each with a lock of its own.
const SHARDS: usize = 16;
/// Buckets looked at when one that is not full must go.
const SAMPLE: usize = 8;
/// Shortest time between two searches of a full table for full buckets.
const SWEEP_EVERY_NS: u64 = 1_000_000_000;
/// Most keys and most addresses that are remembered at once, each: about 10 MB of them.
pub const MAX_KEYS: usize = 100_000;

/// What a bucket holds, and how long it takes to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    burst: u32,
    interval_ns: u64,
}

impl Rate {
    /// `per_second` in the long run, `burst` at once. `None` unless 0.001 ≤ `per_second` ≤ 1,000,000.
    pub fn per_second(per_second: f64, burst: NonZeroU32) -> Option<Self> {
        (0.001..=1e6).contains(&per_second).then(|| Self {
            burst: burst.get(),
            interval_ns: (1e9 / per_second) as u64,
        })
    }

    /// At most `count` in any `period` of 1 s to 1 day, roughly: as many at once, and then that many per `period`.
    pub fn per_period(count: NonZeroU32, period: Duration) -> Option<Self> {
        let period_s = period.as_secs_f64();
        (1.0..=86_400.0).contains(&period_s).then_some(())?;
        Self::per_second(f64::from(count.get()) / period_s, count)
    }

    /// Nanoseconds in which an empty bucket fills.
    fn window_ns(self) -> u64 {
        self.interval_ns.saturating_mul(u64::from(self.burst))
    }
}

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    total: u32,
    paid: u32,
}

impl Cost {
    /// So many tokens.
    pub const fn new(total: u32) -> Self {
        Self { total, paid: 0 }
    }

    /// So many tokens, of which the first was charged already.
    pub const fn beyond_one(total: u32) -> Self {
        Self { total, paid: 1 }
    }
}

/// How much may be owed by what is charged without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    /// All of it: it was asked for.
    Whole,
    /// One bucket at most: it had to be let through.
    Bounded,
}

/// What a bucket says. The numbers are those of the `RateLimit` and `RateLimit-Policy` header fields
/// (draft-ietf-httpapi-ratelimit-headers): `q` = `limit`, `w` = `window`, `r` = `remaining`, `t` = `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `Some`: refused; allowed again after this time if nothing else is charged meanwhile.
    pub retry_after: Option<Duration>,
    /// Tokens of a full bucket.
    pub limit: u32,
    /// Tokens left now.
    pub remaining: u32,
    /// Until one more token is there; zero when the bucket is full.
    pub next: Duration,
    /// In which an empty bucket fills.
    pub window: Duration,
}

impl Verdict {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.retry_after.is_none()
    }

    fn of(rate: Rate, ahead_ns: u64, retry_after_ns: Option<u64>) -> Self {
        let left = rate.window_ns().saturating_sub(ahead_ns) / rate.interval_ns.max(1);
        Self {
            retry_after: retry_after_ns.map(Duration::from_nanos),
            limit: rate.burst,
            remaining: u32::try_from(left).unwrap_or(u32::MAX).min(rate.burst),
            next: Duration::from_nanos(next_ns(rate, ahead_ns)),
            window: Duration::from_nanos(rate.window_ns()),
        }
    }
}

fn next_ns(rate: Rate, ahead_ns: u64) -> u64 {
    let debt = ahead_ns.saturating_sub(rate.window_ns());
    match ahead_ns.min(rate.window_ns()) % rate.interval_ns.max(1) {
        0 if ahead_ns > 0 => debt.saturating_add(rate.interval_ns),
        part => debt.saturating_add(part),
    }
}

struct Shard<K, const N: usize> {
    /// When each of N buckets is full, in nanoseconds since `Buckets::start`.
    full_at: HashMap<K, [u64; N]>,
    swept_at: u64,
}

/// N buckets for each of a bounded number of keys.
pub struct Buckets<K, const N: usize> {
    start: Instant,
    hasher: RandomState,
    shards: [Mutex<Shard<K, N>>; SHARDS],
    max_per_shard: usize,
}

impl<K: Clone + Eq + Hash, const N: usize> Buckets<K, N> {
    /// For at most about `max_keys`. Every bucket is full at first; no time before `start` may come up later.
    pub fn new(max_keys: usize, start: Instant) -> Self {
        Self {
            start,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    full_at: HashMap::new(),
                    swept_at: 0,
                })
            }),
            max_per_shard: max_keys.div_ceil(SHARDS).max(1),
        }
    }

    /// Takes `cost` tokens from bucket `n` of `key`, or none at all. What costs more than a bucket holds waits for a full
    /// one and leaves a debt, so that no size of request is refused for ever. Of the cost, `paid` were charged before.
    pub fn take<Q>(&self, key: &Q, n: usize, rate: Rate, cost: Cost, now: Instant) -> Verdict
    where
        K: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with(key, n, now, |full_at, now| {
            let ahead = full_at.saturating_sub(now);
            let there = cost.total.min(rate.burst).saturating_sub(cost.paid);
            let need = rate.interval_ns.saturating_mul(u64::from(there));
            let over = ahead.saturating_add(need).saturating_sub(rate.window_ns());
            if over > 0 {
                return Verdict::of(rate, ahead, Some(over));
            }
            let left = u64::from(cost.total.saturating_sub(cost.paid));
            let ahead = ahead.saturating_add(rate.interval_ns.saturating_mul(left));
            *full_at = now.saturating_add(ahead);
            Verdict::of(rate, ahead, None)
        })
    }

    /// Takes `cost` tokens whether they are there or not. With [`Debt::Bounded`] the debt is at most one bucket, so that it
    /// is over after one `window`.
    pub fn charge<Q>(
        &self,
        key: &Q,
        n: usize,
        rate: Rate,
        (cost, debt): (u32, Debt),
        now: Instant,
    ) -> Verdict
    where
        K: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.with(key, n, now, |full_at, now| {
            let ahead = full_at.saturating_sub(now);
            let cost = rate.interval_ns.saturating_mul(u64::from(cost));
            let whole = ahead.saturating_add(cost);
            let ahead = match debt {
                Debt::Whole => whole,
                Debt::Bounded => whole.min(rate.window_ns().saturating_mul(2).max(ahead)),
            };
            *full_at = now.saturating_add(ahead);
            Verdict::of(rate, ahead, None)
        })
    }

    /// What [`Buckets::take`] of one token would say, without taking it.
    pub fn peek<Q>(&self, key: &Q, n: usize, rate: Rate, now: Instant) -> Verdict
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let shard = self.shard(key).lock();
        let full_at = shard.full_at.get(key).map_or(0, |all| all[n]);
        let ahead = full_at.saturating_sub(self.at(now));
        let over = ahead
            .saturating_add(rate.interval_ns)
            .saturating_sub(rate.window_ns());
        Verdict::of(rate, ahead, (over > 0).then_some(over))
    }

    /// Keys that are remembered.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().full_at.len())
            .sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<Q>(
        &self,
        key: &Q,
        n: usize,
        now: Instant,
        act: impl FnOnce(&mut u64, u64) -> Verdict,
    ) -> Verdict
    where
        K: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        let now = self.at(now);
        let mut shard = self.shard(key).lock();
        if let Some(all) = shard.full_at.get_mut(key) {
            return act(&mut all[n], now);
        }
        let mut all = [0; N];
        let verdict = act(&mut all[n], now);
        if all[n] > now {
            shard.make_room(self.max_per_shard, now);
            shard.full_at.insert(key.into(), all);
        }
        verdict
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> &Mutex<Shard<K, N>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    fn at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

impl<K: Clone + Eq + Hash, const N: usize> Shard<K, N> {
    /// Forgets full buckets; if all have something to say, the fullest of a few.
    fn make_room(&mut self, max: usize, now: u64) {
        if self.full_at.len() < max {
            return;
        }
        if now >= self.swept_at.saturating_add(SWEEP_EVERY_NS) {
            self.swept_at = now;
            self.full_at
                .retain(|_, all| all.iter().any(|full_at| *full_at > now));
        }
        while self.full_at.len() >= max {
            let sample = self.full_at.iter().take(SAMPLE);
            let fullest = sample.min_by_key(|(_, all)| all.iter().copied().max());
            let Some(key) = fullest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.full_at.remove(&key);
        }
    }
}

/// What kind of request is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Publishing; one token a message.
    Publish,
    /// Receiving; one token a receive, one for each further message that it gets, and one for each settle or extend.
    Receive,
    /// Lists and single looks.
    Listing,
    /// Whatever changes queues, keys or dead letters.
    Management,
}

impl Class {
    /// Every class, in the order of the fields of [`Rates`].
    pub const ALL: [Self; 4] = [
        Self::Publish,
        Self::Receive,
        Self::Listing,
        Self::Management,
    ];
    const COUNT: usize = Self::ALL.len();

    /// As header fields write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Receive => "receive",
            Self::Listing => "listing",
            Self::Management => "management",
        }
    }
}

/// The limits that are set. `None`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of each key, by [`Class`] in the order of [`Class::ALL`].
    pub per_key: [Option<Rate>; Class::COUNT],
    /// Of each address, for requests whose key or token is refused.
    pub failed_logins: Option<Rate>,
}

/// Charges requests to buckets.
pub struct Limiter {
    rates: Rates,
    keys: Buckets<Arc<str>, { Class::COUNT }>,
    addresses: Buckets<Network, 1>,
}

impl Limiter {
    /// With full buckets, from `start` on.
    pub fn new(rates: Rates, start: Instant) -> Self {
        Self {
            rates,
            keys: Buckets::new(MAX_KEYS, start),
            addresses: Buckets::new(MAX_KEYS, start),
        }
    }

    /// Whether `key` may do `cost` more of `class` now; it is charged if so. `None`: no limit is set.
    pub fn take(&self, key: &str, class: Class, cost: Cost, now: Instant) -> Option<Verdict> {
        let rate = self.rates.per_key[class as usize]?;
        Some(self.keys.take(key, class as usize, rate, cost, now))
    }

    /// Charges `key` whether it has tokens left or not. What comes next waits. `None`: no limit is set.
    pub fn charge(
        &self,
        key: &str,
        class: Class,
        cost: (u32, Debt),
        now: Instant,
    ) -> Option<Verdict> {
        let rate = self.rates.per_key[class as usize]?;
        Some(self.keys.charge(key, class as usize, rate, cost, now))
    }

    /// What [`Limiter::take`] of one token would say, without taking it.
    pub fn peek(&self, key: &str, class: Class, now: Instant) -> Option<Verdict> {
        let rate = self.rates.per_key[class as usize]?;
        Some(self.keys.peek(key, class as usize, rate, now))
    }

    /// Notes a failed login; refused when there were too many from there. Ask this after the failure, so that a good key
    /// behind the same address goes on working.
    pub fn login_failed(&self, from: IpAddr, now: Instant) -> Option<Verdict> {
        let rate = self.rates.failed_logins?;
        Some(
            self.addresses
                .take(&Network::of(from), 0, rate, Cost::new(1), now),
        )
    }
}

/// Whoever sits at one address. Of IPv6 a /64 is one place: its holder has 2^64 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl From<&Self> for Network {
    fn from(network: &Self) -> Self {
        *network
    }
}
