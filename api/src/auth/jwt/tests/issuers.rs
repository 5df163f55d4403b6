//! Settings and keys that are taken, and those that are not.

use super::*;
use crate::auth::jwt::fetch::{Place, check_url};
use std::path::{Path, PathBuf};

fn key_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/auth/jwt/tests/keys")
        .join(name)
}

fn with_pem(name: &str, algorithms: &[Algorithm]) -> Result<Tokens, String> {
    open(vec![IssuerSettings {
        pem_file: Some(key_file(name)),
        ..issuer(algorithms)
    }])
}

fn refused(settings: IssuerSettings) -> String {
    open(vec![settings]).map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_public_key_in_pem_serves_its_own_algorithms() {
    use Algorithm::{ES256, EdDSA, PS256, RS256};
    for (name, good, wrong) in [
        ("ed25519.pub.pem", vec![EdDSA], RS256),
        ("p256.pub.pem", vec![ES256], EdDSA),
        ("rsa.pub.pem", vec![RS256, PS256], ES256),
    ] {
        assert!(with_pem(name, &good).is_ok(), "{name}");
        assert!(
            with_pem(name, &[wrong]).is_err_and(|why| why.contains("not a key for")),
            "{name}"
        );
    }
    let tokens = with_pem("rsa.pub.pem", &[RS256]).unwrap();
    takes(
        &tokens,
        &sign(
            r#"{"alg":"RS256","kid":"any"}"#,
            &good().to_string(),
            Alg::RS256,
        ),
    )
    .await;
}

#[test]
fn other_pem_files_are_refused_with_the_reason() {
    for (name, why) in [
        ("rsa.pem", "private key"),
        ("ed25519.pem", "private key"),
        ("certificate.pem", "certificate"),
        ("rsa1024.pub.pem", "1024 bits"),
        ("secp256k1.pub.pem", "not a point of the curve"),
        ("README.md", "does not begin"),
        ("absent.pem", "No such file"),
    ] {
        let answer = with_pem(name, &[Algorithm::RS256]).map(|_| ()).unwrap_err();
        assert!(answer.contains(why), "{name}: {answer}");
    }
}

#[tokio::test]
async fn a_key_with_a_name_in_pem_is_asked_for_by_name() {
    let settings = IssuerSettings {
        pem_file: Some(key_file("ed25519.pub.pem")),
        kid: Some("k1".into()),
        ..issuer(&[Algorithm::EdDSA])
    };
    let tokens = open(vec![settings]).unwrap();
    takes(
        &tokens,
        &sign(
            r#"{"alg":"EdDSA","kid":"k1"}"#,
            &good().to_string(),
            Alg::EdDSA,
        ),
    )
    .await;
    takes(
        &tokens,
        &sign(r#"{"alg":"EdDSA"}"#, &good().to_string(), Alg::EdDSA),
    )
    .await;
    let other = sign(
        r#"{"alg":"EdDSA","kid":"k2"}"#,
        &good().to_string(),
        Alg::EdDSA,
    );
    assert_eq!(why(&tokens, &other).await, Reason::UnknownKey("k2".into()));
}

#[test]
fn an_issuer_has_one_source_of_keys_that_fits_its_algorithms() {
    let (url, ed) = (
        Some("https://login.example.com/keys".to_owned()),
        [Algorithm::EdDSA],
    );
    let secret = |text: &str| Some(Secret::new(text.into()));
    let mixed = [Algorithm::EdDSA, Algorithm::HS256];
    let cases = [
        (issuer(&ed), "exactly one"),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                jwks_file: Some("x".into()),
                ..issuer(&ed)
            },
            "exactly one",
        ),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                ..issuer(&mixed)
            },
            "HS256 needs a secret",
        ),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                ..issuer(&[Algorithm::HS256])
            },
            "HS256 needs a secret",
        ),
        (
            IssuerSettings {
                secret: secret(SECRET),
                ..issuer(&mixed)
            },
            "HS256 alone",
        ),
        (
            IssuerSettings {
                secret: secret(SECRET),
                ..issuer(&ed)
            },
            "HS256 alone",
        ),
        (
            IssuerSettings {
                secret: secret("short"),
                ..issuer(&[Algorithm::HS256])
            },
            "shorter than 32",
        ),
        (
            IssuerSettings {
                secret: secret(SECRET),
                kid: Some("k".into()),
                ..issuer(&[Algorithm::HS256])
            },
            "kid",
        ),
        (
            IssuerSettings {
                jwks_url: Some("http://login.example.com/".into()),
                ..issuer(&ed)
            },
            "https",
        ),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                ..issuer(&[])
            },
            "algorithms",
        ),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                name: "Log in".into(),
                ..issuer(&ed)
            },
            "name",
        ),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                audience: Vec::new(),
                ..issuer(&ed)
            },
            "audience",
        ),
        (
            IssuerSettings {
                jwks_url: url.clone(),
                ceiling: vec!["publsh".into()],
                ..issuer(&ed)
            },
            "ceiling: scope 1",
        ),
        (
            IssuerSettings {
                jwks_file: Some("/nowhere.json".into()),
                ..issuer(&ed)
            },
            "No such file",
        ),
        (
            IssuerSettings {
                jwks_file: Some(key_file("README.md")),
                ..issuer(&ed)
            },
            "not a JWK set",
        ),
    ];
    for (settings, expected) in cases {
        let why = refused(settings);
        assert!(why.contains(expected), "{why}");
    }
    let one = IssuerSettings {
        jwks_url: url,
        ..issuer(&ed)
    };
    let alike = IssuerSettings {
        name: "other".into(),
        ..one.clone()
    };
    assert!(open(vec![one, alike]).is_err());
}

#[tokio::test]
async fn a_secret_may_lie_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), format!("{SECRET}\n")).unwrap();
    let settings = JwtSettings {
        issuers: vec![IssuerSettings {
            secret_file: Some("secret".into()),
            ..issuer(&[Algorithm::HS256])
        }],
        folder: folder.path().to_owned(),
    };
    let fetch: Arc<dyn Fetch> = Arc::new(Served::default());
    let tokens = Tokens::open(&settings, &fetch, now()).unwrap();
    takes(
        &tokens,
        &sign(r#"{"alg":"HS256"}"#, &good().to_string(), Alg::HS256),
    )
    .await;
}

#[test]
fn keys_are_fetched_by_https_or_from_this_machine() {
    for (url, place) in [
        ("https://login.example.com/keys", Place::Outside),
        ("https://127.0.0.1/keys", Place::Loopback),
        ("http://localhost:8080/keys", Place::Loopback),
        ("http://127.9.9.9/keys", Place::Loopback),
        ("http://[::1]:8080/keys", Place::Loopback),
    ] {
        assert_eq!(check_url(url), Ok(place), "{url}");
    }
    for url in [
        "http://login.example.com/",
        "http://localhost.evil.example/",
        "ftp://localhost/",
        "file:///etc/passwd",
        "/keys",
        "",
        "https://me@login.example.com/",
    ] {
        assert!(check_url(url).is_err(), "{url}");
    }
}
