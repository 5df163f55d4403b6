//! The rights there are.

/// What a caller may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// Publish messages.
    Publish,
    /// Receive and settle messages.
    Consume,
    /// See queues, counts and listings.
    Read,
    /// See what is inside a message without receiving it.
    Payload,
    /// Create, change, pause, purge and delete queues.
    Manage,
    /// Give dead letters another round.
    Redrive,
    /// Throw messages away for good.
    Discard,
    /// Read the audit trail.
    Audit,
    /// Create and revoke keys.
    Keys,
}

impl Right {
    /// Every right, in the order in which scopes are printed.
    pub const ALL: [Self; 9] = [
        Self::Publish,
        Self::Consume,
        Self::Read,
        Self::Payload,
        Self::Manage,
        Self::Redrive,
        Self::Discard,
        Self::Audit,
        Self::Keys,
    ];

    /// The word for it in a scope.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Consume => "consume",
            Self::Read => "read",
            Self::Payload => "payload",
            Self::Manage => "manage",
            Self::Redrive => "redrive",
            Self::Discard => "discard",
            Self::Audit => "audit",
            Self::Keys => "keys",
        }
    }

    /// The right of that name, in lower case as it is written.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }

    /// Whether it is about queues, so that a scope may name some.
    pub const fn is_per_queue(self) -> bool {
        !matches!(self, Self::Audit | Self::Keys)
    }

    pub(super) const fn bit(self) -> u16 {
        1 << self as u16
    }
}
