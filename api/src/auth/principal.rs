//! A caller who proved who it is, and what it may do.

use super::scope::{Right, Scopes};
use quita_storage::model::Millis;
use std::sync::Arc;

/// A caller who proved who it is.
#[derive(Clone, Debug)]
pub struct Principal {
    /// What audit rows name: the public part of a key, or `issuer:subject` of a token, which holds a colon as no key does.
    pub id: Arc<str>,
    /// What it may do.
    pub scopes: Scopes,
    /// When its proof stops being good, in milliseconds since the Unix epoch. `None`: when it is revoked.
    pub expires_at: Option<Millis>,
}

impl Principal {
    /// Whether this caller may do that to this queue. Decided from memory.
    pub fn may(&self, right: Right, queue: &str) -> bool {
        self.scopes.may(right, queue)
    }

    /// Whether this caller may do that to any queue at all, there or not.
    pub fn may_anywhere(&self, right: Right) -> bool {
        self.scopes.may_anywhere(right)
    }

    /// Whether this caller may do that to every queue, and to what belongs to no queue.
    pub fn may_everywhere(&self, right: Right) -> bool {
        self.scopes.may_everywhere(right)
    }

    /// Whether its proof is a token, not a key.
    pub fn is_by_token(&self) -> bool {
        self.id.contains(':')
    }

    /// A caller that may do everything: for work the server does in its own name, and for tests.
    pub fn admin(id: &str) -> Self {
        Self {
            id: id.into(),
            scopes: Scopes::admin(),
            expires_at: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_on_some_queues_are_not_rights_on_all() {
        let who = |scopes: &str| Principal {
            scopes: Scopes::parse(scopes).unwrap(),
            ..Principal::admin("k")
        };
        let some = who("read:mail-*");
        assert!(some.may(Right::Read, "mail-eu") && some.may_anywhere(Right::Read));
        assert!(!some.may(Right::Read, "sms") && !some.may_everywhere(Right::Read));
        let all = who("read");
        assert!(all.may_everywhere(Right::Read) && !all.may_anywhere(Right::Publish));
        assert!(!who("").may_anywhere(Right::Read));
        assert!(!all.is_by_token() && Principal::admin("login:alice").is_by_token());
    }
}
