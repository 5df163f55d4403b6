//! The edge over TLS: the same bounds and promises, with a session between the socket and the requests.

use super::delivery::{ask, attempts_on, publish, start_over};
use super::{LONG, SHORT, TestEdge, soon, wide};
use crate::client::checked;
use axum::Router;
use quita_api::config::tls::TlsSettings;
use quita_api::http::server::Bounds;
use quita_api::http::server::tls::Tls;
use quita_api::service::Service;
use quita_tests::certificates::Authority;
use quita_tests::wire::Wire;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};
use tokio_rustls::rustls::version::{TLS12, TLS13};

type Secured = Wire<TlsStream<TcpStream>>;

/// A bound of [`SHORT`] is noticed by then, also on a busy machine.
const BY: Duration = Duration::from_secs(2);

/// An authority, and what a listener needs that it vouches for.
fn certified() -> (Authority, Option<Arc<Tls>>) {
    certified_for(0)
}

/// The same, where browsers are told to come over TLS alone.
fn certified_for(hsts: u64) -> (Authority, Option<Arc<Tls>>) {
    let (authority, folder) = (Authority::default(), TempDir::new().unwrap());
    let pair = authority.issue(folder.path());
    let settings = TlsSettings {
        tls_cert: Some(pair.cert),
        tls_key: Some(pair.key),
        tls_hsts_seconds: hsts,
    };
    (authority, Tls::load(&settings).unwrap().map(Arc::new))
}

async fn start(bounds: Bounds) -> (TestEdge, Authority) {
    let (authority, tls) = certified();
    (TestEdge::over(tls, bounds, Router::new()).await, authority)
}

async fn secure(edge: &TestEdge, authority: &Authority) -> Secured {
    let wire = edge.wire().await;
    wire.secure(authority.client()).await.unwrap()
}

#[tokio::test]
async fn requests_go_over_both_versions_and_nothing_but_http_1_is_agreed_on() {
    let (edge, authority) = start(wide()).await;
    let body = "x".repeat(1 << 20);
    for (version, agreed) in [(&TLS12, TLSv1_2), (&TLS13, TLSv1_3)] {
        let client = authority.client_with(&[version], b"http/1.1");
        let mut wire = edge.wire().await.secure(client).await.unwrap();
        assert_eq!(wire.session().protocol_version(), Some(agreed));
        assert_eq!(wire.session().alpn_protocol(), Some(&b"http/1.1"[..]));
        let hello = wire.get("/hello").await;
        assert_eq!(hello.text(), "hello");
        assert_eq!(hello.header("strict-transport-security"), None);
        wire.request("POST", "/echo", "", &body).await;
        assert_eq!(wire.answer().await.text(), body);
        assert_eq!(wire.get("/large/4").await.body.len(), 4 << 20);
        wire.part().await;
    }
    soon("all are gone", || edge.edge.open() == 0).await;
    let other = authority.client_with(&[&TLS13], b"h2");
    assert!(edge.wire().await.secure(other).await.is_err());
    let stranger = Authority::default().client();
    assert!(edge.wire().await.secure(stranger).await.is_err());
}

#[tokio::test]
async fn browsers_are_told_to_come_over_tls_alone_where_that_is_set() {
    let (authority, tls) = certified_for(31_536_000);
    let edge = TestEdge::over(tls, wide(), Router::new()).await;
    let mut wire = secure(&edge, &authority).await;
    for path in ["/hello", "/nowhere"] {
        let answer = wire.get(path).await;
        let said = answer.header("strict-transport-security");
        assert_eq!(said, Some("max-age=31536000"), "{path}");
    }
    let plain = edge.wire().await.get("/hello").await;
    assert_eq!(plain.header("strict-transport-security"), None);
}

#[tokio::test]
async fn a_handshake_has_the_time_of_a_head_and_they_share_it() {
    let (edge, authority) = start(Bounds {
        header: SHORT,
        ..wide()
    })
    .await;
    let mut silent = edge.wire().await;
    let mut half = edge.wire().await;
    // A record of 256 bytes, of which one comes.
    half.send([0x16, 3, 1, 1, 0, 1]).await;
    let mut drips = edge.wire().await;
    let began = Instant::now();
    for byte in [0x16, 3, 1, 1, 0].into_iter().chain([1; 300]) {
        if drips.try_send([byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(drips.closes_within(BY).await.is_some() && began.elapsed() >= SHORT);
    assert!(silent.closes_within(BY).await.is_some() && half.closes_within(BY).await.is_some());
    let began = Instant::now();
    let mut asks_nothing = secure(&edge, &authority).await;
    assert!(asks_nothing.ends_well().await && began.elapsed() < BY);
    soon("their places are free", || edge.edge.open() == 0).await;
    // The last one had shaken hands.
    assert_eq!(edge.counted("quita_tls_handshakes_failed_total"), 3);
}

#[tokio::test]
async fn a_session_at_rest_ends_in_order_when_its_time_is_over() {
    let (edge, authority) = start(Bounds {
        idle: SHORT,
        ..wide()
    })
    .await;
    let mut wire = secure(&edge, &authority).await;
    assert_eq!(wire.get("/hello").await.status, 200);
    assert!(wire.ends_well().await);
}

#[tokio::test]
async fn what_is_no_handshake_is_closed_and_plain_http_is_told_why() {
    let (edge, authority) = start(wide()).await;
    for garbage in [
        &b"\x16\x03\x01\x00\x05hello"[..],
        b"\x16garbage garbage",
        b"\0\0\0\0",
        b"\r\n\r\n",
        b"\x80\x2e\x01\x00\x02",
    ] {
        let mut wire = edge.wire().await;
        wire.send(garbage).await;
        assert!(wire.closes_within(BY).await.is_some(), "{garbage:?}");
    }
    // Who asks whether the port is open says nothing and has failed at nothing.
    drop(edge.wire().await);
    let failed = "quita_tls_handshakes_failed_total";
    soon("they are counted", || edge.counted(failed) == 5).await;
    let mut plain = edge.wire().await;
    let answer = plain.get("/hello").await;
    assert_eq!((answer.status, edge.reached()), (400, 0));
    let problem = checked(&answer).1;
    assert_eq!(problem["code"], "tls_required");
    assert_eq!(
        edge.counted("quita_problems_total{code=\"tls_required\"}"),
        1
    );
    assert!(problem["detail"].as_str().unwrap().contains("use https"));
    assert!(plain.ends_well().await);
    let mut wire = secure(&edge, &authority).await;
    assert_eq!(wire.get("/hello").await.status, 200);
    // A record that was changed on its way ends the session.
    let mut tcp = edge.wire().await;
    tcp.send([0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5]).await;
    assert!(tcp.closes_within(BY).await.is_some());
    soon("it is counted", || edge.counted(failed) == 6).await;
}

#[tokio::test]
async fn malformed_requests_are_answered_before_the_session_ends() {
    let (edge, authority) = start(wide()).await;
    let mut wire = secure(&edge, &authority).await;
    wire.send("GET /hello HTTP/1.1\nhost: test\r\n\r\n").await;
    assert_eq!(wire.answer().await.json()["code"], "malformed_request");
    assert!(wire.ends_well().await);
    let mut wire = secure(&edge, &authority).await;
    wire.send("nonsense\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 400);
    assert!(wire.ends_well().await);
    assert_eq!(edge.reached(), 0);
}

#[tokio::test]
async fn over_the_cap_a_connection_is_closed_and_a_place_that_is_freed_is_used() {
    let (edge, authority) = start(Bounds {
        connections: 1,
        ..wide()
    })
    .await;
    let mut inside = secure(&edge, &authority).await;
    assert_eq!(inside.get("/hello").await.status, 200);
    let refused = edge.wire().await.secure(authority.client()).await;
    assert!(refused.is_err());
    inside.part().await;
    soon("the place is free", || edge.edge.open() == 0).await;
    let mut next = secure(&edge, &authority).await;
    assert_eq!(next.get("/hello").await.status, 200);
}

#[tokio::test]
async fn a_drain_finishes_answers_and_says_goodbye() {
    let (edge, authority) = start(wide()).await;
    let mut resting = secure(&edge, &authority).await;
    assert_eq!(resting.get("/hello").await.status, 200);
    let mut busy = secure(&edge, &authority).await;
    busy.send("GET /sleep/300 HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    soon("it runs", || edge.running.load(Ordering::SeqCst) == 1).await;
    let mut shaking = edge.wire().await;
    shaking.send([0x16, 3, 1]).await;
    soon("it is let in", || edge.edge.open() == 3).await;
    edge.drain.begin();
    edge.edge.close();
    assert!(resting.ends_well().await);
    assert!(shaking.closes_within(BY).await.is_some());
    let answer = busy.answer().await;
    assert_eq!(
        (answer.text().as_str(), answer.header("connection")),
        ("slept", Some("close"))
    );
    assert!(busy.ends_well().await);
    edge.edge.finished().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_connection() {
    let (edge, authority) = start(Bounds {
        write_stall: SHORT,
        ..wide()
    })
    .await;
    let narrow = Wire::narrow(edge.address).await;
    let mut wire = narrow.secure(authority.client()).await.unwrap();
    wire.send("GET /large/16 HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    let began = Instant::now();
    while edge.edge.open() == 1 {
        assert!(began.elapsed() < BY, "it is not closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(began.elapsed() >= SHORT / 2);
}

/// Waits until so many messages are out.
async fn leased(service: &Service, messages: i64) {
    let backend = service.coalescer().backend();
    let queue = backend.queue("q").await.unwrap().unwrap();
    let began = Instant::now();
    while backend
        .numbers(queue.uid, None)
        .await
        .unwrap()
        .counts
        .leased
        != messages
    {
        assert!(began.elapsed() < BY, "they are not handed out");
        tokio::task::yield_now().await;
    }
}

/// Of the small answer the session has all and the kernel a part, with nothing left in the HTTP library.
#[tokio::test]
async fn an_answer_that_never_left_the_session_gives_its_messages_back() {
    for (messages, bytes) in [(1, 40_000), (30, 250_000)] {
        let (authority, tls) = certified();
        let bounds = Bounds {
            write_stall: SHORT,
            ..wide()
        };
        let (edge, service) = start_over(tls, bounds).await;
        let narrow = Wire::narrow(edge.address).await;
        let mut deaf = narrow.secure(authority.client()).await.unwrap();
        for _ in 0..messages {
            publish(&service, bytes).await;
        }
        ask(&mut deaf, 0, 200).await;
        let mut other = secure(&edge, &authority).await;
        leased(&service, messages as i64).await;
        assert_eq!(attempts_on(&mut other).await, vec![1; messages]);
    }
}

#[tokio::test]
async fn a_large_answer_that_is_taken_slowly_is_delivered() {
    let (authority, tls) = certified();
    let (edge, service) = start_over(
        tls,
        Bounds {
            write_stall: SHORT * 5,
            ..wide()
        },
    )
    .await;
    for _ in 0..30 {
        publish(&service, 250_000).await;
    }
    let narrow = Wire::narrow(edge.address).await;
    let mut slow = narrow.secure(authority.client()).await.unwrap();
    ask(&mut slow, 0, 200).await;
    tokio::time::sleep(SHORT).await;
    assert_eq!(slow.answer().await.json().as_array().unwrap().len(), 30);
    let mut other = secure(&edge, &authority).await;
    assert!(attempts_on(&mut other).await.is_empty());
}

#[tokio::test]
async fn a_message_for_a_client_that_hung_up_goes_to_another_at_once() {
    let (authority, tls) = certified();
    let (edge, service) = start_over(
        tls,
        Bounds {
            header: LONG,
            ..wide()
        },
    )
    .await;
    let mut other = secure(&edge, &authority).await;
    publish(&service, 1).await;
    assert_eq!(attempts_on(&mut other).await, [1]);
    for way in ["a goodbye", "a close", "a reset"] {
        let mut gone = secure(&edge, &authority).await;
        ask(&mut gone, 30_000, 200).await;
        soon("it waits", || service.coalescer().wakeup().waiting() == 1).await;
        match way {
            "a goodbye" => gone.part().await,
            "a close" => drop(gone),
            _ => gone.abort(),
        }
        publish(&service, 10).await;
        let began = Instant::now();
        assert_eq!(attempts_on(&mut other).await, [1], "{way}");
        assert!(began.elapsed() < Duration::from_secs(1), "{way}");
    }
}

/// All of them are still in their line when the messages come: only the kernel knows that they have gone.
#[tokio::test]
async fn waiters_that_hang_up_together_get_nothing() {
    let (authority, tls) = certified();
    let (edge, service) = start_over(tls, wide()).await;
    let mut other = secure(&edge, &authority).await;
    publish(&service, 1).await;
    assert_eq!(attempts_on(&mut other).await, [1]);
    let mut waiting = Vec::new();
    for _ in 0..60 {
        let mut wire = secure(&edge, &authority).await;
        ask(&mut wire, 30_000, 200).await;
        waiting.push(wire);
    }
    soon("all wait", || service.coalescer().wakeup().waiting() == 60).await;
    for (n, wire) in waiting.into_iter().enumerate() {
        match n % 3 {
            0 => wire.part().await,
            1 => drop(wire),
            _ => wire.abort(),
        }
    }
    for _ in 0..20 {
        publish(&service, 10).await;
    }
    let mut received = Vec::new();
    while received.len() < 20 {
        let more = attempts_on(&mut other).await;
        assert!(!more.is_empty(), "only {} of 20 came", received.len());
        received.extend(more);
    }
    assert!(received.iter().all(|attempt| *attempt == 1), "{received:?}");
}

/// Requests that come while an answer with messages is on its way are looked at for a goodbye, and kept.
#[tokio::test]
async fn requests_that_come_early_are_answered_in_their_turn() {
    let (authority, tls) = certified();
    let (edge, service) = start_over(tls, wide()).await;
    let mut wire = secure(&edge, &authority).await;
    publish(&service, 1).await;
    assert_eq!(attempts_on(&mut wire).await, [1]);
    for _ in 0..20 {
        ask(&mut wire, 5_000, 200).await;
        soon("it waits", || service.coalescer().wakeup().waiting() == 1).await;
        ask(&mut wire, 0, 200).await;
        publish(&service, 10).await;
        assert_eq!(wire.answer().await.json()[0][0], 1);
        let second = wire.answer().await.json();
        assert!(second.as_array().unwrap().is_empty(), "{second}");
    }
}
