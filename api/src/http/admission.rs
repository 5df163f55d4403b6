//! May this request come in now? Rates of keys and addresses, and the number of requests in flight.
//!
//! Settles and extends are never refused for rate (product 4.15): what has been worked must be able to end. They are charged
//! all the same, and the receives of their key wait for it.
//!
//! Who has a rate set is told where it stands, in the header fields of draft-ietf-httpapi-ratelimit-headers-10: `q` requests
//! in `w` seconds are the quota, `r` are left, and in `t` seconds all of them are back.

use super::problem::{Code, Problem};
use crate::auth::AuthFailure;
use crate::auth::bucket::{Class, Limiter, Rates, Verdict};
use crate::limit::Limit;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// When a request may come again that found too many others.
const SOON: Duration = Duration::from_secs(1);

/// How a route is charged to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// One token, before the body is read.
    One(Class),
    /// As many as the handler finds in the body. Refused before that only if none is left.
    Counted(Class),
    /// One token or more, and never refused.
    Settle,
}

impl Charge {
    /// Of this route.
    pub(super) fn of(method: &Method, path: &str) -> Self {
        match path {
            "/v1/queue/publish" => Self::One(Class::Publish),
            "/v1/queue/publish-batch" => Self::Counted(Class::Publish),
            "/v1/queue/receive" => Self::One(Class::Receive),
            _ if path.starts_with("/v1/queue/") => Self::Settle,
            _ if *method == Method::GET => Self::One(Class::Listing),
            _ => Self::One(Class::Management),
        }
    }

    /// The bucket that it goes to.
    pub(super) fn class(self) -> Class {
        match self {
            Self::One(class) | Self::Counted(class) => class,
            Self::Settle => Class::Receive,
        }
    }
}

/// Decides who comes in.
pub struct Admission {
    limiter: Limiter,
    policies: [Option<HeaderValue>; Class::ALL.len()],
    requests: AtomicUsize,
    max_requests: usize,
}

/// A request that is in flight.
pub(super) struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Admission {
    /// With these rates, and `max_requests` in flight.
    pub fn new(rates: Rates, max_requests: usize) -> Self {
        let limiter = Limiter::new(rates, Instant::now());
        let policies =
            Class::ALL.map(|class| policy(class, limiter.peek("", class, Instant::now())?));
        Self {
            limiter,
            policies,
            requests: AtomicUsize::new(0),
            max_requests,
        }
    }

    /// Requests in flight, receives apart.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// A place among the requests in flight. Receives need none: those that work are bounded by what waits for a commit,
    /// those that wait by their own number.
    pub(super) fn enter(&self, charge: Charge) -> Result<Option<Place<'_>>, Problem> {
        let max = match charge {
            Charge::One(Class::Receive) => return Ok(None),
            Charge::Settle => self.max_requests.saturating_mul(2),
            _ => self.max_requests,
        };
        let place = Place(&self.requests);
        if self.requests.fetch_add(1, Relaxed) < max {
            return Ok(Some(place));
        }
        Err(
            Problem::new(Code::Overloaded, "Too many requests are being served.")
                .by(Limit::Requests),
        )
    }

    /// Charges a request to its key.
    pub(super) fn admit(&self, key: &str, charge: Charge) -> Result<(), Problem> {
        let now = Instant::now();
        let verdict = match charge {
            Charge::One(class) => self.limiter.take(key, class, 1, now),
            Charge::Counted(class) => self.limiter.peek(key, class, now),
            Charge::Settle => self.limiter.charge(key, Class::Receive, 1, now),
        };
        verdict.map_or(Ok(()), |verdict| {
            allowed(&verdict, limit_of(charge.class()))
        })
    }

    /// Charges all `count` items of a request to its key, or refuses it.
    pub(super) fn admit_items(&self, key: &str, class: Class, count: usize) -> Result<(), Problem> {
        let verdict = self.limiter.take(key, class, tokens(count), Instant::now());
        verdict.map_or(Ok(()), |verdict| allowed(&verdict, limit_of(class)))
    }

    /// Charges `count` more items than the one that was charged before.
    pub(super) fn charge_beyond_one(&self, key: &str, class: Class, count: usize) {
        if count > 1 {
            self.limiter
                .charge(key, class, tokens(count - 1), Instant::now());
        }
    }

    /// What becomes of a login that failed: too many wrong keys from one address are told to wait.
    pub(super) fn login_failed(&self, failure: AuthFailure, from: Option<IpAddr>) -> Problem {
        let guessed = matches!(failure, AuthFailure::InvalidKey | AuthFailure::InvalidToken);
        let verdict = from
            .filter(|_| guessed)
            .and_then(|from| self.limiter.login_failed(from, Instant::now()));
        match verdict.map(|verdict| allowed(&verdict, Limit::FailedLogins)) {
            Some(Err(problem)) => problem,
            _ => failure.into(),
        }
    }

    /// Whether calls of this kind have a rate.
    pub(super) fn limits(&self, charge: Charge) -> bool {
        self.policies[charge.class() as usize].is_some()
    }

    /// Tells `key` where it stands.
    pub(super) fn tell(&self, key: &str, charge: Charge, headers: &mut HeaderMap) {
        let class = charge.class();
        let verdict = self.limiter.peek(key, class, Instant::now());
        if let (Some(policy), Some(verdict)) = (&self.policies[class as usize], verdict) {
            headers.insert(RATE_LIMIT_POLICY, policy.clone());
            let (left, reset) = (verdict.remaining, whole_seconds(verdict.reset));
            let stands = format!("\"{}\";r={left};t={reset}", class.name());
            headers.extend(HeaderValue::try_from(stands).map(|stands| (RATE_LIMIT, stands)));
        }
    }
}

fn policy(class: Class, full: Verdict) -> Option<HeaderValue> {
    let (quota, window) = (full.limit, whole_seconds(full.window).max(1));
    HeaderValue::try_from(format!("\"{}\";q={quota};w={window}", class.name())).ok()
}

fn allowed(verdict: &Verdict, limit: Limit) -> Result<(), Problem> {
    let Some(wait) = verdict.retry_after else {
        return Ok(());
    };
    let (quota, window) = (verdict.limit, whole_seconds(verdict.window).max(1));
    let detail = format!("{}: {quota} in {window} s are allowed.", limit.what());
    Err(Problem::new(Code::RateLimited, detail)
        .by(limit)
        .retry_after(wait.max(SOON)))
}

fn limit_of(class: Class) -> Limit {
    match class {
        Class::Publish => Limit::PublishRate,
        Class::Receive => Limit::ReceiveRate,
        Class::Listing => Limit::ListingRate,
        Class::Management => Limit::ManagementRate,
    }
}

fn tokens(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::bucket::Rate;
    use std::num::NonZeroU32;

    fn admission(per_second: f64, burst: u32, max_requests: usize) -> Admission {
        let rate = Rate::per_second(per_second, NonZeroU32::new(burst).unwrap());
        let rates = Rates {
            per_key: [rate; 4],
            failed_logins: rate,
        };
        Admission::new(rates, max_requests)
    }

    const PUBLISH: Charge = Charge::One(Class::Publish);
    const RECEIVE: Charge = Charge::One(Class::Receive);

    #[test]
    fn each_kind_of_route_has_its_bucket() {
        for (method, path, charge) in [
            (Method::POST, "/v1/queue/publish", PUBLISH),
            (
                Method::POST,
                "/v1/queue/publish-batch",
                Charge::Counted(Class::Publish),
            ),
            (Method::POST, "/v1/queue/receive", RECEIVE),
            (Method::POST, "/v1/queue/extend", Charge::Settle),
            (Method::GET, "/v1/queues", Charge::One(Class::Listing)),
            (
                Method::DELETE,
                "/v1/queues/{queue}",
                Charge::One(Class::Management),
            ),
        ] {
            assert_eq!(Charge::of(&method, path), charge, "{method} {path}");
        }
    }

    #[test]
    fn settles_go_on_and_receives_wait() {
        let admission = admission(0.01, 3, 10);
        for _ in 0..5 {
            assert!(admission.admit("k", Charge::Settle).is_ok());
        }
        let refused = admission.admit("k", RECEIVE).unwrap_err();
        assert_eq!(
            (refused.code(), refused.limit()),
            (Code::RateLimited, Some(Limit::ReceiveRate))
        );
        assert!(admission.admit("k", PUBLISH).is_ok() && admission.admit("other", RECEIVE).is_ok());
    }

    #[test]
    fn a_batch_costs_what_it_holds() {
        let admission = admission(0.01, 3, 10);
        let batch = Charge::Counted(Class::Publish);
        assert!(admission.admit("k", batch).is_ok());
        assert!(admission.admit_items("k", Class::Publish, 2).is_ok());
        assert!(admission.admit_items("k", Class::Publish, 2).is_err());
        assert!(admission.admit("k", batch).is_ok() && admission.admit("k", PUBLISH).is_ok());
        assert!(admission.admit("k", batch).is_err() && admission.admit("k", PUBLISH).is_err());
        admission.charge_beyond_one("k", Class::Receive, 1);
        assert!((0..3).all(|_| admission.admit("k", RECEIVE).is_ok()));
    }

    #[test]
    fn a_caller_is_told_where_it_stands() {
        let admission = admission(2.0, 10, 10);
        assert!(admission.admit("k", PUBLISH).is_ok());
        let mut headers = HeaderMap::new();
        admission.tell("k", PUBLISH, &mut headers);
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"publish\";q=10;w=5");
        assert_eq!(headers[RATE_LIMIT], "\"publish\";r=9;t=1");
        let free = Admission::new(Rates::default(), 1);
        assert!(admission.limits(PUBLISH) && !free.limits(PUBLISH));
        let mut none = HeaderMap::new();
        free.tell("k", PUBLISH, &mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn requests_in_flight_are_bounded_and_settles_come_last() {
        let admission = admission(1e6, 1_000_000, 1);
        let first = admission.enter(PUBLISH).unwrap();
        assert_eq!(
            admission.enter(PUBLISH).err().and_then(|p| p.limit()),
            Some(Limit::Requests)
        );
        let settle = admission.enter(Charge::Settle).unwrap();
        assert!(admission.enter(Charge::Settle).is_err());
        assert!(admission.enter(RECEIVE).unwrap().is_none());
        drop((first, settle));
        assert_eq!(admission.requests(), 0);
        assert!(admission.enter(PUBLISH).is_ok());
    }

    #[test]
    fn only_guesses_count_as_failed_logins() {
        let admission = admission(0.01, 2, 1);
        let from = Some("192.0.2.1".parse().unwrap());
        let code = |failure| admission.login_failed(failure, from).code();
        for _ in 0..5 {
            assert_eq!(
                code(AuthFailure::MissingCredentials),
                Code::MissingCredentials
            );
        }
        assert_eq!(code(AuthFailure::InvalidKey), Code::InvalidKey);
        assert_eq!(code(AuthFailure::InvalidToken), Code::InvalidToken);
        assert_eq!(code(AuthFailure::InvalidKey), Code::RateLimited);
    }
}
