//! Signature algorithms that an issuer may be allowed, and the keys they go with.
//!
//! `none` is not among them, so that no setting and no token can ask for it. The P-384, SHA-384 and SHA-512 forms are left
//! out: a short list is easier to review, and these five are what issuers use.

use serde::Deserialize;
use std::fmt;

/// A signature algorithm, by its name in RFC 7518 and RFC 8037.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[allow(
    clippy::upper_case_acronyms,
    reason = "the names are those of the registry"
)]
pub enum Algorithm {
    /// Ed25519.
    EdDSA,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// RSASSA-PSS with SHA-256.
    PS256,
    /// HMAC with SHA-256, by a secret that issuer and service share.
    HS256,
}

/// What a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    Ed25519,
    P256,
    Rsa,
    Secret,
}

impl Algorithm {
    const ALL: [Self; 5] = [
        Self::EdDSA,
        Self::ES256,
        Self::RS256,
        Self::PS256,
        Self::HS256,
    ];

    /// Its registered name, in exactly these letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EdDSA => "EdDSA",
            Self::ES256 => "ES256",
            Self::RS256 => "RS256",
            Self::PS256 => "PS256",
            Self::HS256 => "HS256",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    pub(super) const fn family(self) -> Family {
        match self {
            Self::EdDSA => Family::Ed25519,
            Self::ES256 => Family::P256,
            Self::RS256 | Self::PS256 => Family::Rsa,
            Self::HS256 => Family::Secret,
        }
    }

    pub(super) const fn library(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::EdDSA => jsonwebtoken::Algorithm::EdDSA,
            Self::ES256 => jsonwebtoken::Algorithm::ES256,
            Self::RS256 => jsonwebtoken::Algorithm::RS256,
            Self::PS256 => jsonwebtoken::Algorithm::PS256,
            Self::HS256 => jsonwebtoken::Algorithm::HS256,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
