//! Tokens that are taken and tokens that are not, each made with a real signature unless the signature is the point.

mod forgery;
mod issuers;
mod network;
mod rotation;
mod sets;
mod times;

use super::fetch::{Fetch, FetchError};
use super::settings::{IssuerSettings, JwtSettings, Secret};
use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm as Alg, EncodingKey};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

const ED25519: &str = include_str!("keys/ed25519.pem");
const ED25519_PUBLIC: &str = include_str!("keys/ed25519.pub.pem");
const P256: &str = include_str!("keys/p256.pem");
const RSA: &str = include_str!("keys/rsa.pem");
const RSA_PUBLIC: &str = include_str!("keys/rsa.pub.pem");
const SECRET: &str = "a secret of at least thirty-two bytes";
/// Seconds since the epoch, at which all tests happen.
const NOW_S: u64 = 1_790_000_000;

fn now() -> Now {
    Now {
        wall: NOW_S as Millis * 1_000,
        ticks: Instant::now(),
    }
}

fn later(from: Now, seconds: u64) -> Now {
    Now {
        wall: from.wall + seconds as Millis * 1_000,
        ticks: from.ticks + Duration::from_secs(seconds),
    }
}

fn signer(algorithm: Alg) -> EncodingKey {
    match algorithm {
        Alg::EdDSA => EncodingKey::from_ed_pem(ED25519.as_bytes()),
        Alg::ES256 => EncodingKey::from_ec_pem(P256.as_bytes()),
        Alg::HS256 => EncodingKey::from_secret(SECRET.as_bytes()),
        _ => EncodingKey::from_rsa_pem(RSA.as_bytes()),
    }
    .unwrap()
}

/// A token of any header and claims, signed by `key` with `algorithm`.
fn sign_with(header: &str, claims: &str, algorithm: Alg, key: &EncodingKey) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = crypto::sign(signed.as_bytes(), key, algorithm).unwrap();
    format!("{signed}.{signature}")
}

fn sign(header: &str, claims: &str, algorithm: Alg) -> String {
    sign_with(header, claims, algorithm, &signer(algorithm))
}

/// Claims that are good now.
fn good() -> Value {
    json!({
        "iss": "https://login.example.com/", "aud": "quita", "sub": "alice",
        "iat": NOW_S - 10, "exp": NOW_S + 600, "scope": "openid publish:mail-eu consume",
    })
}

/// Claims that are good but for some members; `null` takes one away.
fn but(changes: &Value) -> String {
    let mut claims = good();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims.to_string()
}

fn ed_token(claims: &str) -> String {
    sign(r#"{"alg":"EdDSA","typ":"JWT"}"#, claims, Alg::EdDSA)
}

fn jwk(algorithm: Alg, kid: &str) -> Value {
    let mut jwk =
        serde_json::to_value(Jwk::from_encoding_key(&signer(algorithm), algorithm).unwrap())
            .unwrap();
    jwk["kid"] = json!(kid);
    jwk["use"] = json!("sig");
    jwk
}

fn jwks(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

/// An issuer of the given algorithms, without keys.
fn issuer(algorithms: &[Algorithm]) -> IssuerSettings {
    let mut settings: IssuerSettings = serde_json::from_value(json!({
        "name": "login", "iss": "https://login.example.com/", "audience": ["other", "quita"],
        "algorithms": [], "ceiling": ["publish:mail-*", "read"],
    }))
    .unwrap();
    settings.algorithms = algorithms.to_vec();
    settings
}

/// Serves what the test says, and counts how often.
#[derive(Default)]
struct Served {
    document: Mutex<Option<Vec<u8>>>,
    asked: AtomicUsize,
}

impl Served {
    fn serve(&self, keys: &[Value]) {
        *self.document.lock() = Some(jwks(keys));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Fetch for Served {
    fn fetch(&self, url: &str) -> Result<Vec<u8>, FetchError> {
        assert_eq!(url, "https://login.example.com/keys");
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.document.lock().clone().ok_or(FetchError::Status(503))
    }
}

fn open(issuers: Vec<IssuerSettings>) -> Result<Tokens, String> {
    let fetch: Arc<dyn Fetch> = Arc::new(Served::default());
    let settings = JwtSettings {
        issuers,
        ..JwtSettings::default()
    };
    Tokens::open(&settings, &fetch, now()).map_err(|error| error.to_string())
}

/// One issuer with a JWK set in a file, which is gone afterwards.
fn with_keys(algorithms: &[Algorithm], keys: &[Value]) -> Tokens {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    std::fs::write(&path, jwks(keys)).unwrap();
    open(vec![IssuerSettings {
        jwks_file: Some(path),
        ..issuer(algorithms)
    }])
    .unwrap()
}

/// One issuer that signs with the Ed25519 key.
fn ed() -> Tokens {
    with_keys(&[Algorithm::EdDSA], &[jwk(Alg::EdDSA, "k1")])
}

async fn why(tokens: &Tokens, token: &str) -> Reason {
    let refused = tokens.authenticate(token.as_bytes(), now()).await;
    let reason = tokens.check(token.as_bytes(), now()).await.unwrap_err();
    let expected = if reason.is_unavailable() {
        Refused::Unavailable
    } else {
        Refused::Invalid
    };
    assert_eq!(refused.unwrap_err(), expected);
    reason
}

async fn takes(tokens: &Tokens, token: &str) -> Principal {
    match tokens.check(token.as_bytes(), now()).await {
        Ok(verified) => verified.principal,
        Err(reason) => panic!("{reason}"),
    }
}

#[tokio::test]
async fn a_good_token_makes_a_principal_cut_to_the_ceiling() {
    let tokens = ed();
    let text = ed_token(&good().to_string());
    let verified = tokens.check(text.as_bytes(), now()).await.unwrap();
    assert_eq!(&*verified.principal.id, "login:alice");
    assert_eq!(verified.principal.scopes.to_string(), "publish:mail-eu");
    assert_eq!(
        verified.principal.expires_at,
        Some((NOW_S as Millis + 630) * 1_000)
    );
    assert_eq!(
        (&*verified.issuer, verified.algorithm),
        ("login", Algorithm::EdDSA)
    );
    assert_eq!(verified.passed_over.len(), 1);
    assert_eq!(tokens.remembered(), 0);
}

#[tokio::test]
async fn every_algorithm_is_taken_from_its_own_key_alone() {
    let all = [
        (Alg::EdDSA, Algorithm::EdDSA),
        (Alg::ES256, Algorithm::ES256),
        (Alg::RS256, Algorithm::RS256),
        (Alg::PS256, Algorithm::PS256),
    ];
    for (made, algorithm) in all {
        let tokens = with_keys(&[algorithm], &[jwk(made, "k")]);
        for (other, named) in all {
            let text = sign(
                &format!("{{\"alg\":\"{named}\",\"kid\":\"k\"}}"),
                &good().to_string(),
                other,
            );
            assert_eq!(
                tokens.check(text.as_bytes(), now()).await.is_ok(),
                other == made,
                "{named} of {algorithm}"
            );
        }
    }
}

#[tokio::test]
async fn a_shared_secret_is_taken_where_it_is_the_only_key() {
    let settings = IssuerSettings {
        secret: Some(Secret::new(SECRET.into())),
        ..issuer(&[Algorithm::HS256])
    };
    let tokens = open(vec![settings]).unwrap();
    let header = r#"{"alg":"HS256","kid":"whatever"}"#;
    takes(&tokens, &sign(header, &good().to_string(), Alg::HS256)).await;
    let other = EncodingKey::from_secret(b"another secret of thirty-two bytes").unwrap();
    let forged = sign_with(header, &good().to_string(), Alg::HS256, &other);
    assert_eq!(why(&tokens, &forged).await, Reason::Signature);
}

#[tokio::test]
async fn a_good_token_is_remembered_until_it_ends() {
    let (tokens, start) = (ed(), now());
    let text = ed_token(&good().to_string());
    for seconds in [0, 1, 600, 629] {
        let who = tokens
            .authenticate(text.as_bytes(), later(start, seconds))
            .await
            .unwrap();
        assert_eq!((&*who.id, tokens.remembered()), ("login:alice", 1));
    }
    assert_eq!(
        tokens
            .authenticate(text.as_bytes(), later(start, 630))
            .await
            .unwrap_err(),
        Refused::Expired
    );
    assert_eq!(tokens.remembered(), 0);
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    let tokens = with_keys(&[Algorithm::EdDSA], &[jwk(Alg::EdDSA, "k1")]);
    for n in 0..MAX_REMEMBERED / 50 {
        let text = ed_token(&but(&json!({ "sub": format!("user {n}") })));
        tokens.authenticate(text.as_bytes(), now()).await.unwrap();
    }
    assert!(tokens.remembered() <= MAX_REMEMBERED && tokens.remembered() > 0);
}

#[tokio::test]
async fn scopes_come_as_a_list_or_a_text_and_may_carry_a_prefix() {
    let settings = IssuerSettings {
        scope_claim: "permissions".into(),
        scope_prefix: "quita:".into(),
        ceiling: vec!["publish".into(), "read".into()],
        pem_file: Some(
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/auth/jwt/tests/keys/ed25519.pub.pem"
            )
            .into(),
        ),
        ..issuer(&[Algorithm::EdDSA])
    };
    let tokens = open(vec![settings]).unwrap();
    let list = json!(["quita:publish:a", "read", "quita:discard", "other:read"]);
    for claim in [
        list,
        json!("quita:publish:a read quita:discard  other:read"),
    ] {
        let who = takes(&tokens, &ed_token(&but(&json!({ "permissions": claim })))).await;
        assert_eq!(who.scopes.to_string(), "publish:a");
    }
    let none = takes(&tokens, &ed_token(&good().to_string())).await;
    assert!(none.scopes.is_empty());
    for claim in [
        json!(1),
        json!({"a": 1}),
        json!(["quita:read", 1]),
        json!(true),
    ] {
        let reason = why(&tokens, &ed_token(&but(&json!({ "permissions": claim })))).await;
        assert!(matches!(reason, Reason::Type(..)));
    }
    let many = vec!["quita:read"; 65];
    let reason = why(&tokens, &ed_token(&but(&json!({ "permissions": many })))).await;
    assert_eq!(reason, Reason::Scopes(ScopeError::TooMany));
}

#[tokio::test]
async fn no_issuer_no_token() {
    let tokens = open(Vec::new()).unwrap();
    let reason = why(&tokens, &ed_token(&good().to_string())).await;
    assert_eq!(reason, Reason::Issuer("https://login.example.com/".into()));
}

/// A token that is good by the host's clock, and who takes it.
pub(in crate::auth) fn a_token_for_tests() -> (Tokens, String) {
    let exp = quita_storage::clock::wall() / 1_000 + 600;
    (
        ed(),
        ed_token(&but(&json!({ "iat": Value::Null, "exp": exp }))),
    )
}
