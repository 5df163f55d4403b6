//! May this request come in now? Rates of keys and addresses, and the number of requests in flight.
//!
//! Settles and extends are never refused for rate (product 4.15): what has been worked must be able to end. They are charged
//! all the same, and the receives of their key wait for it.
//!
//! Who has a rate set is told where it stands, in the header fields of draft-ietf-httpapi-ratelimit-headers-10: `q` in `w`
//! seconds are the quota, `r` are left, and in `t` seconds there is at least one more.

use super::problem::{Code, Problem};
use crate::auth::AuthFailure;
use crate::auth::bucket::{Class, Cost, Debt, Limiter, Rates, Verdict};
use crate::limit::Limit;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue, Method, StatusCode};
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
    /// One token, before the body is read; the handler may find that it costs more.
    One(Class),
    /// One token or more, and never refused.
    Settle,
    /// Nothing, and always let in: whoever watches an overloaded server must see it.
    Free,
}

impl Charge {
    /// Of this route.
    pub(super) fn of(method: &Method, path: &str) -> Self {
        match path {
            "/metrics" => Self::Free,
            "/v1/queue/publish" | "/v1/queue/publish-batch" => Self::One(Class::Publish),
            "/v1/queue/receive" => Self::One(Class::Receive),
            "/v1/queue/ack" | "/v1/queue/nack" | "/v1/queue/release" | "/v1/queue/extend"
            | "/v1/queue/settle" => Self::Settle,
            _ if *method == Method::GET => Self::One(Class::Listing),
            _ => Self::One(Class::Management),
        }
    }

    /// The bucket that it goes to.
    pub(super) fn class(self) -> Option<Class> {
        match self {
            Self::One(class) => Some(class),
            Self::Settle => Some(Class::Receive),
            Self::Free => None,
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
pub(super) struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Admission {
    /// With these rates, and `max_requests` in flight.
    pub fn new(rates: Rates, max_requests: usize) -> Self {
        let limiter = Limiter::new(rates, Instant::now());
        let policies =
            Class::ALL.map(|class| policy(class, &limiter.peek("", class, Instant::now())?));
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
    pub(super) fn enter(&self, charge: Charge) -> Result<Option<InFlight<'_>>, Problem> {
        let max = match charge {
            Charge::One(Class::Receive) | Charge::Free => return Ok(None),
            Charge::Settle => self.max_requests.saturating_mul(2),
            Charge::One(_) => self.max_requests,
        };
        let place = InFlight(&self.requests);
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
        let Some(class) = self.limited(charge) else {
            return Ok(());
        };
        let now = Instant::now();
        let verdict = match charge {
            Charge::Settle => self.limiter.charge(key, class, (1, Debt::Bounded), now),
            _ => self.limiter.take(key, class, Cost::new(1), now),
        };
        verdict.map_or(Ok(()), |verdict| allowed(&verdict, limit_of(class)))
    }

    /// Charges the items of a batch to its key, of which one was charged before; or refuses it.
    pub(super) fn admit_items(&self, key: &str, class: Class, count: usize) -> Result<(), Problem> {
        let cost = Cost::beyond_one(tokens(count));
        let verdict = self.limiter.take(key, class, cost, Instant::now());
        verdict.map_or(Ok(()), |verdict| allowed(&verdict, limit_of(class)))
    }

    /// Charges messages that were handed out, of which one was charged before.
    pub(super) fn charge_messages(&self, key: &str, count: usize) {
        self.charge(key, count, Debt::Whole);
    }

    /// Charges settles, of which one was charged before.
    pub(super) fn charge_settles(&self, key: &str, count: usize) {
        self.charge(key, count, Debt::Bounded);
    }

    fn charge(&self, key: &str, count: usize, debt: Debt) {
        let more = tokens(count.saturating_sub(1));
        if more > 0 {
            self.limiter
                .charge(key, Class::Receive, (more, debt), Instant::now());
        }
    }

    /// What becomes of a login that failed: too many wrong keys from one address are told to wait.
    pub(super) fn login_failed(&self, failure: AuthFailure, from: Option<IpAddr>) -> Problem {
        let guessed = matches!(failure, AuthFailure::InvalidKey | AuthFailure::InvalidToken);
        let verdict = from
            .filter(|_| guessed)
            .and_then(|from| self.limiter.login_failed(from, Instant::now()));
        match verdict.and_then(|verdict| verdict.retry_after) {
            Some(wait) => Problem::from(Code::FailedLogins).retry_after(wait.max(SOON)),
            None => failure.into(),
        }
    }

    /// The class of calls of this kind, if it has a rate.
    pub(super) fn limited(&self, charge: Charge) -> Option<Class> {
        let class = charge.class()?;
        self.policies[class as usize].is_some().then_some(class)
    }

    /// Tells `key` where it stands. Who was refused waits as long as `Retry-After` says.
    pub(super) fn tell(&self, key: &str, class: Class, answer: &mut Response) {
        let verdict = self.limiter.peek(key, class, Instant::now());
        let (Some(policy), Some(verdict)) = (&self.policies[class as usize], verdict) else {
            return;
        };
        let refused = answer.status() == StatusCode::TOO_MANY_REQUESTS;
        let headers = answer.headers_mut();
        let wait = headers.get(RETRY_AFTER).filter(|_| refused);
        let (name, left) = (class.name(), verdict.remaining);
        let stands = if let Some(wait) = wait.and_then(|wait| wait.to_str().ok()) {
            format!("\"{name}\";r=0;t={wait}")
        } else {
            format!("\"{name}\";r={left};t={}", whole_seconds(verdict.next))
        };
        headers.insert(RATE_LIMIT_POLICY, policy.clone());
        headers.extend(HeaderValue::try_from(stands).map(|stands| (RATE_LIMIT, stands)));
    }
}

/// So many in so many seconds: a bucket, or what comes in a second where the bucket is smaller.
fn quota(verdict: &Verdict) -> (u64, u64) {
    let second = Duration::from_secs(1);
    if verdict.window >= second {
        return (u64::from(verdict.limit), whole_seconds(verdict.window));
    }
    let in_a_second = f64::from(verdict.limit) / verdict.window.as_secs_f64().max(1e-9);
    (in_a_second.round() as u64, 1)
}

fn policy(class: Class, full: &Verdict) -> Option<HeaderValue> {
    let (quota, window) = quota(full);
    HeaderValue::try_from(format!("\"{}\";q={quota};w={window}", class.name())).ok()
}

fn allowed(verdict: &Verdict, limit: Limit) -> Result<(), Problem> {
    let Some(wait) = verdict.retry_after else {
        return Ok(());
    };
    let (quota, window) = quota(verdict);
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
            (Method::POST, "/v1/queue/publish-batch", PUBLISH),
            (Method::GET, "/metrics", Charge::Free),
            (
                Method::POST,
                "/v1/queue/peek",
                Charge::One(Class::Management),
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
        let batch = |count| {
            admission.admit("k", PUBLISH)?;
            admission.admit_items("k", Class::Publish, count)
        };
        assert!(batch(2).is_ok());
        // It was read: that costs the one that was left.
        assert!(batch(2).is_err() && batch(1).is_err());
        admission.charge_messages("k", 1);
        assert!((0..3).all(|_| admission.admit("k", RECEIVE).is_ok()));
    }

    fn told(admission: &Admission, refused: bool) -> Option<[String; 2]> {
        let mut answer = Response::new(axum::body::Body::empty());
        if refused {
            *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            answer.headers_mut().insert(RETRY_AFTER, 7.into());
        }
        admission.tell("k", Class::Publish, &mut answer);
        let text = |name| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
        Some([text(RATE_LIMIT_POLICY)?, text(RATE_LIMIT)?])
    }

    #[test]
    fn a_caller_is_told_where_it_stands() {
        let slow = admission(2.0, 10, 10);
        assert!(slow.admit("k", PUBLISH).is_ok());
        let [policy, stands] = told(&slow, false).unwrap();
        assert_eq!(policy, "\"publish\";q=10;w=5");
        assert_eq!(stands, "\"publish\";r=9;t=1");
        assert_eq!(told(&slow, true).unwrap()[1], "\"publish\";r=0;t=7");
        let narrow = admission(1_000.0, 10, 10);
        assert_eq!(told(&narrow, false).unwrap()[0], "\"publish\";q=1000;w=1");
        let free = Admission::new(Rates::default(), 1);
        assert_eq!(
            (slow.limited(PUBLISH), free.limited(PUBLISH)),
            (Some(Class::Publish), None)
        );
        assert_eq!(told(&free, false), None);
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
        for free in [RECEIVE, Charge::Free] {
            assert!(admission.enter(free).unwrap().is_none());
        }
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
        assert_eq!(code(AuthFailure::InvalidKey), Code::FailedLogins);
        // It cannot be a guess, and its holder must learn that it needs a new one.
        assert_eq!(code(AuthFailure::ExpiredToken), Code::InvalidToken);
    }
}
