//! D: credentials that are not good, as rows.

use crate::issuer::{RSA_PUBLIC, SECRET, but, good, now_s, part, public, sign, sign_raw};
use jsonwebtoken::Algorithm;
use quita_api::auth::ApiKey;
use serde_json::json;

pub(super) const MISSING: &str = "missing_credentials";
const SCHEME: &str = "unsupported_scheme";
const KEY: &str = "invalid_key";
pub(super) const TOKEN: &str = "invalid_token";

/// What is sent for `Authorization`, by the row that it is about, and the code that it gets.
pub(super) type Rows = Vec<(&'static str, String, &'static str)>;

/// Keys: none, other schemes, and keys that are wrong in every way. `made` are known to the store and not good.
pub(super) fn key_rows(made: &[String]) -> Rows {
    let good = ApiKey::generate().unwrap().reveal().to_owned();
    let (body, sum) = good.split_at(60);
    let other = ApiKey::generate().unwrap();
    let stranger = format!("qta_{}_{}", other.id(), &good[17..]);
    let mut rows: Rows = vec![
        ("D1", String::new(), MISSING),
        ("D1", " ".into(), MISSING),
        ("D1", "Bearer".into(), MISSING),
        ("D1", "Bearer   ".into(), MISSING),
        ("D1", "Basic dTpw".into(), SCHEME),
        ("D1", "Digest username=\"u\"".into(), SCHEME),
        ("D1", format!("Token {good}"), SCHEME),
        ("D1", format!("Bearer{good}"), SCHEME),
        ("D1", good.clone(), SCHEME),
        ("D4", format!("Bearer {body}000000"), KEY),
        ("D4", format!("Bearer {good}"), KEY),
        ("D4", format!("Bearer {stranger}"), KEY),
        ("D4", format!("Bearer {}", good.to_uppercase()), KEY),
        ("D4", format!("Bearer {good} {good}"), KEY),
        ("D4", format!("Bearer \"{good}\""), KEY),
        ("D4", format!("Bearer {sum}"), KEY),
        ("D5", format!("Bearer qta_{}", "k".repeat(40_000)), KEY),
        ("D5", "Bearer qta_ключ".into(), KEY),
        ("D5", "Bearer ' OR 1=1 --".into(), KEY),
    ];
    rows.extend(made.iter().map(|key| ("D4", format!("Bearer {key}"), KEY)));
    rows
}

/// Tokens that are wrong in every way. Every one of the same claims would be good with the secret of its issuer.
pub(super) fn token_rows() -> Rows {
    let claims = good().to_string();
    let signed = sign(&good(), SECRET);
    let parts: Vec<&str> = signed.split('.').collect();
    let (header, middle, signature) = (parts[0], parts[1], parts[2]);
    let mut tokens: Vec<(&'static str, String)> = Vec::new();
    for alg in ["none", "None", "nOnE", "NONE", "HS384", "hs256", ""] {
        let header = part(format!("{{\"alg\":\"{alg}\"}}"));
        tokens.push(("D7", format!("{header}.{middle}.")));
        tokens.push(("D7", format!("{header}.{middle}.{signature}")));
    }
    tokens.push(("D7", format!("{header}.{middle}.")));
    let of_corp = but("iss", json!("https://corp/"));
    let jwk = public(Algorithm::RS256, "rsa").to_string();
    for secret in [RSA_PUBLIC, RSA_PUBLIC.trim(), &jwk] {
        for kid in ["rsa", "ec", "stray"] {
            let header = format!("{{\"alg\":\"HS256\",\"kid\":\"{kid}\"}}");
            let token = sign_raw(&header, &of_corp.to_string(), secret.as_bytes());
            tokens.push(("D8", token));
        }
    }
    let es256 = part(r#"{"alg":"ES256","kid":"ec"}"#);
    let corp_claims = part(of_corp.to_string());
    let der = [
        &[0x30, 0x44, 0x02, 0x20][..],
        &[1; 32],
        &[0x02, 0x20],
        &[1; 32],
    ]
    .concat();
    for signature in [&[0; 64][..], &[0; 63], &[0; 65], &[1; 64], &der] {
        let token = format!("{es256}.{corp_claims}.{}", part(signature));
        tokens.push(("D10", token));
    }
    let long = "k".repeat(10 << 10);
    for kid in [
        json!("nobody"),
        json!("../../dev/null"),
        json!("' UNION SELECT 'a"),
        json!(long),
        json!("a\0b"),
        json!(7),
        json!(null),
        json!({}),
    ] {
        let header = json!({"alg": "RS256", "kid": kid}).to_string();
        let token = sign_raw(&header, &of_corp.to_string(), SECRET.as_bytes());
        tokens.push(("D12", token));
    }
    tokens.extend(claim_rows().into_iter().map(|(row, claims)| {
        let token = sign_raw(r#"{"alg":"HS256"}"#, &claims, SECRET.as_bytes());
        (row, token)
    }));
    for typ in ["id_token", "secevent+jwt", "JOSE", ""] {
        let header = format!("{{\"alg\":\"HS256\",\"typ\":\"{typ}\"}}");
        tokens.push(("D20", sign_raw(&header, &claims, SECRET.as_bytes())));
    }
    let nested = format!("{}1{}", "[".repeat(1_000), "]".repeat(1_000));
    for token in [
        format!("{header}.{middle}"),
        format!("{signed}.x"),
        format!("{header}..{signature}"),
        format!(".{middle}.{signature}"),
        "..".into(),
        format!("{header}. {middle}.{signature}"),
        format!("{signed}="),
        format!("{header}=.{middle}.{signature}"),
        format!("{header}.{middle}.{}+/", &signature[..signature.len() - 2]),
        // Five parts: an encrypted one.
        format!("{}.a.b.c.d", part(r#"{"alg":"dir","enc":"A256GCM"}"#)),
        // A token inside a token.
        sign_raw(r#"{"alg":"HS256","cty":"JWT"}"#, &signed, SECRET.as_bytes()),
        sign_raw(r#"{"alg":"HS256"}"#, &signed, SECRET.as_bytes()),
        // The JSON form.
        json!({"protected": header, "payload": "a.b", "signature": signature}).to_string(),
    ] {
        tokens.push(("D21", token));
    }
    for claims in [
        format!("{{\"a\":{nested},{}", &claims[1..]),
        format!("{{\"a\":\"{}\",{}", "x".repeat(12_000), &claims[1..]),
    ] {
        let token = sign_raw(r#"{"alg":"HS256"}"#, &claims, SECRET.as_bytes());
        tokens.push(("D23", token));
    }
    let bearer = |(row, token): (_, String)| (row, format!("Bearer {token}"), TOKEN);
    tokens.into_iter().map(bearer).collect()
}

/// Claims that are wrong, as texts: a parser for values would not make all of them.
fn claim_rows() -> Vec<(&'static str, String)> {
    let text = good().to_string();
    let without = |name: &str| {
        let mut claims = good();
        claims.as_object_mut().unwrap().remove(name);
        claims.to_string()
    };
    let exp = format!("\"exp\":{}", good()["exp"]);
    assert!(text.contains(&exp));
    let end = |value: &str| text.replace(&exp, &format!("\"exp\":{value}"));
    let mut rows = vec![
        ("D14", end(&(now_s() - 100).to_string())),
        ("D14", without("exp")),
    ];
    for value in [
        "\"9999999999\"",
        "9999999999.5",
        "-1",
        "18446744073709551616",
        "1e400",
        "null",
        "[9999999999]",
        "true",
    ] {
        rows.push(("D14", end(value)));
    }
    rows.push(("D14", text.replace(&exp, &format!("{exp},{exp}"))));
    rows.push(("D16", but("iat", json!(now_s() + 120)).to_string()));
    rows.push(("D16", but("exp", json!(now_s() + 100_000)).to_string()));
    rows.push(("D16", but("nbf", json!(now_s() + 120)).to_string()));
    rows.push(("D17", without("aud")));
    for aud in [
        json!("others"),
        json!(["others"]),
        json!([]),
        json!({"a": "quita"}),
        json!("QUITA"),
        json!(""),
        json!(7),
    ] {
        rows.push(("D17", but("aud", aud).to_string()));
    }
    rows.push(("D18", without("iss")));
    for iss in [
        "https://elsewhere/",
        "https://login",
        "https://login//",
        "https://LOGIN/",
        "http://login/",
        "",
    ] {
        rows.push(("D18", but("iss", json!(iss)).to_string()));
    }
    rows.push(("D19", without("sub")));
    for sub in [json!(""), json!(7), json!(null), json!("s".repeat(300))] {
        rows.push(("D19", but("sub", sub).to_string()));
    }
    rows
}

/// The last characters of a key, which anybody can work out: CRC-32 in base 62.
pub(super) fn with_checksum(body: &str) -> String {
    const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut crc = u32::MAX;
    for byte in body.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let (mut rest, mut sum) = (!crc, [0u8; 6]);
    for digit in sum.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    format!("{body}{}", std::str::from_utf8(&sum).unwrap())
}
