//! Words that are stored as small numbers and written as text.

use serde::{Deserialize, Serialize};

macro_rules! coded_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All values, in code order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As stored.
            pub fn code(self) -> i16 {
                match self { $(Self::$variant => $code),+ }
            }

            /// Back from [`Self::code`]; `None` for a code that this version does not know.
            pub fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// As written in answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Back from [`Self::as_str`].
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| serde::de::Error::custom(concat!("not a ", stringify!($name))))
            }
        }
    };
}
pub(crate) use coded_enum;

coded_enum! {
    /// Why a message is dead.
    Reason {
        /// The last allowed attempt was nacked.
        MaxAttempts = 1 => "max_attempts",
        /// The worker said that repeating is useless.
        PermanentFailure = 2 => "permanent_failure",
        /// The last allowed delivery ran out.
        LeaseExpired = 3 => "lease_expired",
        /// Released too often.
        ReleaseLimit = 4 => "release_limit",
        /// Retention or `expires_at` passed.
        Expired = 5 => "expired",
        /// An operator took it out.
        Operator = 6 => "operator",
    }
}

impl Reason {
    /// What the last delivery's end was, in the words of the deliveries. One to one with the reason.
    pub fn failure_kind(self) -> &'static str {
        match self {
            Self::MaxAttempts => "nack",
            Self::PermanentFailure => "permanent",
            Self::LeaseExpired | Self::ReleaseLimit | Self::Expired | Self::Operator => {
                self.as_str()
            }
        }
    }
}

coded_enum! {
    /// Why a dead letter is left undone.
    DiscardCode {
        /// What it asks for is not wanted any more.
        NotApplicable = 1 => "not_applicable",
        /// Something else did the work.
        Duplicate = 2 => "duplicate",
        /// A later message replaces it.
        Superseded = 3 => "superseded",
        /// The loss is taken.
        WrittenOff = 4 => "written_off",
    }
}

coded_enum! {
    /// The bound that sent a message to the dead letters.
    Limit {
        /// `max_attempts`.
        MaxAttempts = 1 => "max_attempts",
        /// `max_lease_expirations`.
        MaxLeaseExpirations = 2 => "max_lease_expirations",
        /// `max_releases`.
        MaxReleases = 3 => "max_releases",
        /// `retention_seconds`.
        Retention = 4 => "retention_seconds",
        /// `expires_at`.
        ExpiresAt = 5 => "expires_at",
    }
}

coded_enum! {
    /// How a delivery ended.
    Cause {
        /// The worker reported a failure that may pass.
        Nack = 1 => "nack",
        /// The worker reported a failure that will not pass.
        Permanent = 2 => "permanent",
        /// Nobody settled it in time.
        LeaseExpired = 3 => "lease_expired",
        /// The worker gave it back unworked.
        Release = 4 => "release",
        /// The answer could not be delivered.
        GivenBack = 5 => "given_back",
        /// An operator dead-lettered the message meanwhile.
        Operator = 6 => "operator",
        /// The worker finished it. Kept only for messages whose end is remembered.
        Ack = 7 => "ack",
    }
}

coded_enum! {
    /// How a message left for good.
    End {
        /// A worker finished it.
        Acked = 1 => "acked",
        /// An operator discarded the dead letter.
        Discarded = 2 => "discarded",
        /// An operator cancelled it before it was handed out.
        Cancelled = 3 => "cancelled",
        /// It went with a purge or with its queue.
        Purged = 4 => "purged",
        /// `dead_letter_retention_seconds` passed.
        DeadLetterExpired = 5 => "dead_letter_expired",
        /// It is not there and the record of how it went is over.
        Gone = 6 => "gone",
    }
}

coded_enum! {
    /// Where a message is, as a word; also the state that listings take.
    State {
        /// Not due yet.
        Delayed = 1 => "delayed",
        /// Can be received.
        Ready = 2 => "ready",
        /// Handed out.
        Leased = 3 => "leased",
        /// Waits for a decision.
        Dead = 4 => "dead",
        /// Gone: see [`End`].
        Ended = 5 => "ended",
    }
}
