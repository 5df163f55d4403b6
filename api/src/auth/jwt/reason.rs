//! Why a token is refused: for the operator, in a log line and from `quita token check`. The caller hears one and the same
//! answer whatever the reason, so that nobody can feel their way to a token that passes.
//!
//! Text from the token is cut and has escapes. A reason before [`Reason::Signature`] may rest on words of a forger, so a log
//! line gets the reason without them ([`Reason::without_words`]): anything could be planted there, or have got there by
//! mistake.

use crate::auth::scope::ScopeError;

/// Which JSON of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first one.
    Header,
    /// The second one.
    Claims,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Claims => "claims",
        })
    }
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Longer than is read.
    #[error("the token has {0} bytes; {max} are read", max = super::MAX_TOKEN_BYTES)]
    TooLong(usize),
    /// Not three parts with dots between them.
    #[error("the token has {0} parts instead of 3")]
    Parts(usize),
    /// Not base64url without padding.
    #[error("the {0} of the token is not base64url without padding")]
    Base64(&'static str),
    /// Not JSON, or not strict JSON.
    #[error("the {0} is not JSON that can be used: {1}")]
    Json(Part, Box<str>),
    /// A member has another type than it must have.
    #[error("`{0}` must be {1}")]
    Type(Box<str>, &'static str),
    /// A member is not there, or empty.
    #[error("`{0}` is missing or empty")]
    Missing(Box<str>),
    /// An algorithm that is never used.
    #[error("the algorithm \"{0}\" is not one of EdDSA, ES256, RS256, PS256, HS256")]
    UnknownAlgorithm(Box<str>),
    /// An algorithm that this issuer is not allowed.
    #[error("issuer {issuer} may not use {algorithm}")]
    Algorithm {
        /// Its name in the settings.
        issuer: Box<str>,
        /// What the token says.
        algorithm: super::Algorithm,
    },
    /// The header holds something that must not be there.
    #[error("the header holds `{0}`: {1}")]
    Header(&'static str, &'static str),
    /// The header says that it is another kind of token.
    #[error("the header says `typ` \"{0}\"; {1} is taken")]
    Kind(Box<str>, &'static str),
    /// No issuer of that name is configured.
    #[error("no issuer with `iss` \"{0}\" is configured; it is compared exactly")]
    Issuer(Box<str>),
    /// It is meant for others.
    #[error("`aud` names none of the configured audiences")]
    Audience,
    /// `sub` is too long.
    #[error("`sub` has {0} bytes; 255 are taken")]
    Subject(usize),
    /// Its time is over.
    #[error("it expired {0} s ago (30 s are tolerated)")]
    Expired(u64),
    /// Its time has not come.
    #[error("it may not be used for another {0} s (`nbf`)")]
    NotYet(u64),
    /// It says that it was made later than now.
    #[error("it was issued {0} s in the future (`iat`)")]
    IssuedLater(u64),
    /// It is good for too long.
    #[error("it is good for {0} s; 86400 are allowed")]
    Life(u64),
    /// The keys of the issuer are not known, or too old to be trusted.
    #[error("the keys of the issuer are not known at present: {0}")]
    KeysUnavailable(Box<str>),
    /// No such key, also after asking again where that was allowed.
    #[error("the issuer has no key \"{0}\" now")]
    UnknownKey(Box<str>),
    /// The key is there and may not be used so.
    #[error("the key \"{key}\" cannot be used: {why}")]
    KeyUnfit {
        /// Its id.
        key: Box<str>,
        /// What is wrong with it.
        why: Box<str>,
    },
    /// The token names no key, and which one is meant is not certain.
    #[error("the token names no key, and {0} keys of the issuer fit")]
    NoKeyId(usize),
    /// The signature is not that of the key over this token.
    #[error("the signature is wrong")]
    Signature,
    /// More scopes than are read.
    #[error("the scopes: {0}")]
    Scopes(ScopeError),
}

impl Reason {
    /// Whether the caller can do nothing about it, and the same token may be good later.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::KeysUnavailable(_))
    }

    /// The same reason without a word of the token's own.
    #[must_use]
    pub fn without_words(self) -> Self {
        let left_out = || Box::<str>::from("…");
        match self {
            Self::Json(part, _) => Self::Json(part, left_out()),
            Self::UnknownAlgorithm(_) => Self::UnknownAlgorithm(left_out()),
            Self::Kind(_, wanted) => Self::Kind(left_out(), wanted),
            Self::Issuer(_) => Self::Issuer(left_out()),
            Self::UnknownKey(_) => Self::UnknownKey(left_out()),
            Self::KeyUnfit { why, .. } => {
                let key = left_out();
                Self::KeyUnfit { key, why }
            }
            Self::Scopes(ScopeError::Entry { index, fault, .. }) => {
                let entry = left_out();
                Self::Scopes(ScopeError::Entry {
                    index,
                    entry,
                    fault,
                })
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::scope::EntryFault;

    #[test]
    fn a_log_line_has_no_word_of_the_token() {
        let word = || Box::<str>::from("geheim");
        let entry = ScopeError::Entry {
            index: 1,
            entry: word(),
            fault: EntryFault::TakesNoQueue,
        };
        let key = Reason::KeyUnfit {
            key: word(),
            why: "its use is not sig".into(),
        };
        for reason in [
            Reason::Json(Part::Header, word()),
            Reason::UnknownAlgorithm(word()),
            Reason::Kind(word(), "JWT"),
            Reason::Issuer(word()),
            Reason::UnknownKey(word()),
            Reason::Scopes(entry),
            key,
        ] {
            assert!(reason.to_string().contains("geheim"), "{reason}");
            let told = reason.without_words().to_string();
            assert!(told.contains('…') && !told.contains("geheim"), "{told}");
        }
        let plain = Reason::Expired(31);
        assert_eq!(plain.clone().without_words(), plain);
    }
}
