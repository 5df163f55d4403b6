//! Keys that are good, keys that are not, and tokens beside them.

use super::*;
use quita_storage::backend::Call;
use quita_storage::memory;

async fn with_a_key() -> (Arc<dyn Backend>, ApiKey, Authenticator) {
    let (backend, key) = (memory::open(), ApiKey::generate().unwrap());
    backend
        .add_key(&Call::by("server"), admin_record(&key, "test"), false)
        .await
        .unwrap();
    let auth = Authenticator::load(backend.clone()).await.unwrap();
    (backend, key, auth)
}

async fn ask(auth: &Authenticator, header: &[u8]) -> Result<Principal, AuthFailure> {
    let header = HeaderValue::from_bytes(header).unwrap();
    auth.authenticate(Some(&header)).await
}

#[tokio::test]
async fn a_good_key_is_known_in_any_case_of_the_scheme() {
    let (_, key, auth) = with_a_key().await;
    for scheme in ["Bearer", "bearer", "BEARER", "Bearer  "] {
        let who = ask(&auth, format!("{scheme} {}", key.reveal()).as_bytes())
            .await
            .unwrap();
        assert_eq!(&*who.id, key.id());
        assert!(who.may(Right::Keys, "any"));
    }
}

#[tokio::test]
async fn unknown_wrong_revoked_and_nonsense_fail_alike() {
    let (backend, key, auth) = with_a_key().await;
    let other = ApiKey::generate().unwrap();
    backend
        .revoke_key(&Call::by("server"), key.id(), None)
        .await
        .unwrap();
    auth.refresh().await.unwrap();
    let huge = "k".repeat(1 << 20);
    for text in [
        key.reveal(),
        other.reveal(),
        "qta_",
        &huge,
        &key.reveal()[..60],
    ] {
        let failure = ask(&auth, format!("Bearer {text}").as_bytes())
            .await
            .unwrap_err();
        assert_eq!(failure, AuthFailure::InvalidKey);
    }
    assert_eq!(
        ask(&auth, b"Bearer \xff\xfe").await.unwrap_err(),
        AuthFailure::InvalidKey
    );
}

/// How long an answer takes must not tell whether a key is known: the work is counted, since a clock would be a bad witness.
#[tokio::test]
async fn every_key_that_is_refused_costs_one_hash_as_a_good_one_does() {
    let (backend, good, auth) = with_a_key().await;
    let (revoked, expired) = (ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
    let call = Call::by("server");
    for (key, expires_at) in [(&revoked, None), (&expired, Some(1))] {
        let record = KeyRecord {
            expires_at,
            ..admin_record(key, "test")
        };
        assert!(backend.add_key(&call, record, false).await.unwrap());
    }
    assert!(backend.revoke_key(&call, revoked.id(), None).await.unwrap());
    auth.refresh().await.unwrap();
    let unknown = ApiKey::generate().unwrap();
    let seed = *good.id().as_bytes().first_chunk().unwrap();
    let wrong = ApiKey::generate_for(seed.map(|c| match c {
        b'2'..=b'7' => c - b'2' + 26,
        letter => letter - b'a',
    }));
    let wrong = wrong.unwrap();
    assert_eq!(wrong.id(), good.id());
    let hashed = || key::HASHED.get();
    for (key, is_good) in [
        (&good, true),
        (&unknown, false),
        (&wrong, false),
        (&revoked, false),
        (&expired, false),
    ] {
        let before = hashed();
        let answer = ask(&auth, format!("Bearer {}", key.reveal()).as_bytes()).await;
        assert_eq!(hashed() - before, 1, "{key:?}");
        assert_eq!(answer.is_ok(), is_good, "{key:?}");
    }
    // What is no key at all says so to everybody: its checksum is no secret.
    let before = hashed();
    let cut = &good.reveal()[..65];
    assert!(
        ask(&auth, format!("Bearer {cut}").as_bytes())
            .await
            .is_err()
    );
    assert_eq!(hashed(), before);
}

#[tokio::test]
async fn the_secret_of_another_key_opens_nothing() {
    let (backend, key, _) = with_a_key().await;
    let mut record = admin_record(&key, "same id");
    record.secret_hash = ApiKey::generate().unwrap().secret_hash();
    let wrong = memory::open();
    wrong
        .add_key(&Call::by("server"), record, false)
        .await
        .unwrap();
    let auth = Authenticator::load(wrong).await.unwrap();
    let failure = ask(&auth, format!("Bearer {}", key.reveal()).as_bytes()).await;
    assert_eq!(failure.unwrap_err(), AuthFailure::InvalidKey);
    drop(backend);
}

#[tokio::test]
async fn the_scopes_of_a_key_are_what_its_record_says() {
    let (_, key, _) = with_a_key().await;
    for (scope, expected) in [
        ("admin", "admin"),
        ("read publish:a*", "publish:a* read"),
        ("superuser", ""),
        ("", ""),
    ] {
        let backend = memory::open();
        let mut record = admin_record(&key, "test");
        record.scope = scope.into();
        backend
            .add_key(&Call::by("server"), record, false)
            .await
            .unwrap();
        let auth = Authenticator::load(backend).await.unwrap();
        let who = ask(&auth, format!("Bearer {}", key.reveal()).as_bytes())
            .await
            .unwrap();
        assert_eq!(who.scopes.to_string(), expected);
        assert_eq!(
            who.may(Right::Publish, "a1"),
            scope != "superuser" && !scope.is_empty()
        );
        assert_eq!(who.may_anywhere(Right::Keys), scope == "admin");
    }
}

#[tokio::test]
async fn tokens_are_taken_beside_keys_once_an_issuer_is_configured() {
    let (_, key, auth) = with_a_key().await;
    let (tokens, text) = jwt::a_token_for_tests();
    let (key, token) = (format!("Bearer {}", key.reveal()), format!("bearer {text}"));
    assert_eq!(
        ask(&auth, token.as_bytes()).await.unwrap_err(),
        AuthFailure::InvalidToken
    );
    let auth = auth.with_tokens(Arc::new(tokens));
    assert_eq!(
        &*ask(&auth, token.as_bytes()).await.unwrap().id,
        "login:alice"
    );
    assert!(
        ask(&auth, key.as_bytes())
            .await
            .unwrap()
            .may(Right::Keys, "any")
    );
    for (wrong, failure) in [
        (&token[..token.len() - 2], AuthFailure::InvalidToken),
        ("Bearer x.y.z", AuthFailure::InvalidToken),
        ("Bearer a.b", AuthFailure::InvalidToken),
        ("Bearer qta_", AuthFailure::InvalidKey),
        ("Bearer qta_a.b.c", AuthFailure::InvalidKey),
        ("Bearer nonsense", AuthFailure::InvalidKey),
        (&key[..60], AuthFailure::InvalidKey),
    ] {
        assert_eq!(ask(&auth, wrong.as_bytes()).await.unwrap_err(), failure);
    }
}

#[tokio::test]
async fn no_credentials_and_another_scheme_are_told_apart() {
    let (_, _, auth) = with_a_key().await;
    for header in [&b""[..], b"   ", b"Bearer", b"Bearer   "] {
        let failure = ask(&auth, header).await.unwrap_err();
        assert_eq!(failure, AuthFailure::MissingCredentials);
    }
    assert_eq!(
        auth.authenticate(None).await.unwrap_err(),
        AuthFailure::MissingCredentials
    );
    for header in [&b"Basic dXNlcjpwYXNz"[..], b"qta_abc", b"Digest x"] {
        assert_eq!(
            ask(&auth, header).await.unwrap_err(),
            AuthFailure::UnsupportedScheme
        );
    }
}

#[tokio::test]
async fn a_wait_ends_when_the_key_is_revoked_and_no_sooner() {
    let (backend, key, auth) = with_a_key().await;
    let who = ask(&auth, format!("Bearer {}", key.reveal()).as_bytes())
        .await
        .unwrap();
    let mut waiting = Box::pin(auth.until_refused(&who));
    auth.refresh().await.unwrap();
    assert!(futures_util::poll!(&mut waiting).is_pending());
    backend
        .revoke_key(&Call::by("server"), key.id(), None)
        .await
        .unwrap();
    assert!(futures_util::poll!(&mut waiting).is_pending());
    auth.refresh().await.unwrap();
    assert_eq!(waiting.await, AuthFailure::InvalidKey);
    assert_eq!(auth.until_refused(&who).await, AuthFailure::InvalidKey);
}

#[tokio::test]
async fn a_wait_ends_when_the_token_does() {
    let (_, _, auth) = with_a_key().await;
    let ends = |in_ms: i64| Principal {
        expires_at: Some(quita_storage::clock::wall() + in_ms),
        ..Principal::admin("login:alice")
    };
    let began = std::time::Instant::now();
    for in_ms in [-5, 0, 100] {
        assert_eq!(
            auth.until_refused(&ends(in_ms)).await,
            AuthFailure::InvalidToken
        );
    }
    assert!(began.elapsed() >= Duration::from_millis(95));
    assert!(futures_util::poll!(Box::pin(auth.until_refused(&ends(60_000)))).is_pending());
}

#[tokio::test]
async fn the_last_use_is_written_once_a_minute_and_not_by_the_request() {
    let (backend, key, auth) = with_a_key().await;
    let header = format!("Bearer {}", key.reveal());
    let noted = async || backend.keys().await.unwrap()[0].last_used_at;
    for _ in 0..3 {
        ask(&auth, header.as_bytes()).await.unwrap();
    }
    assert_eq!(noted().await, None);
    auth.note_use().await.unwrap();
    let at = noted().await.unwrap();
    assert_eq!(at % MINUTE_MS, 0);
    auth.refresh().await.unwrap();
    ask(&auth, header.as_bytes()).await.unwrap();
    auth.note_use().await.unwrap();
    // Unless the minute is over just now.
    let now = quita_storage::clock::wall();
    assert!(noted().await == Some(at) || now - at < 2 * MINUTE_MS);
}

#[tokio::test]
async fn an_expired_key_is_not_known() {
    let (key, backend) = (ApiKey::generate().unwrap(), memory::open());
    let short = record(&key, &Scopes::admin(), "short", Some(50));
    backend
        .add_key(&Call::by("server"), short, false)
        .await
        .unwrap();
    let auth = Authenticator::load(backend).await.unwrap();
    let header = format!("Bearer {}", key.reveal());
    let who = ask(&auth, header.as_bytes()).await.unwrap();
    assert_eq!(auth.until_refused(&who).await, AuthFailure::InvalidKey);
    let failure = ask(&auth, header.as_bytes()).await.unwrap_err();
    assert_eq!(failure, AuthFailure::InvalidKey);
}

#[tokio::test]
async fn where_everybody_is_let_in_nothing_is_looked_at() {
    let (backend, key, _) = with_a_key().await;
    let auth = Authenticator::open_to_everybody(backend.clone());
    let good = format!("Bearer {}", key.reveal());
    for header in ["", "Bearer qta_wrong", "Basic eDp5", "Bearer a.b.c", &good] {
        let who = ask(&auth, header.as_bytes()).await.unwrap();
        assert_eq!(&*who.id, EVERYBODY);
        assert!(who.may_everywhere(Right::Keys));
    }
    let who = auth.authenticate(None).await.unwrap();
    auth.note_use().await.unwrap();
    assert_eq!(backend.keys().await.unwrap()[0].last_used_at, None);
    assert!(futures_util::poll!(Box::pin(auth.until_refused(&who))).is_pending());
}

#[test]
fn debug_of_a_stored_key_shows_no_hash() {
    let key = ApiKey::generate().unwrap();
    let record = admin_record(&key, "test");
    let shown = format!("{record:?}");
    assert!(shown.contains(key.id()), "{shown}");
    let hash = format!("{:?}", record.secret_hash);
    assert!(!shown.contains(&hash) && !shown.contains("hash"), "{shown}");
    let made = crate::service::keys::MadeKey {
        record,
        key: Some(key.clone()),
    };
    assert!(!format!("{made:?}").contains(&key.reveal()[17..]));
}
