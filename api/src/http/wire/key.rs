//! API keys.

use super::Time;
use super::values::{ClientRequestId, KeyId, Line, Prose, ReasonText, ScopeText};
use crate::auth::Scopes;
use crate::service::keys::{MadeKey, is_good};
use quita_storage::backend::KeyRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A key to make.
#[derive(Deserialize, ToSchema)]
pub struct NewKey {
    /// What it may do: `right`, `right:queue` or `right:prefix*`, 1 to 64 of them. No more than the caller's own key may.
    #[schema(value_type = Vec<ScopeText>, min_items = 1, max_items = 64, example = json!(["publish:mail-*", "read:mail-*"]))]
    pub scopes: Vec<String>,
    /// What it is for.
    #[schema(value_type = Line, required = false)]
    pub description: Option<String>,
    /// It ends by itself after this time; without it, never.
    #[schema(value_type = f64, required = false, minimum = 1, maximum = 315_360_000)]
    pub expires_in_seconds: Option<f64>,
    /// Makes a repeat recognisable: it answers the same key, without its secret.
    #[schema(value_type = ClientRequestId, required = false)]
    pub client_request_id: Option<String>,
}

/// How to rotate a key.
#[derive(Deserialize, ToSchema)]
pub struct RotateKey {
    /// How long the old key is good beside the new one. A day unless given; 0 ends it at once.
    #[schema(value_type = f64, required = false, minimum = 0, maximum = 2_592_000)]
    pub overlap_seconds: Option<f64>,
    /// Why.
    #[schema(value_type = Prose, required = false)]
    pub reason: Option<String>,
    /// Makes a repeat recognisable: it answers the same key, without its secret.
    #[schema(value_type = ClientRequestId, required = false)]
    pub client_request_id: Option<String>,
}

/// Why a key is revoked.
#[derive(Deserialize, ToSchema)]
pub struct RevokeKey {
    /// Why.
    #[schema(value_type = ReasonText)]
    pub reason: String,
}

/// An API key, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
pub struct Key {
    /// Its public part, as audit rows name it.
    #[schema(value_type = KeyId)]
    pub key_id: String,
    /// `active`, `expired` or `revoked`.
    pub state: &'static str,
    /// What it may do.
    pub scopes: Vec<String>,
    /// What it is for.
    pub description: String,
    /// When it was made.
    pub created_at: Time,
    /// When it ends by itself, or did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// The minute in which it was last used; absent while it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
}

/// A key that was made.
#[derive(Serialize, ToSchema)]
#[schema(as = NewKeyMade)]
pub struct KeyMade {
    /// The whole key, in the first answer alone: it is stored nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// All but the secret.
    #[serde(flatten)]
    pub record: Key,
}

/// A page of keys.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyPage)]
pub struct KeyPage {
    /// In the order in which they were made.
    pub keys: Vec<Key>,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

impl From<&KeyRecord> for Key {
    fn from(record: &KeyRecord) -> Self {
        let state = match record.revoked_at {
            Some(_) => "revoked",
            None if is_good(record) => "active",
            None => "expired",
        };
        Self {
            key_id: record.id.to_string(),
            state,
            scopes: Scopes::parse(&record.scope).unwrap_or_default().entries(),
            description: record.description.to_string(),
            created_at: Time(record.created_at),
            expires_at: record.expires_at.map(Time),
            last_used_at: record.last_used_at.map(Time),
            revoked_at: record.revoked_at.map(Time),
        }
    }
}

impl From<&MadeKey> for KeyMade {
    fn from(made: &MadeKey) -> Self {
        Self {
            key: made.key.as_ref().map(|key| key.reveal().to_owned()),
            record: Key::from(&made.record),
        }
    }
}
