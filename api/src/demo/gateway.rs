//! A payment gateway that behaves like one: it fails one time in five, refuses cancelled cards, and answers a repeated
//! `Idempotency-Key` with its first result instead of charging again.
//!
//! Decisions depend on (seed, key, try) alone, so that a run is repeatable as far as scheduling allows. A charge is booked
//! before it is answered and whether or not anybody waits for the answer.

use super::Outcome;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, body::Bytes};
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Of 100 tries, so many answer 503.
const FAILURES_PERCENT: u64 = 20;

/// Header that names the calling worker, so that the scene can look at one of them.
pub(super) const WORKER_HEADER: &str = "worker";

/// The gateway and its books.
#[derive(Debug)]
pub(super) struct Gateway {
    seed: u64,
    latency: Duration,
    cancelled: HashSet<String>,
    books: Mutex<Books>,
    held: watch::Sender<Option<String>>,
}

/// Everything the gateway has decided.
#[derive(Debug, Default)]
struct Books {
    tries: HashMap<String, u64>,
    /// First result by idempotency key.
    results: HashMap<String, Result>,
    /// Executed charges by subscription: what the card holder sees.
    charges: HashMap<String, u32>,
    /// Idempotency keys whose repeat was answered.
    replayed: HashSet<String>,
    replays: u64,
    failures: u64,
    /// Keys charged whose answer is being held back.
    unanswered: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Result {
    Charged(u64),
    CardCancelled,
}

/// The books, added up.
#[derive(Debug)]
pub(super) struct Sums {
    /// Subscriptions charged at least once.
    pub(super) charged: u64,
    /// Subscriptions charged more than once.
    pub(super) charged_twice: u64,
    /// Repeated keys that were answered from the books.
    pub(super) replays: u64,
    /// Answers with 503.
    pub(super) failures: u64,
}

impl Gateway {
    /// Listens on a free port of the loopback interface.
    pub(super) async fn start(
        seed: u64,
        latency: Duration,
        cancelled: HashSet<String>,
    ) -> Outcome<(Arc<Self>, SocketAddr)> {
        let held = watch::Sender::new(None);
        let gateway = Arc::new(Self {
            seed,
            latency,
            cancelled,
            books: Mutex::default(),
            held,
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/charges", post(charge))
            .with_state(Arc::clone(&gateway));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((gateway, address))
    }

    /// From now on answers to this worker wait; its charges are booked all the same.
    pub(super) fn hold(&self, worker: &str) {
        self.books.lock().unanswered.clear();
        self.held.send_replace(Some(worker.to_owned()));
    }

    /// How many charges are booked and held back.
    pub(super) fn unanswered(&self) -> usize {
        self.books.lock().unanswered.len()
    }

    /// Lets the answers go, and names the keys of the charges that were waiting.
    pub(super) fn let_go(&self) -> Vec<String> {
        self.held.send_replace(None);
        std::mem::take(&mut self.books.lock().unanswered)
    }

    /// Keys with a final result so far.
    pub(super) fn decided(&self) -> usize {
        self.books.lock().results.len()
    }

    /// This subscription was charged.
    pub(super) fn has_charged(&self, subscription: &str) -> bool {
        self.books.lock().charges.contains_key(subscription)
    }

    /// A repeat of this key was answered from the books.
    pub(super) fn has_replayed(&self, key: &str) -> bool {
        self.books.lock().replayed.contains(key)
    }

    pub(super) fn is_cancelled(&self, subscription: &str) -> bool {
        self.cancelled.contains(subscription)
    }

    pub(super) fn sums(&self) -> Sums {
        let books = self.books.lock();
        Sums {
            charged: books.charges.len() as u64,
            charged_twice: books.charges.values().filter(|times| **times > 1).count() as u64,
            replays: books.replays,
            failures: books.failures,
        }
    }

    async fn serve(&self, key: String, subscription: String, worker: Option<String>) -> Response {
        tokio::time::sleep(self.latency / 2).await;
        let (answer, charged_now) = self.decide(&key, &subscription);
        tokio::time::sleep(self.latency / 2).await;
        let mut held = self.held.subscribe();
        let mut noted = false;
        while worker.is_some() && *held.borrow_and_update() == worker {
            if charged_now && !noted {
                self.books.lock().unanswered.push(key.clone());
                noted = true;
            }
            if held.changed().await.is_err() {
                break;
            }
        }
        answer
    }

    fn decide(&self, key: &str, subscription: &str) -> (Response, bool) {
        let mut books = self.books.lock();
        if let Some(result) = books.results.get(key).copied() {
            books.replays += 1;
            books.replayed.insert(key.to_owned());
            return (result.into_response(), false);
        }
        if self.is_cancelled(subscription) {
            books.results.insert(key.to_owned(), Result::CardCancelled);
            return (Result::CardCancelled.into_response(), false);
        }
        let tries = books.tries.entry(key.to_owned()).or_default();
        *tries += 1;
        if chance(self.seed, key, *tries) % 100 < FAILURES_PERCENT {
            books.failures += 1;
            return (
                answer(
                    StatusCode::SERVICE_UNAVAILABLE,
                    &json!({ "error": "try_again" }),
                ),
                false,
            );
        }
        *books.charges.entry(subscription.to_owned()).or_default() += 1;
        let result = Result::Charged(books.results.len() as u64 + 1);
        books.results.insert(key.to_owned(), result);
        (result.into_response(), true)
    }
}

impl IntoResponse for Result {
    fn into_response(self) -> Response {
        match self {
            Self::Charged(number) => answer(
                StatusCode::CREATED,
                &json!({ "charge": format!("ch_{number}") }),
            ),
            Self::CardCancelled => answer(
                StatusCode::PAYMENT_REQUIRED,
                &json!({ "error": "card_cancelled" }),
            ),
        }
    }
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

async fn charge(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let charge: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (Some(key), Some(subscription)) =
        (text("idempotency-key"), charge["subscription"].as_str())
    else {
        return answer(
            StatusCode::BAD_REQUEST,
            &json!({ "error": "idempotency_key_and_subscription_required" }),
        );
    };
    let (subscription, worker) = (subscription.to_owned(), text(WORKER_HEADER));
    // A task of its own: a charge goes through although the caller hangs up.
    match tokio::spawn(async move { gateway.serve(key, subscription, worker).await }).await {
        Ok(response) => response,
        Err(_) => answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({ "error": "gateway" }),
        ),
    }
}

/// A repeatable draw: FNV-1a over the inputs, spread by the finish of `MurmurHash3`.
pub(super) fn chance(seed: u64, text: &str, number: u64) -> u64 {
    let bytes = seed
        .to_le_bytes()
        .into_iter()
        .chain(text.bytes())
        .chain(number.to_le_bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway() -> Gateway {
        Gateway {
            seed: 1,
            latency: Duration::ZERO,
            cancelled: HashSet::from(["sub_0007".to_owned()]),
            books: Mutex::default(),
            held: watch::Sender::new(None),
        }
    }

    #[test]
    fn a_repeated_key_is_answered_from_the_books() {
        let gateway = gateway();
        while !gateway.decide("k", "sub_0001").1 {}
        assert!(!gateway.decide("k", "sub_0001").1);
        let sums = gateway.sums();
        assert_eq!((sums.charged, sums.charged_twice, sums.replays), (1, 0, 1));
    }

    #[test]
    fn another_key_for_the_same_subscription_shows_as_charged_twice() {
        let gateway = gateway();
        while !gateway.decide("k1", "sub_0001").1 {}
        while !gateway.decide("k2", "sub_0001").1 {}
        assert_eq!(gateway.sums().charged_twice, 1);
    }

    #[test]
    fn a_cancelled_card_is_never_charged() {
        let gateway = gateway();
        for _ in 0..20 {
            assert_eq!(
                gateway.decide("k", "sub_0007").0.status(),
                StatusCode::PAYMENT_REQUIRED
            );
        }
        assert!(!gateway.has_charged("sub_0007"));
    }

    #[test]
    fn about_one_try_in_five_fails() {
        let failures = (0..10_000)
            .filter(|n| chance(7, "cob-sub_0412-2026-10", *n) % 100 < FAILURES_PERCENT)
            .count();
        assert!((1_800..2_200).contains(&failures), "{failures}");
    }
}
