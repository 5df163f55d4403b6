//! How names of queues compare with what a scope says.
//!
//! Two patterns meet in the narrower one or not at all: beginnings of names nest or are apart. That is why a cut needs no
//! names that were not there before.

/// Longest name of a queue in bytes.
const MAX_NAME: usize = 80;

/// Names of queues: one, or all that begin alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    pub(super) text: Box<str>,
    pub(super) prefix: bool,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (text, prefix) = match text.strip_suffix('*') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let good = text.len() <= MAX_NAME
            && text.bytes().all(plain)
            && text
                .as_bytes()
                .first()
                .map_or(prefix, u8::is_ascii_alphanumeric)
            && !text.contains("..");
        good.then(|| Self {
            text: text.into(),
            prefix,
        })
    }

    pub(super) fn is_all(&self) -> bool {
        self.prefix && self.text.is_empty()
    }

    pub(super) fn matches(&self, queue: &str) -> bool {
        if self.prefix {
            queue.starts_with(&*self.text)
        } else {
            *self.text == *queue
        }
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        if self.prefix {
            other.text.starts_with(&*self.text)
        } else {
            self == other
        }
    }

    /// The queues of both: the narrower of the two, or none.
    pub(super) fn meet<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        if self.covers(other) {
            Some(other)
        } else {
            other.covers(self).then_some(self)
        }
    }
}
