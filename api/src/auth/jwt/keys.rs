//! The keys of one issuer, and which of them a token may be checked with.
//!
//! A key serves what it was made for and nothing else: its type, and where it says so its algorithm, use and operations must
//! all agree. What cannot serve is remembered with the reason, so that a token which names it is refused without
//! asking the issuer again, and the operator sees why. A set in which two keys of one type have one id is refused whole.

use super::algorithm::{Algorithm, Family};
use super::jwk::Jwk;
use super::reason::Reason;
use super::shown;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::crypto::{self, CryptoProvider};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most keys of one set.
pub const MAX_KEYS: usize = 64;
/// Shortest RSA modulus in bits (RFC 7518 §3.3).
const MIN_RSA_BITS: usize = 2_048;
/// Longest that the library verifies with.
const MAX_RSA_BITS: usize = 8_192;
/// Shortest secret for HS256 in bytes: as long as its hash (RFC 7518 §3.2).
pub const MIN_SECRET_BYTES: usize = 32;

/// A key that signatures are checked with. Its `Debug` shows what may be shown.
pub(super) struct Key {
    kid: Option<Box<str>>,
    family: Family,
    /// The one algorithm it says it is for.
    only: Option<Algorithm>,
    decoding: DecodingKey,
    /// Of everything above.
    print: [u8; 32],
    retired: AtomicBool,
}

impl Key {
    /// A public key in PEM. Certificates and private keys are refused: the one is trusted by rules that are not applied
    /// here, the other has no business here.
    pub(super) fn from_pem(text: &[u8], kid: Option<&str>) -> Result<Self, Box<str>> {
        let tag = std::str::from_utf8(text).unwrap_or_default().trim_start();
        let tag = tag
            .strip_prefix("-----BEGIN ")
            .and_then(|rest| rest.split("-----").next());
        match tag {
            Some("PUBLIC KEY" | "RSA PUBLIC KEY") => {}
            Some(tag) if tag.contains("PRIVATE") => {
                return Err("it is a private key; the public one is needed".into());
            }
            Some("CERTIFICATE") => {
                return Err("it is a certificate; the public key alone is needed".into());
            }
            _ => return Err("it does not begin with -----BEGIN PUBLIC KEY-----".into()),
        }
        if let Ok(key) = DecodingKey::from_ed_pem(text) {
            return Self::ed25519(key.try_get_as_bytes().unwrap_or_default(), kid, None);
        }
        if let Ok(key) = DecodingKey::from_ec_pem(text) {
            return Self::p256(key.try_get_as_bytes().unwrap_or_default(), kid, None);
        }
        let wrong = || Box::<str>::from("it is neither an Ed25519, a P-256 nor an RSA public key");
        let key = DecodingKey::from_rsa_pem(text).map_err(|_| wrong())?;
        let provider = CryptoProvider::try_get_default().ok_or_else(wrong)?;
        let der = key.try_get_as_bytes().map_err(|_| wrong())?;
        let (n, e) =
            (provider.key_utils.rsa_pub_components_from_public_key)(der).map_err(|_| wrong())?;
        Self::rsa(&n, &e, kid, None)
    }

    /// A secret that the issuer signs with too.
    pub(super) fn from_secret(secret: &[u8]) -> Result<Self, Box<str>> {
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!("the secret is shorter than {MIN_SECRET_BYTES} bytes").into());
        }
        let key = DecodingKey::from_secret(secret).map_err(|error| error.to_string())?;
        Ok(Self::new(Family::Secret, key, &[secret], None, None))
    }

    pub(super) fn ed25519(
        x: &[u8],
        kid: Option<&str>,
        only: Option<Algorithm>,
    ) -> Result<Self, Box<str>> {
        // The library takes the first 32 bytes of whatever it gets.
        if x.len() != 32 {
            return Err("an Ed25519 key has 32 bytes".into());
        }
        let key = usable(DecodingKey::from_ed_der(x), Algorithm::EdDSA)?;
        Ok(Self::new(Family::Ed25519, key, &[x], kid, only))
    }

    /// `point`: uncompressed, 0x04 and two coordinates of 32 bytes.
    pub(super) fn p256(
        point: &[u8],
        kid: Option<&str>,
        only: Option<Algorithm>,
    ) -> Result<Self, Box<str>> {
        if point.len() != 65 || point[0] != 4 {
            return Err("a P-256 key has two coordinates of 32 bytes".into());
        }
        let key = usable(DecodingKey::from_ec_der(point), Algorithm::ES256)?;
        Ok(Self::new(Family::P256, key, &[point], kid, only))
    }

    pub(super) fn rsa(
        n: &[u8],
        e: &[u8],
        kid: Option<&str>,
        only: Option<Algorithm>,
    ) -> Result<Self, Box<str>> {
        let (n, e) = (without_zeros(n), without_zeros(e));
        let bits = n
            .first()
            .map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
        if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
            return Err(format!(
                "its modulus has {bits} bits; {MIN_RSA_BITS} to {MAX_RSA_BITS} are taken"
            )
            .into());
        }
        let exponent = e.iter().fold(0u64, |sum, b| {
            sum.saturating_mul(256).saturating_add(u64::from(*b))
        });
        // FIPS 186-5 §5.4, and what the library verifies with.
        if !(65_537..1 << 33).contains(&exponent) || exponent % 2 == 0 || n[n.len() - 1] % 2 == 0 {
            return Err(
                "its numbers are not those of an RSA key (the exponent is at least 65537)".into(),
            );
        }
        let key = usable(DecodingKey::from_rsa_raw_components(n, e), Algorithm::RS256)?;
        Ok(Self::new(Family::Rsa, key, &[n, e], kid, only))
    }

    fn new(
        family: Family,
        decoding: DecodingKey,
        parts: &[&[u8]],
        kid: Option<&str>,
        only: Option<Algorithm>,
    ) -> Self {
        let mut hash = Sha256::new();
        let named = format!("{family:?} {only:?} {kid:?}");
        for part in [named.as_bytes()].iter().chain(parts) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self {
            kid: kid.map(Into::into),
            family,
            only,
            decoding,
            print: hash.finalize().into(),
            retired: AtomicBool::new(false),
        }
    }

    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        self.family == algorithm.family() && self.only.is_none_or(|only| only == algorithm)
    }

    /// Whether `signature`, in base64url, is this key's over `signed`.
    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &str, signature: &str) -> bool {
        self.fits(algorithm)
            && crypto::verify(
                signature,
                signed.as_bytes(),
                &self.decoding,
                algorithm.library(),
            )
            .unwrap_or(false)
    }

    /// Whether it left the set it came from.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Key");
        shown.field("kid", &self.kid).field("family", &self.family);
        shown.field("only", &self.only).finish_non_exhaustive()
    }
}

/// The key, if a verifier can be made from it.
fn usable(key: DecodingKey, algorithm: Algorithm) -> Result<DecodingKey, Box<str>> {
    let provider = CryptoProvider::try_get_default().ok_or("no cryptography is built in")?;
    (provider.verifier_factory)(&algorithm.library(), &key)
        .map_err(|_| format!("it is not a point of the curve of {algorithm}"))?;
    Ok(key)
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|b| **b == 0).count();
    &number[zeros..]
}

/// A key that was read and cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) kid: Option<Box<str>>,
    pub(super) why: Box<str>,
}

/// All keys of one issuer at one time.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<Arc<Key>>,
    unfit: Vec<Unfit>,
    /// The one key there is, in a form that carries no id: a `kid` in a token says nothing about it.
    nameless: bool,
}

/// Why no key is found.
#[derive(Debug, PartialEq)]
pub(super) enum Miss {
    /// It may be a new one.
    Unknown,
    /// Asking again would not help.
    Final(Reason),
}

impl KeySet {
    pub(super) fn single(key: Key) -> Self {
        Self {
            nameless: key.kid.is_none(),
            keys: vec![Arc::new(key)],
            unfit: Vec::new(),
        }
    }

    /// Reads a JWK set (RFC 7517 §5).
    pub(super) fn from_jwks(bytes: &[u8]) -> Result<Self, Box<str>> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Box<RawValue>>,
        }
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| shown(&format!("not a JWK set: {error}")))?;
        if document.keys.len() > MAX_KEYS {
            return Err(
                format!("it has {} keys; {MAX_KEYS} are taken", document.keys.len()).into(),
            );
        }
        let mut set = Self::default();
        let mut names = HashSet::new();
        for raw in &document.keys {
            match Jwk::read(raw.get()).and_then(|jwk| jwk.key()) {
                Ok(key) => {
                    if !names.insert((key.kid.clone(), key.family)) && key.kid.is_some() {
                        return Err(format!(
                            "two keys have the id {:?}",
                            key.kid.as_deref().map(shown)
                        )
                        .into());
                    }
                    set.keys.push(Arc::new(key));
                }
                Err(unfit) => set.unfit.push(unfit),
            }
        }
        if set.keys.is_empty() {
            let why = set.unfit.first().map_or("it is empty", |unfit| &unfit.why);
            return Err(format!("no key of it can be used: {why}").into());
        }
        Ok(set)
    }

    /// The key for a token.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<&Arc<Key>, Miss> {
        let Some(kid) = kid.filter(|_| !self.nameless) else {
            let mut fitting = self.keys.iter().filter(|key| key.fits(algorithm));
            return match (fitting.next(), fitting.count()) {
                (Some(key), 0) => Ok(key),
                (None, _) => Err(Miss::Final(Reason::NoKeyId(0))),
                (Some(_), more) => Err(Miss::Final(Reason::NoKeyId(more + 1))),
            };
        };
        let named = |name: &Option<Box<str>>| name.as_deref() == Some(kid);
        let mut why = self
            .unfit
            .iter()
            .find(|unfit| named(&unfit.kid))
            .map(|unfit| unfit.why.clone());
        for key in self.keys.iter().filter(|key| named(&key.kid)) {
            if key.fits(algorithm) {
                return Ok(key);
            }
            why = Some(format!("it is not a key for {algorithm}").into());
        }
        let key = shown(kid);
        Err(why.map_or(Miss::Unknown, |why| {
            Miss::Final(Reason::KeyUnfit { key, why })
        }))
    }

    pub(super) fn unfit(&self) -> &[Unfit] {
        &self.unfit
    }

    /// How many can be used.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Takes the place of `old`: keys that are in both stay the same object, the others of `old` retire.
    pub(super) fn after(mut self, old: &Self) -> Self {
        for key in &mut self.keys {
            if let Some(same) = old.keys.iter().find(|one| one.print == key.print) {
                *key = same.clone();
            }
        }
        for key in &old.keys {
            let stays = self.keys.iter().any(|one| Arc::ptr_eq(one, key));
            key.retired.store(!stays, Ordering::Release);
        }
        self
    }
}
