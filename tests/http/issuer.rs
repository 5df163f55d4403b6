//! Issuers of tokens for the tests, and tokens of theirs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto, encode};
use quita_storage::clock;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What the first issuer signs with.
pub(crate) const SECRET: &str = "a secret of at least thirty-two bytes";

/// Keys of the second issuer, which guard nothing.
const RSA: &str = include_str!("../../api/src/auth/jwt/tests/keys/rsa.pem");
const P256: &str = include_str!("../../api/src/auth/jwt/tests/keys/p256.pem");
/// The public half of the first one.
pub(crate) const RSA_PUBLIC: &str = include_str!("../../api/src/auth/jwt/tests/keys/rsa.pub.pem");
/// A secret that stands in the key set of the second issuer by mistake.
pub(crate) const STRAY: &str = "a secret among keys that are public";

/// One issuer that signs with a secret, one with keys in a file (`corp`), and in a file of its own one whose keys nobody
/// serves.
pub(crate) fn issuers(folder: &Path) -> PathBuf {
    issuers_with(folder, SECRET)
}

/// The same with another secret.
pub(crate) fn issuers_with(folder: &Path, secret: &str) -> PathBuf {
    let one = |name: &str, rest: &str| {
        format!(
            "[[issuer]]\nname = '{name}'\niss = 'https://{name}/'\naudience = ['quita']\n{rest}\nceiling = ['publish:mail-*', 'consume:mail-*', 'read:mail-*', 'manage:mail-*']\n"
        )
    };
    let path = folder.join("issuers.toml");
    let text = one(
        "login",
        &format!("algorithms = ['HS256']\nsecret = '{secret}'"),
    );
    let corp = one(
        "corp",
        "algorithms = ['RS256', 'ES256']\njwks_file = 'corp.json'",
    );
    std::fs::write(&path, text + &corp).unwrap();
    std::fs::write(folder.join("corp.json"), corp_keys().to_string()).unwrap();
    let down = one(
        "down",
        "algorithms = ['RS256']\njwks_url = 'http://127.0.0.1:1/keys'",
    );
    std::fs::write(folder.join("down.toml"), down).unwrap();
    path
}

/// Now, as tokens say it.
pub(crate) fn now_s() -> i64 {
    clock::wall() / 1_000
}

/// Claims that are good now.
pub(crate) fn good() -> Value {
    json!({"iss": "https://login/", "aud": "quita", "sub": "alice", "exp": now_s() + 600, "scope": "publish manage consume:mail-eu redrive"})
}

/// The same with one other claim.
pub(crate) fn but(name: &str, value: Value) -> Value {
    let mut claims = good();
    claims[name] = value;
    claims
}

/// A token of these claims.
pub(crate) fn sign(claims: &Value, secret: &str) -> String {
    encode(
        &Header::default(),
        claims,
        &EncodingKey::from_secret(secret.as_bytes()).unwrap(),
    )
    .unwrap()
}

/// Keys of `corp`: two that sign, one for encryption, and a secret that should not be there.
fn corp_keys() -> Value {
    let mut encrypts = public(Algorithm::RS256, "encrypts");
    encrypts["use"] = json!("enc");
    let stray = json!({"kty": "oct", "kid": "stray", "alg": "HS256", "k": part(STRAY)});
    json!({"keys": [public(Algorithm::RS256, "rsa"), public(Algorithm::ES256, "ec"), encrypts, stray]})
}

fn signer(algorithm: Algorithm) -> EncodingKey {
    match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_pem(P256.as_bytes()),
        _ => EncodingKey::from_rsa_pem(RSA.as_bytes()),
    }
    .unwrap()
}

/// A public key as a key set has it.
pub(crate) fn public(algorithm: Algorithm, kid: &str) -> Value {
    let jwk = Jwk::from_encoding_key(&signer(algorithm), algorithm).unwrap();
    let mut jwk = serde_json::to_value(jwk).unwrap();
    jwk["kid"] = json!(kid);
    jwk["use"] = json!("sig");
    jwk
}

/// One part of a token.
pub(crate) fn part(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// A token of these texts, whatever they say, signed with a secret.
pub(crate) fn sign_raw(header: &str, claims: &str, secret: &[u8]) -> String {
    let text = format!("{}.{}", part(header), part(claims));
    let key = EncodingKey::from_secret(secret);
    let signature = crypto::sign(text.as_bytes(), &key.unwrap(), Algorithm::HS256);
    format!("{text}.{}", signature.unwrap())
}

/// A token of `corp` with these claims.
pub(crate) fn sign_corp(algorithm: Algorithm, kid: &str, claims: &Value) -> String {
    let mut header = Header::new(algorithm);
    header.kid = Some(kid.to_owned());
    encode(&header, claims, &signer(algorithm)).unwrap()
}
