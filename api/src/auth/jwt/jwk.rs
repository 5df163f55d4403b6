//! One key of a JWK set (RFC 7517), read strictly.

use super::algorithm::{Algorithm, Family};
use super::keys::{Key, Unfit};
use super::shown;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The members that count; others, such as `x5c`, say nothing that would be believed.
#[derive(Deserialize)]
pub(super) struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    /// A private key: whoever can read the set can sign.
    d: Option<IgnoredAny>,
}

impl Jwk {
    pub(super) fn read(text: &str) -> Result<Self, Unfit> {
        serde_json::from_str(text).map_err(|error| Unfit {
            kid: None,
            why: shown(&error.to_string()),
        })
    }

    /// The key, if it is there to verify signatures with.
    pub(super) fn key(&self) -> Result<Key, Unfit> {
        self.convert().map_err(|why| Unfit {
            kid: self.kid.as_deref().map(Into::into),
            why,
        })
    }

    fn convert(&self) -> Result<Key, Box<str>> {
        if self.d.is_some() {
            return Err("it is a private key, published: it proves nothing".into());
        }
        if let Some(purpose) = self.purpose.as_deref().filter(|purpose| *purpose != "sig") {
            return Err(format!("its use is \"{}\", not \"sig\"", shown(purpose)).into());
        }
        let can_verify = |ops: &Vec<String>| ops.iter().any(|op| op == "verify");
        if self.key_ops.as_ref().is_some_and(|ops| !can_verify(ops)) {
            return Err("its key_ops do not hold \"verify\"".into());
        }
        let family = match (&*self.kty, self.crv.as_deref()) {
            ("RSA", _) => Family::Rsa,
            ("EC", Some("P-256")) => Family::P256,
            ("OKP", Some("Ed25519")) => Family::Ed25519,
            // A secret in a set that is published is none.
            (kty, crv) => {
                let crv = crv.map_or_else(String::new, |crv| format!(" {}", shown(crv)));
                return Err(format!("keys of type {}{crv} are not used", shown(kty)).into());
            }
        };
        let only = self
            .alg
            .as_deref()
            .map(|alg| only(alg, family))
            .transpose()?;
        let kid = self.kid.as_deref();
        match family {
            Family::Rsa => Key::rsa(
                &bytes(self.n.as_ref(), "n")?,
                &bytes(self.e.as_ref(), "e")?,
                kid,
                only,
            ),
            Family::P256 => {
                let (x, y) = (bytes(self.x.as_ref(), "x")?, bytes(self.y.as_ref(), "y")?);
                if (x.len(), y.len()) != (32, 32) {
                    return Err("a P-256 key has two coordinates of 32 bytes".into());
                }
                Key::p256(&[&[4][..], &x, &y].concat(), kid, only)
            }
            Family::Ed25519 => Key::ed25519(&bytes(self.x.as_ref(), "x")?, kid, only),
            Family::Secret => Err("a secret is not taken from a set".into()),
        }
    }
}

/// The algorithm that a key names, if the key can be used with it.
fn only(alg: &str, family: Family) -> Result<Algorithm, Box<str>> {
    // RFC 9864 gives EdDSA on this curve a name of its own.
    let alg = if alg == "Ed25519" { "EdDSA" } else { alg };
    Algorithm::named(alg)
        .filter(|algorithm| algorithm.family() == family)
        .ok_or_else(|| {
            format!(
                "its algorithm is \"{}\", which is not used with such a key",
                shown(alg)
            )
            .into()
        })
}

fn bytes(member: Option<&String>, name: &str) -> Result<Vec<u8>, Box<str>> {
    let text = member.ok_or_else(|| format!("it has no \"{name}\""))?;
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| format!("its \"{name}\" is not base64url without padding").into())
}
