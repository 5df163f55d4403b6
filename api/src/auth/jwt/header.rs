//! What the header of a token may say.
//!
//! It says which key was used and how, and nothing else. A header that brings a key (`jwk`, `x5c`) or says where one lies
//! (`jku`, `x5u`) is refused and not just ignored: keys come from the settings alone, so such a token was made for a
//! verifier that works otherwise, or by somebody who hopes for one, and the operator should see it.

use super::algorithm::Algorithm;
use super::reason::Reason;
use super::shown;
use super::strict::Members;

/// Longest id of a key in bytes.
const MAX_KID: usize = 256;

const FORBIDDEN: [(&str, &str); 8] = [
    ("crit", "no extension is understood (RFC 7515 §4.1.11)"),
    ("b64", "the claims are always base64url"),
    ("jku", "keys come from the settings alone"),
    ("jwk", "keys come from the settings alone"),
    ("x5u", "keys come from the settings alone"),
    ("x5c", "keys come from the settings alone"),
    ("cty", "a token inside a token is not taken"),
    ("zip", "the claims are never compressed"),
];

/// What a token says about its signature.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<Box<str>>,
}

impl Header {
    /// `only_access` refuses what does not say that it is an access token (RFC 9068).
    pub(super) fn read(members: &Members, only_access: bool) -> Result<Self, Reason> {
        for (name, why) in FORBIDDEN {
            if members.has(name) {
                return Err(Reason::Header(name, why));
            }
        }
        let name = members.required_text("alg")?;
        let algorithm =
            Algorithm::named(name).ok_or_else(|| Reason::UnknownAlgorithm(shown(name)))?;
        check_kind(members.text("typ")?, only_access)?;
        let kid = members.text("kid")?;
        if kid.is_some_and(|kid| kid.is_empty() || kid.len() > MAX_KID) {
            return Err(Reason::Type("kid".into(), "1 to 256 bytes"));
        }
        Ok(Self {
            algorithm,
            kid: kid.map(Into::into),
        })
    }
}

/// Media types are compared without case, and `application/` may be left out (RFC 7515 §4.1.9).
fn check_kind(typ: Option<&str>, only_access: bool) -> Result<(), Reason> {
    let wanted = if only_access {
        "at+jwt"
    } else {
        "JWT or at+jwt"
    };
    let Some(typ) = typ else {
        return if only_access {
            Err(Reason::Missing("typ".into()))
        } else {
            Ok(())
        };
    };
    let lower = typ.to_ascii_lowercase();
    match lower.strip_prefix("application/").unwrap_or(&lower) {
        "at+jwt" => Ok(()),
        "jwt" if !only_access => Ok(()),
        _ => Err(Reason::Kind(shown(typ), wanted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::jwt::strict;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn read(header: &str, only_access: bool) -> Result<Header, Reason> {
        let text = format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(header));
        Header::read(&strict::split(text.as_bytes())?.header, only_access)
    }

    #[test]
    fn it_names_an_algorithm_and_perhaps_a_key() {
        let header = read(
            r#"{"alg":"ES256","kid":"k1","x5t":"abc","other":[1]}"#,
            false,
        )
        .unwrap();
        assert_eq!(
            (header.algorithm, header.kid.as_deref()),
            (Algorithm::ES256, Some("k1"))
        );
    }

    #[test]
    fn no_other_spelling_of_an_algorithm_is_one() {
        for name in [
            "none", "None", "nOnE", "NONE", "rs256", "HS512", "ES384", "RSA-OAEP", "dir", " RS256",
        ] {
            let header = read(&format!("{{\"alg\":\"{name}\"}}"), false);
            assert!(matches!(header, Err(Reason::UnknownAlgorithm(_))), "{name}");
        }
        for header in [r"{}", r#"{"alg":""}"#] {
            assert_eq!(read(header, false), Err(Reason::Missing("alg".into())));
        }
        for header in [r#"{"alg":null}"#, r#"{"alg":["RS256"]}"#, r#"{"alg":1}"#] {
            assert_eq!(
                read(header, false),
                Err(Reason::Type("alg".into(), "a string"))
            );
        }
    }

    #[test]
    fn whatever_brings_keys_or_changes_the_meaning_is_refused() {
        for (name, _) in FORBIDDEN {
            for value in ["[]", "null", "{}", "\"JWT\"", "false", "[\"exp\"]"] {
                let header = read(&format!("{{\"alg\":\"EdDSA\",\"{name}\":{value}}}"), false);
                assert!(matches!(header, Err(Reason::Header(..))), "{name} {value}");
            }
        }
    }

    #[test]
    fn the_kind_is_a_jwt_or_an_access_token() {
        let with = |typ: &str, only_access| {
            read(&format!("{{\"alg\":\"EdDSA\",\"typ\":{typ}}}"), only_access)
        };
        for typ in ["\"JWT\"", "\"jwt\"", "\"application/jwt\""] {
            assert!(with(typ, false).is_ok() && with(typ, true).is_err());
        }
        for typ in ["\"at+jwt\"", "\"application/at+JWT\""] {
            assert!(with(typ, false).is_ok() && with(typ, true).is_ok());
        }
        for typ in ["\"\"", "\"dpop+jwt\"", "\"logout+jwt\"", "1", "null"] {
            assert!(with(typ, false).is_err(), "{typ}");
        }
        assert!(read(r#"{"alg":"EdDSA"}"#, true).is_err());
    }

    #[test]
    fn the_id_of_a_key_is_a_short_string() {
        let long = format!("\"{}\"", "k".repeat(257));
        for kid in ["1", "null", "\"\"", "[\"k\"]", &long] {
            assert!(
                read(&format!("{{\"alg\":\"EdDSA\",\"kid\":{kid}}}"), false).is_err(),
                "{kid}"
            );
        }
        for kid in ["../../dev/null", "' UNION SELECT", "\\u0000"] {
            assert!(read(&format!("{{\"alg\":\"EdDSA\",\"kid\":\"{kid}\"}}"), false).is_ok());
        }
    }
}
