//! Claims that are wrong in one point each.

use super::*;
use proptest::prelude::*;

async fn claim(name: &str, value: &str) -> Result<Verified, Reason> {
    let mut claims = good();
    claims.as_object_mut().unwrap().remove(name);
    let rest = claims.to_string();
    let text = ed_token(&format!("{{\"{name}\":{value},{}", &rest[1..]));
    ed().check(text.as_bytes(), now()).await
}

async fn without(name: &str) -> Reason {
    let mut change = json!({});
    change[name] = Value::Null;
    why(&ed(), &ed_token(&but(&change))).await
}

#[tokio::test]
async fn what_is_required_must_be_there() {
    for name in ["exp", "sub", "aud", "iss"] {
        assert_eq!(without(name).await, Reason::Missing(name.into()));
    }
    let mut change = json!({ "iat": Value::Null, "scope": Value::Null });
    assert!(
        ed().check(ed_token(&but(&change)).as_bytes(), now())
            .await
            .is_ok()
    );
    change["sub"] = json!("");
    assert_eq!(
        why(&ed(), &ed_token(&but(&change))).await,
        Reason::Missing("sub".into())
    );
}

#[tokio::test]
async fn the_end_is_a_whole_number_of_seconds_that_has_not_come() {
    for value in [
        "\"9999999999\"",
        "1790000600.0",
        "1.79e9",
        "-1",
        "18446744073709551616",
        "null",
        "[]",
    ] {
        assert!(
            matches!(claim("exp", value).await, Err(Reason::Type(..))),
            "{value}"
        );
    }
    for (seconds_ago, good) in [
        (0, true),
        (29, true),
        (30, false),
        (31, false),
        (NOW_S, false),
    ] {
        let answer = claim("exp", &(NOW_S - seconds_ago).to_string()).await;
        assert_eq!(
            answer.err(),
            (!good).then_some(Reason::Expired(seconds_ago))
        );
    }
}

#[tokio::test]
async fn the_beginning_and_the_making_are_not_in_the_future() {
    for (ahead, good) in [(0, true), (30, true), (31, false)] {
        let at = (NOW_S + ahead).to_string();
        assert_eq!(
            claim("nbf", &at).await.err(),
            (!good).then_some(Reason::NotYet(ahead))
        );
        assert_eq!(
            claim("iat", &at).await.err(),
            (!good).then_some(Reason::IssuedLater(ahead))
        );
    }
    for name in ["nbf", "iat"] {
        for value in [
            "\"1790000000\"",
            "1790000000.5",
            "-5",
            "null",
            "18446744073709551616",
        ] {
            assert!(
                matches!(claim(name, value).await, Err(Reason::Type(..))),
                "{name} {value}"
            );
        }
        assert!(claim(name, &u64::MAX.to_string()).await.is_err());
    }
}

#[tokio::test]
async fn a_life_is_a_day_at_most() {
    for (iat, exp, good) in [
        (Some(NOW_S), NOW_S + 86_400, true),
        (Some(NOW_S), NOW_S + 86_401, false),
        (Some(NOW_S - 86_000), NOW_S + 401, false),
        (Some(0), NOW_S + 1, false),
        (None, NOW_S + 86_400, true),
        (None, NOW_S + 86_401, false),
        (None, u64::MAX, false),
    ] {
        let text = ed_token(&but(&json!({ "iat": iat, "exp": exp })));
        let answer = ed().check(text.as_bytes(), now()).await;
        assert_eq!(answer.is_ok(), good, "{iat:?} {exp}");
        assert!(good || matches!(answer, Err(Reason::Life(_))));
    }
}

#[tokio::test]
async fn one_audience_must_be_ours_exactly() {
    for value in ["\"quita\"", "[\"x\",\"quita\"]", "[\"other\"]"] {
        assert!(claim("aud", value).await.is_ok(), "{value}");
    }
    for value in [
        "\"Quita\"",
        "\"quita \"",
        "\"\"",
        "[]",
        "[\"x\"]",
        "\"x quita\"",
    ] {
        assert_eq!(
            claim("aud", value).await.err(),
            Some(Reason::Audience),
            "{value}"
        );
    }
    for value in [
        "{\"quita\":1}",
        "1",
        "null",
        "[\"quita\",1]",
        "[[\"quita\"]]",
    ] {
        assert!(
            matches!(claim("aud", value).await, Err(Reason::Type(..))),
            "{value}"
        );
    }
}

#[tokio::test]
async fn the_issuer_is_compared_exactly() {
    for value in [
        "https://login.example.com",
        "https://LOGIN.example.com/",
        "http://login.example.com/",
        "https://login.example.com//",
    ] {
        let answer = claim("iss", &format!("\"{value}\"")).await;
        assert_eq!(answer.err(), Some(Reason::Issuer(value.into())));
    }
    for value in ["[\"https://login.example.com/\"]", "1", "null"] {
        assert!(
            matches!(claim("iss", value).await, Err(Reason::Type(..))),
            "{value}"
        );
    }
}

#[tokio::test]
async fn names_are_strings_of_bounded_length() {
    for value in ["1", "null", "[\"a\"]", "{\"a\":1}", "true"] {
        for name in ["sub", "jti"] {
            assert!(
                matches!(claim(name, value).await, Err(Reason::Type(..))),
                "{name} {value}"
            );
        }
    }
    assert_eq!(
        claim("sub", &format!("\"{}\"", "s".repeat(256)))
            .await
            .err(),
        Some(Reason::Subject(256))
    );
    assert!(
        claim("sub", &format!("\"{}\"", "s".repeat(255)))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn an_access_token_may_be_required() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    std::fs::write(&path, ED25519_PUBLIC).unwrap();
    let settings = IssuerSettings {
        pem_file: Some(path),
        only_access_tokens: true,
        ..issuer(&[Algorithm::EdDSA])
    };
    let tokens = open(vec![settings]).unwrap();
    takes(
        &tokens,
        &sign(
            r#"{"alg":"EdDSA","typ":"at+jwt"}"#,
            &good().to_string(),
            Alg::EdDSA,
        ),
    )
    .await;
    for header in [r#"{"alg":"EdDSA","typ":"JWT"}"#, r#"{"alg":"EdDSA"}"#] {
        let reason = why(&tokens, &sign(header, &good().to_string(), Alg::EdDSA)).await;
        assert!(matches!(reason, Reason::Kind(..) | Reason::Missing(_)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn times_are_judged_as_the_rule_says(
        exp in NOW_S - 100..NOW_S + 90_000,
        nbf in prop::option::of(NOW_S - 100..NOW_S + 100),
        iat in prop::option::of(NOW_S - 90_000..NOW_S + 100),
    ) {
        let text = ed_token(&but(&json!({ "exp": exp, "nbf": nbf, "iat": iat })));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let taken = runtime.block_on(ed().check(text.as_bytes(), now())).is_ok();
        let good = NOW_S < exp + 30
            && nbf.is_none_or(|nbf| nbf <= NOW_S + 30)
            && iat.is_none_or(|iat| iat <= NOW_S + 30)
            && exp.saturating_sub(iat.unwrap_or(NOW_S)) <= 86_400;
        prop_assert_eq!(taken, good);
    }
}
