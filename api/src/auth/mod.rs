//! Bearer → principal.

use std::sync::Arc;

/// What a caller wants to do with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Publish.
    Publish,
    /// Receive and settle.
    Consume,
    /// Look.
    Read,
    /// Look at payloads.
    Payload,
    /// Create, change, pause, purge, delete.
    Manage,
    /// Redrive.
    Redrive,
    /// Discard.
    Discard,
    /// Read the audit trail.
    Audit,
    /// Manage keys.
    Keys,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Never a secret.
    pub id: Arc<str>,
}

impl Principal {
    /// Whether the caller has `right` on `queue`.
    pub fn may(&self, _right: Right, _queue: &str) -> bool {
        true
    }
}

/// Why nobody is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFailure {
    /// No header.
    MissingCredentials,
    /// Not a bearer.
    UnsupportedScheme,
    /// A bearer that is not known.
    InvalidKey,
}

/// Checks credentials.
#[derive(Default)]
pub struct Authenticator;

impl Authenticator {
    /// Who sent this header.
    #[expect(clippy::unused_async, reason = "the real one looks keys up")]
    pub async fn authenticate(
        &self,
        header: Option<&http::HeaderValue>,
    ) -> Result<Principal, AuthFailure> {
        let header = header.ok_or(AuthFailure::MissingCredentials)?;
        let text = header.to_str().map_err(|_| AuthFailure::InvalidKey)?;
        let Some((scheme, key)) = text.split_once(' ') else {
            return Err(AuthFailure::UnsupportedScheme);
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(AuthFailure::UnsupportedScheme);
        }
        if key != "test" {
            return Err(AuthFailure::InvalidKey);
        }
        Ok(Principal { id: "test".into() })
    }
}
