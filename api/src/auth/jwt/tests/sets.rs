//! Which key of a set is taken, and which are in none.

use super::*;
use crate::auth::jwt::keys::KeySet;

#[tokio::test]
async fn a_token_without_a_key_id_needs_a_single_fitting_key() {
    let (ed, ec) = (jwk(Alg::EdDSA, "a"), jwk(Alg::ES256, "b"));
    let mut second = ed.clone();
    second["kid"] = json!("c");
    let text = ed_token(&good().to_string());
    let algorithms = [Algorithm::EdDSA, Algorithm::ES256];
    takes(&with_keys(&algorithms, &[ed.clone(), ec.clone()]), &text).await;
    let two = with_keys(&algorithms, &[ed, second]);
    assert_eq!(why(&two, &text).await, Reason::NoKeyId(2));
    assert_eq!(
        why(&with_keys(&algorithms, &[ec]), &text).await,
        Reason::NoKeyId(0)
    );
}

#[tokio::test]
async fn a_key_of_a_set_must_be_made_for_this() {
    // The library would take the first 32 bytes.
    let x = jwk(Alg::EdDSA, "a")["x"].as_str().unwrap().to_owned();
    let long = [URL_SAFE_NO_PAD.decode(x).unwrap(), vec![0]].concat();
    let changes = [
        ("x", json!(URL_SAFE_NO_PAD.encode(long))),
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("RS256")),
        ("alg", json!("HS256")),
        ("alg", json!("none")),
        ("crv", json!("X25519")),
        ("crv", json!("P-256")),
        ("kty", json!("EC")),
        ("kty", json!("oct")),
        ("kty", json!("AKP")),
        ("d", json!("AAAA")),
        ("x", json!("AAAA")),
        ("x", json!("not base64!")),
    ];
    let text = sign(
        r#"{"alg":"EdDSA","kid":"a"}"#,
        &good().to_string(),
        Alg::EdDSA,
    );
    for (member, value) in changes {
        let mut key = jwk(Alg::EdDSA, "a");
        key[member] = value;
        let tokens = with_keys(&[Algorithm::EdDSA], &[key.clone(), jwk(Alg::ES256, "b")]);
        assert!(
            matches!(why(&tokens, &text).await, Reason::KeyUnfit { .. }),
            "{key}"
        );
    }
    let mut key = jwk(Alg::EdDSA, "a");
    key["key_ops"] = json!(["verify"]);
    key["alg"] = json!("Ed25519");
    key["x5c"] = json!(["ignored"]);
    takes(&with_keys(&[Algorithm::EdDSA], &[key]), &text).await;
}

#[test]
fn weak_and_wrong_keys_are_not_in_the_set() {
    let mut rsa = jwk(Alg::RS256, "a");
    let n = URL_SAFE_NO_PAD.decode(rsa["n"].as_str().unwrap()).unwrap();
    let set = |key: &Value| KeySet::from_jwks(&jwks(std::slice::from_ref(key)));
    assert!(set(&rsa).is_ok());
    let zeros = [&[0; 2][..], &n].concat();
    rsa["n"] = json!(URL_SAFE_NO_PAD.encode(zeros));
    assert!(set(&rsa).is_ok());
    let (short, long, even) = (&n[1..], n.repeat(5), [&n[..255], &[2]].concat());
    for n in [&[][..], &[0, 0], short, &long, &even] {
        rsa["n"] = json!(URL_SAFE_NO_PAD.encode(n));
        assert!(set(&rsa).is_err(), "{} bytes", n.len());
    }
    rsa["n"] = json!(URL_SAFE_NO_PAD.encode(&n));
    for e in [
        &[][..],
        &[1],
        &[3],
        &[1, 0, 0],
        &[0xff; 9],
        &[2, 0, 0, 0, 1],
    ] {
        rsa["e"] = json!(URL_SAFE_NO_PAD.encode(e));
        assert!(set(&rsa).is_err(), "{e:?}");
    }
    let mut ec = jwk(Alg::ES256, "a");
    ec["x"] = ec["y"].clone();
    assert!(set(&ec).is_err());
}

#[test]
fn a_set_with_one_name_for_two_keys_is_refused() {
    let (one, mut other) = (jwk(Alg::EdDSA, "a"), jwk(Alg::ES256, "a"));
    assert!(KeySet::from_jwks(&jwks(&[one.clone(), one.clone()])).is_err());
    // RFC 7517 §4.5 lets two types share a name: the token's algorithm tells them apart.
    assert!(KeySet::from_jwks(&jwks(&[one.clone(), other.clone()])).is_ok());
    other["kid"] = json!("b");
    assert_eq!(
        KeySet::from_jwks(&jwks(&[one, other, json!({"kty":"oct"}), json!(7)]))
            .unwrap()
            .len(),
        2
    );
}
