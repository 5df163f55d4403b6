//! Keys that come, go and cannot be had.

use super::*;

const MINUTE: u64 = 60;

fn at_url() -> (Tokens, Arc<Served>, Now) {
    let (served, start) = (Arc::new(Served::default()), now());
    let url = Some("https://login.example.com/keys".to_owned());
    let settings = IssuerSettings {
        jwks_url: url,
        ..issuer(&[Algorithm::EdDSA, Algorithm::ES256])
    };
    let settings = JwtSettings {
        issuers: vec![settings],
        ..JwtSettings::default()
    };
    let fetch: Arc<dyn Fetch> = served.clone();
    (
        Tokens::open(&settings, &fetch, start).unwrap(),
        served,
        start,
    )
}

/// Good for 23 hours.
fn token(algorithm: Alg, kid: &str) -> Vec<u8> {
    let claims = but(&json!({ "exp": NOW_S + 82_000 }));
    let name = if algorithm == Alg::EdDSA {
        "EdDSA"
    } else {
        "ES256"
    };
    sign(
        &format!("{{\"alg\":\"{name}\",\"kid\":\"{kid}\"}}"),
        &claims,
        algorithm,
    )
    .into_bytes()
}

#[tokio::test]
async fn the_first_token_reads_the_keys_if_nothing_did_before() {
    let (tokens, served, start) = at_url();
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    assert_eq!(tokens.unavailable(start).len(), 1);
    assert!(tokens.check(&token(Alg::EdDSA, "a"), start).await.is_ok());
    assert_eq!((served.asked(), tokens.unavailable(start).len()), (1, 0));
}

#[tokio::test]
async fn unknown_ids_ask_once_in_half_a_minute() {
    let (tokens, served, start) = at_url();
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    tokens.refresh(start).await;
    for seconds in 0..30 {
        for n in 0..5 {
            let unknown = token(Alg::EdDSA, &format!("../../dev/null{n}"));
            let reason = tokens
                .check(&unknown, later(start, seconds))
                .await
                .unwrap_err();
            assert!(matches!(reason, Reason::UnknownKey(_)));
        }
    }
    assert_eq!(served.asked(), 1);
    for _ in 0..5 {
        tokens
            .check(&token(Alg::EdDSA, "x"), later(start, 30))
            .await
            .unwrap_err();
    }
    assert_eq!(served.asked(), 2);
}

#[tokio::test]
async fn a_new_key_is_found_and_an_old_one_retires_with_its_tokens() {
    let (tokens, served, start) = at_url();
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    let (old, new) = (token(Alg::EdDSA, "a"), token(Alg::ES256, "b"));
    tokens.authenticate(&old, start).await.unwrap();
    served.serve(&[jwk(Alg::EdDSA, "a"), jwk(Alg::ES256, "b")]);
    let then = later(start, MINUTE);
    tokens.authenticate(&new, then).await.unwrap();
    tokens.authenticate(&old, then).await.unwrap();
    assert_eq!((served.asked(), tokens.remembered()), (2, 2));
    served.serve(&[jwk(Alg::ES256, "b")]);
    let then = later(start, 7 * MINUTE);
    tokens.refresh(then).await;
    assert_eq!(
        tokens.authenticate(&old, then).await.unwrap_err(),
        Refused::Invalid
    );
    tokens.authenticate(&new, then).await.unwrap();
    assert_eq!((served.asked(), tokens.remembered()), (3, 1));
}

#[tokio::test]
async fn another_key_under_the_same_id_ends_the_old_tokens() {
    let (tokens, served, start) = at_url();
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    let old = token(Alg::EdDSA, "a");
    tokens.authenticate(&old, start).await.unwrap();
    served.serve(&[jwk(Alg::ES256, "a")]);
    let then = later(start, 5 * MINUTE);
    tokens.refresh(then).await;
    assert_eq!(
        tokens.authenticate(&old, then).await.unwrap_err(),
        Refused::Invalid
    );
}

#[tokio::test]
async fn old_keys_count_for_an_hour_and_then_no_token_is_taken() {
    let (tokens, served, start) = at_url();
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    let text = token(Alg::EdDSA, "a");
    tokens.refresh(start).await;
    *served.document.lock() = None;
    for minutes in (1..60).step_by(5) {
        let then = later(start, minutes * MINUTE);
        tokens.refresh(then).await;
        tokens.authenticate(&text, then).await.unwrap();
    }
    let over = later(start, 60 * MINUTE + 1);
    assert_eq!(
        tokens.authenticate(&text, over).await.unwrap_err(),
        Refused::Unavailable
    );
    let reason = tokens.check(&text, over).await.unwrap_err();
    assert!(
        reason.is_unavailable() && reason.to_string().contains("it answered 503"),
        "{reason}"
    );
    assert!(matches!(&tokens.unavailable(over)[..], [(name, _)] if &**name == "login"));
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    tokens.authenticate(&text, later(over, 30)).await.unwrap();
}

#[tokio::test]
async fn keys_are_read_every_five_minutes_and_sooner_after_a_failure() {
    let (tokens, served, start) = at_url();
    let mut asked = Vec::new();
    for seconds in (0..1_200).step_by(5) {
        let before = served.asked();
        if seconds == 60 {
            served.serve(&[jwk(Alg::EdDSA, "a")]);
        }
        tokens.refresh(later(start, seconds)).await;
        if served.asked() > before {
            asked.push(seconds);
        }
    }
    assert_eq!(asked, [0, 30, 60, 360, 660, 960]);
}

#[tokio::test]
async fn what_is_no_key_set_leaves_the_old_keys() {
    let (tokens, served, start) = at_url();
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    tokens.refresh(start).await;
    let many: Vec<Value> = (0..65).map(|n| jwk(Alg::EdDSA, &n.to_string())).collect();
    let documents = [
        b"<html>".to_vec(),
        b"{}".to_vec(),
        b"{\"keys\":[]}".to_vec(),
        b"{\"keys\":{}}".to_vec(),
        jwks(&many),
    ];
    for (n, document) in (1..).zip(documents) {
        *served.document.lock() = Some(document);
        let then = later(start, 5 * MINUTE * n);
        tokens.refresh(then).await;
        tokens.check(&token(Alg::EdDSA, "a"), then).await.unwrap();
        assert_eq!(served.asked() as u64, n + 1);
    }
}

/// Takes its time.
struct Slow(Arc<Served>);

impl Fetch for Slow {
    fn fetch(&self, url: &str) -> Result<Vec<u8>, FetchError> {
        std::thread::sleep(Duration::from_millis(100));
        self.0.fetch(url)
    }
}

#[tokio::test]
async fn of_many_that_bring_a_new_key_one_asks_and_all_are_taken() {
    let (served, start) = (Arc::new(Served::default()), now());
    served.serve(&[jwk(Alg::EdDSA, "a")]);
    let url = Some("https://login.example.com/keys".to_owned());
    let settings = IssuerSettings {
        jwks_url: url,
        ..issuer(&[Algorithm::EdDSA])
    };
    let settings = JwtSettings {
        issuers: vec![settings],
        ..JwtSettings::default()
    };
    let fetch: Arc<dyn Fetch> = Arc::new(Slow(served.clone()));
    let tokens = Arc::new(Tokens::open(&settings, &fetch, start).unwrap());
    let text = token(Alg::EdDSA, "a");
    // One that leaves while it is read takes nothing away from the others.
    let impatient =
        tokio::time::timeout(Duration::from_millis(20), tokens.authenticate(&text, start));
    assert!(impatient.await.is_err());
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let (tokens, text) = (tokens.clone(), text.clone());
            tokio::spawn(async move { tokens.authenticate(&text, start).await.is_ok() })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    assert_eq!(served.asked(), 1);
}
