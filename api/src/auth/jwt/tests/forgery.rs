//! Signatures that are not the issuer's.

use super::*;
use proptest::prelude::*;

fn both() -> Tokens {
    with_keys(
        &[Algorithm::EdDSA, Algorithm::ES256, Algorithm::RS256],
        &[
            jwk(Alg::EdDSA, "ed"),
            jwk(Alg::ES256, "ec"),
            jwk(Alg::RS256, "rsa"),
        ],
    )
}

fn unsigned(header: &str, claims: &str, signature: &[u8]) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    format!(
        "{}.{}.{}",
        encode(header.as_bytes()),
        encode(claims.as_bytes()),
        encode(signature)
    )
}

#[tokio::test]
async fn no_signature_is_none() {
    for alg in ["none", "None", "nOnE", "NONE"] {
        for signature in [&b""[..], b"x"] {
            let text = unsigned(
                &format!("{{\"alg\":\"{alg}\"}}"),
                &good().to_string(),
                signature,
            );
            why(&both(), &text).await;
        }
    }
    let text = unsigned(r#"{"alg":"EdDSA","kid":"ed"}"#, &good().to_string(), b"");
    assert_eq!(why(&both(), &text).await, Reason::Base64("signature"));
}

#[tokio::test]
async fn a_public_key_is_no_secret() {
    let claims = good().to_string();
    let (pem, document) = (
        RSA_PUBLIC.as_bytes().to_vec(),
        jwk(Alg::RS256, "rsa").to_string().into_bytes(),
    );
    for secret in [pem, document, RSA_PUBLIC.trim().as_bytes().to_vec()] {
        let key = EncodingKey::from_secret(&secret).unwrap();
        for kid in ["rsa", "ec", "ed"] {
            let text = sign_with(
                &format!("{{\"alg\":\"HS256\",\"kid\":\"{kid}\"}}"),
                &claims,
                Alg::HS256,
                &key,
            );
            assert!(matches!(
                why(&both(), &text).await,
                Reason::Algorithm { .. }
            ));
        }
    }
}

#[tokio::test]
async fn a_key_signs_with_its_own_algorithm_only() {
    let claims = good().to_string();
    for (header, algorithm) in [
        (r#"{"alg":"ES256","kid":"ed"}"#, Alg::ES256),
        (r#"{"alg":"RS256","kid":"ed"}"#, Alg::RS256),
        (r#"{"alg":"EdDSA","kid":"rsa"}"#, Alg::EdDSA),
    ] {
        assert!(matches!(
            why(&both(), &sign(header, &claims, algorithm)).await,
            Reason::KeyUnfit { .. }
        ));
    }
    // The key says RS256, so PS256 of it is refused even where the issuer may use it.
    let tokens = with_keys(
        &[Algorithm::RS256, Algorithm::PS256],
        &[jwk(Alg::RS256, "rsa")],
    );
    let reason = why(
        &tokens,
        &sign(r#"{"alg":"PS256","kid":"rsa"}"#, &claims, Alg::PS256),
    )
    .await;
    assert!(matches!(reason, Reason::KeyUnfit { .. }));
}

#[tokio::test]
async fn signatures_of_a_wrong_form_are_refused() {
    let header = r#"{"alg":"ES256","kid":"ec"}"#;
    let claims = good().to_string();
    let text = sign(header, &claims, Alg::ES256);
    takes(&both(), &text).await;
    let raw = URL_SAFE_NO_PAD
        .decode(text.rsplit('.').next().unwrap())
        .unwrap();
    let mut der = vec![0x30, 70, 2, 33, 0];
    der.extend(&raw[..32]);
    der.extend([2, 33, 0]);
    der.extend(&raw[32..]);
    let long = [&raw[..], &[0]].concat();
    for signature in [&[0; 64][..], &[0xff; 64], &raw[..63], &long, &der, &[0]] {
        assert_eq!(
            why(&both(), &unsigned(header, &claims, signature)).await,
            Reason::Signature
        );
    }
}

#[tokio::test]
async fn headers_that_bring_keys_are_refused_with_a_good_signature_too() {
    let own = jwk(Alg::EdDSA, "ed");
    for member in [
        format!("\"jwk\":{own}"),
        "\"jku\":\"https://evil.example/keys\"".to_owned(),
        "\"x5u\":\"https://evil.example/cert\"".to_owned(),
        "\"x5c\":[\"MIIB\"]".to_owned(),
        "\"crit\":[\"exp\"],\"exp\":1".to_owned(),
    ] {
        let text = sign(
            &format!("{{\"alg\":\"EdDSA\",\"kid\":\"ed\",{member}}}"),
            &good().to_string(),
            Alg::EdDSA,
        );
        assert!(
            matches!(why(&both(), &text).await, Reason::Header(..)),
            "{member}"
        );
    }
}

#[tokio::test]
async fn two_meanings_in_one_token_are_refused() {
    let twice = good().to_string().replacen('{', "{\"sub\":\"root\",", 1);
    assert!(matches!(
        why(
            &both(),
            &sign(r#"{"alg":"EdDSA","kid":"ed"}"#, &twice, Alg::EdDSA)
        )
        .await,
        Reason::Json(Part::Claims, _)
    ));
    let header = r#"{"alg":"EdDSA","kid":"ed","kid":"ec"}"#;
    assert!(matches!(
        why(&both(), &sign(header, &good().to_string(), Alg::EdDSA)).await,
        Reason::Json(Part::Header, _)
    ));
}

#[tokio::test]
async fn reasons_carry_no_raw_text_of_a_token() {
    let evil = "\u{1b}[2J\nx".repeat(50);
    for claims in [but(&json!({ "iss": evil })), but(&json!({ "sub": evil }))] {
        let header = json!({ "alg": "EdDSA", "kid": evil.get(..200) }).to_string();
        let message = why(&both(), &sign(&header, &claims, Alg::EdDSA))
            .await
            .to_string();
        assert!(
            message.len() < 600 && message.bytes().all(|b| (b' '..0x7f).contains(&b)),
            "{message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_token_with_one_changed_byte_is_refused(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_.=~ -]") {
        let text = ed_token(&good().to_string());
        let at = at.index(text.len());
        let mut changed = text.clone();
        changed.replace_range(at..=at, &to);
        prop_assume!(changed != text);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert!(runtime.block_on(ed().check(changed.as_bytes(), now())).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert!(runtime.block_on(ed().authenticate(&bytes, now())).is_err());
    }
}
