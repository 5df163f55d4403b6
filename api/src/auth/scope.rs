//! What a caller may do, and to which queues.
//!
//! A scope is written `right` (every queue), `right:name` (one queue) or `right:prefix*` (every queue whose name starts
//! so); `admin` is every right on every queue, also a right that a later version adds. A right implies no other: a producer
//! with `publish` sees no counts. `audit` and `keys` are about the whole store and take no name.
//!
//! Reading order: [`Right`] → [`Scopes`] (asked at every request: two bit tests, and names only where a scope has one) →
//! `Pattern` (how names compare). Sets are kept canonical, without entries that another entry covers, so that two texts
//! that mean the same are equal and print the same. Every operation works pattern by pattern: the meeting of two patterns
//! is the narrower one or nothing, so a cut never grows and never has to invent a name.

use super::{SHOWN, shown};
use pattern::Pattern;
use std::fmt;
use std::sync::Arc;

mod pattern;
mod right;
#[cfg(test)]
mod tests;

pub use right::Right;

/// Most entries of one text or list.
pub const MAX_ENTRIES: usize = 64;
/// Longest text in bytes, the spaces included.
pub const MAX_BYTES: usize = 4 << 10;
/// Every right on every queue; a set of the rights that there are today is less.
const ADMIN: u16 = u16::MAX;

/// Why a scope cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// More entries than [`MAX_ENTRIES`].
    #[error("there are more than {MAX_ENTRIES} scopes")]
    TooMany,
    /// More bytes than [`MAX_BYTES`].
    #[error("the scopes are longer than {MAX_BYTES} bytes")]
    TooLong,
    /// One entry is wrong.
    #[error("scope {} (\"{entry}\"): {fault}", .index + 1)]
    Entry {
        /// Which one, from 0.
        index: usize,
        /// What it says, cut and with escapes, fit for a message.
        entry: Box<str>,
        /// What is wrong with it.
        fault: EntryFault,
    },
}

/// What is wrong with one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// No right has that name.
    #[error("no such right{}", nearest(*.0))]
    UnknownRight(Option<Right>),
    /// A right on the whole store, or `admin`, with a name of queues.
    #[error("it is for the whole store and takes no queue")]
    TakesNoQueue,
    /// What stands after the colon is not a name of a queue, nor the beginning of one with a `*` at its end.
    #[error("after the colon comes the name of a queue, or the beginning of names and a *")]
    NotAName,
}

fn nearest(right: Option<Right>) -> String {
    right.map_or_else(String::new, |right| {
        format!("; the nearest is {}", right.name())
    })
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    right: Right,
    on: Pattern,
}

/// A canonical set of scopes. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Rights on every queue.
    everywhere: u16,
    /// Rights on the queues of `grants`.
    somewhere: u16,
    /// In order; none covered by another one or by `everywhere`.
    grants: Arc<[Grant]>,
}

impl Scopes {
    /// Every right on every queue.
    pub fn admin() -> Self {
        Self::of(ADMIN, Vec::new())
    }

    /// Reads scopes with spaces between them. An empty text allows nothing.
    pub fn parse(text: &str) -> Result<Self, ScopeError> {
        if text.len() > MAX_BYTES {
            return Err(ScopeError::TooLong);
        }
        Self::from_entries(text.split(' ').filter(|entry| !entry.is_empty()))
    }

    /// Reads a list of scopes. An empty list allows nothing.
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ScopeError> {
        Self::read(entries, Err)
    }

    /// Reads a list that also holds scopes of other services, as a token's does: what is none of ours grants nothing. Says
    /// which were passed over.
    pub fn from_foreign<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<(Self, Vec<ScopeError>), ScopeError> {
        let mut passed = Vec::new();
        let scopes = Self::read(entries, |error| {
            passed.push(error);
            Ok(())
        })?;
        Ok((scopes, passed))
    }

    fn read<'a>(
        entries: impl IntoIterator<Item = &'a str>,
        mut wrong: impl FnMut(ScopeError) -> Result<(), ScopeError>,
    ) -> Result<Self, ScopeError> {
        let (mut everywhere, mut grants, mut bytes) = (0, Vec::new(), 0);
        for (index, entry) in entries.into_iter().enumerate() {
            bytes += entry.len() + usize::from(index > 0);
            if index == MAX_ENTRIES {
                return Err(ScopeError::TooMany);
            }
            if bytes > MAX_BYTES {
                return Err(ScopeError::TooLong);
            }
            match grant(entry) {
                Ok((bits, None)) => everywhere |= bits,
                Ok((_, Some(grant))) => grants.push(grant),
                Err(fault) => wrong(ScopeError::Entry {
                    index,
                    entry: shown(entry),
                    fault,
                })?,
            }
        }
        Ok(Self::of(everywhere, grants))
    }

    fn of(everywhere: u16, mut grants: Vec<Grant>) -> Self {
        grants.retain(|grant| everywhere & grant.right.bit() == 0);
        grants.sort();
        grants.dedup();
        let least: Vec<Grant> = grants
            .iter()
            .filter(|one| {
                !grants
                    .iter()
                    .any(|by| by != *one && by.right == one.right && by.on.covers(&one.on))
            })
            .cloned()
            .collect();
        Self {
            everywhere,
            somewhere: least.iter().fold(0, |bits, grant| bits | grant.right.bit()),
            grants: least.into(),
        }
    }

    /// Whether they allow this right on this queue. Allocates nothing.
    #[inline]
    pub fn may(&self, right: Right, queue: &str) -> bool {
        if self.everywhere & right.bit() != 0 {
            return true;
        }
        self.somewhere & right.bit() != 0
            && self
                .grants
                .iter()
                .any(|grant| grant.right == right && grant.on.matches(queue))
    }

    /// Whether they allow this right on any queue at all. Who may nowhere is told so; who may elsewhere must not learn
    /// whether this queue exists.
    #[inline]
    pub fn may_anywhere(&self, right: Right) -> bool {
        (self.everywhere | self.somewhere) & right.bit() != 0
    }

    /// Whether they allow this right on every queue.
    #[inline]
    pub fn may_everywhere(&self, right: Right) -> bool {
        self.everywhere & right.bit() != 0
    }

    /// Whether they allow nothing.
    pub fn is_empty(&self) -> bool {
        self.everywhere | self.somewhere == 0
    }

    /// Whether `other` allows nothing that these do not: a key makes no key wider than itself.
    pub fn covers(&self, other: &Self) -> bool {
        let has = |one: &Grant| {
            self.everywhere & one.right.bit() != 0
                || self
                    .grants
                    .iter()
                    .any(|grant| grant.right == one.right && grant.on.covers(&one.on))
        };
        other.everywhere & !self.everywhere == 0 && other.grants.iter().all(has)
    }

    /// What both allow.
    #[must_use]
    pub fn intersect(&self, ceiling: &Self) -> Self {
        let mut grants = Vec::new();
        for (one, other) in [(self, ceiling), (ceiling, self)] {
            let whole = |grant: &&Grant| other.everywhere & grant.right.bit() != 0;
            grants.extend(one.grants.iter().filter(whole).cloned());
        }
        for one in self.grants.iter() {
            for other in ceiling
                .grants
                .iter()
                .filter(|grant| grant.right == one.right)
            {
                if let Some(on) = one.on.meet(&other.on) {
                    let (right, on) = (one.right, on.clone());
                    grants.push(Grant { right, on });
                }
            }
        }
        Self::of(self.everywhere & ceiling.everywhere, grants)
    }

    /// The scopes one by one, in the order of their rights and then of names.
    pub fn entries(&self) -> Vec<String> {
        if self.everywhere == ADMIN {
            return vec!["admin".to_owned()];
        }
        let mut entries = Vec::new();
        for right in Right::ALL {
            if self.everywhere & right.bit() != 0 {
                entries.push(right.name().to_owned());
            }
            for grant in self.grants.iter().filter(|grant| grant.right == right) {
                let star = if grant.on.prefix { "*" } else { "" };
                entries.push(format!("{}:{}{star}", right.name(), grant.on.text));
            }
        }
        entries
    }
}

/// The canonical text: what [`Scopes::parse`] reads.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entries().join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

/// One entry: bits of rights on every queue, or a grant on some.
fn grant(entry: &str) -> Result<(u16, Option<Grant>), EntryFault> {
    let (word, queues) = match entry.split_once(':') {
        Some((word, queues)) => (word, Some(queues)),
        None => (entry, None),
    };
    if word == super::ADMIN {
        return queues.map_or(Ok((ADMIN, None)), |_| Err(EntryFault::TakesNoQueue));
    }
    let right = Right::named(word).ok_or_else(|| EntryFault::UnknownRight(like(word)))?;
    let Some(queues) = queues else {
        return Ok((right.bit(), None));
    };
    let on = Pattern::parse(queues).ok_or(EntryFault::NotAName)?;
    if on.is_all() {
        return Ok((right.bit(), None));
    }
    if !right.is_per_queue() {
        return Err(EntryFault::TakesNoQueue);
    }
    Ok((0, Some(Grant { right, on })))
}

/// The right that was probably meant.
fn like(word: &str) -> Option<Right> {
    let word: String = word
        .chars()
        .take(SHOWN)
        .flat_map(char::to_lowercase)
        .collect();
    let far = |right: &Right| strsim::damerau_levenshtein(right.name(), &word);
    Right::ALL
        .into_iter()
        .min_by_key(far)
        .filter(|right| far(right) <= 2)
}
