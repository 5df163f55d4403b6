//! What is asked about dead letters, and what a selection of them is.
//!
//! A [`DeadFilter`] says which ones; a listing pages through them, groups count those that failed alike, and a
//! [`Selection`] freezes them, so that a bulk decision (see [`crate::redrives`]) is about exactly the messages that somebody
//! has seen counted.

use crate::backend::Cursor;
use crate::model::{MessageId, Millis, Place, QueueUid, Reason, read_number, write_number};
use crate::rules::Message;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How long a bulk decision may begin after its selection was made: 1 hour. A decision that has begun goes on.
pub const SELECTION_LIFE_MS: Millis = 3_600_000;
/// Messages that a selection shows: half of them the oldest, half the youngest.
pub const SAMPLE: u32 = 10;
/// Error codes that a selection counts one by one, the most frequent first.
pub const COUNTED_CODES: usize = 20;

/// A span of time; `None` = open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Inclusive.
    pub from: Option<Millis>,
    /// Exclusive.
    pub until: Option<Millis>,
}

impl Span {
    /// Whether `at` is inside.
    pub fn contains(&self, at: Millis) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }
}

/// A range of a counter, both ends included; `None` = open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Smallest.
    pub min: Option<i32>,
    /// Largest.
    pub max: Option<i32>,
}

impl Range {
    /// Whether `value` is inside.
    pub fn contains(&self, value: i32) -> bool {
        self.min.is_none_or(|min| min <= value) && self.max.is_none_or(|max| value <= max)
    }
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyFilter {
    /// This one.
    Exactly(String),
    /// Those that begin so, compared byte by byte. Not empty.
    Prefix(String),
}

/// Which dead letters; everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadFilter {
    /// With this reason.
    pub reason: Option<Reason>,
    /// With exactly this error code.
    pub error_code: Option<String>,
    /// Of this group, see [`crate::rules::group`].
    pub group: Option<i64>,
    /// With such a business key.
    pub key: Option<KeyFilter>,
    /// Dead-lettered in this span.
    pub died: Span,
    /// Published in this span.
    pub published: Span,
    /// With so many attempts since the last redrive.
    pub attempts: Range,
    /// With so many redrives.
    pub redrives: Range,
    /// Changed since it died, or not.
    pub edited: Option<bool>,
}

impl DeadFilter {
    /// Whether this message is a dead letter that the filter means.
    pub fn matches(&self, message: &Message) -> bool {
        let Place::Dead(dead) = &message.place else {
            return false;
        };
        let key = message.envelope.key.as_deref();
        let key_fits = match &self.key {
            None => true,
            Some(KeyFilter::Exactly(wanted)) => key == Some(wanted),
            Some(KeyFilter::Prefix(prefix)) => {
                key.is_some_and(|key| key.starts_with(prefix.as_str()))
            }
        };
        key_fits
            && self.reason.is_none_or(|reason| reason == dead.reason)
            && self.group.is_none_or(|group| group == dead.group)
            && self.edited.is_none_or(|edited| edited == dead.edited)
            && self
                .error_code
                .as_deref()
                .is_none_or(|code| Some(code) == dead.error_code.as_deref())
            && self.died.contains(dead.died_at)
            && self.published.contains(message.envelope.created_at)
            && self.attempts.contains(message.life.attempts)
            && self.redrives.contains(message.life.redrives)
    }
}

/// A listing of dead letters by (time of death, id).
#[derive(Clone, Debug)]
pub struct DeadListing {
    /// Of these queues; `None` = of all that are there. A deleted queue has none.
    pub queues: Option<Vec<QueueUid>>,
    /// Which.
    pub filter: DeadFilter,
    /// Continue behind this place, in the direction of the listing; its priority is 0.
    pub after: Option<Cursor>,
    /// The youngest first.
    pub newest_first: bool,
    /// At most this many. A page may be short although there is more: a store looks at a bounded number of rows.
    pub limit: u32,
}

/// Dead letters of one queue that failed alike.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadGroup {
    /// Its number: the same in all queues.
    pub group: i64,
    /// Whose.
    pub queue: QueueUid,
    /// Of all of them.
    pub reason: Reason,
    /// Of all of them.
    pub error_code: Option<Arc<str>>,
    /// How many.
    pub count: i64,
    /// When the first one died.
    pub first_died_at: Millis,
    /// When the last one died.
    pub last_died_at: Millis,
    /// One of them: the last that died, by (time, id).
    pub example: MessageId,
    /// What the example's latest delivery reported; not normalised.
    pub example_detail: Option<Arc<str>>,
}

/// The largest groups.
#[derive(Clone, Debug, Default)]
pub struct DeadGroups {
    /// By count, largest first; then by number and queue.
    pub groups: Vec<DeadGroup>,
    /// There are more of them.
    pub more: bool,
}

/// The number of a [`Selection`]; written as `sel_` and 13 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SelectionId(pub i64);

impl SelectionId {
    /// Reads the written form.
    pub fn parse(text: &str) -> Option<Self> {
        read_number("sel_", text).map(Self)
    }
}

impl fmt::Display for SelectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_number("sel_", self.0, f)
    }
}

/// Ages that a selection tells apart, by time since death: under 1 hour, under 1 day, under 7 days, older.
pub const AGES_MS: [Millis; 3] = [3_600_000, 86_400_000, 604_800_000];

/// Dead letters of one queue, frozen: those that the filter meant when the selection was made. One that dies, or is changed,
/// after that is not in it, whatever its time of death says; one that left since is skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Its number.
    pub id: SelectionId,
    /// Whose.
    pub queue: QueueUid,
    /// Which.
    pub filter: DeadFilter,
    /// How many there were.
    pub figures: Figures,
    /// Some of them: the [`SAMPLE`]/2 oldest and the [`SAMPLE`]/2 youngest, oldest first.
    pub sample: Vec<i64>,
    /// When it was made.
    pub created_at: Millis,
    /// Until when a bulk decision may begin.
    pub expires_at: Millis,
}

/// What a selection counts, all from one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// All of them.
    pub count: i64,
    /// By reason, in the order of [`Reason::ALL`]; only those that are there.
    pub by_reason: Vec<(Reason, i64)>,
    /// By error code, most frequent first, then by code; at most [`COUNTED_CODES`].
    pub by_error_code: Vec<(Option<String>, i64)>,
    /// By age: under each of [`AGES_MS`], and older.
    pub by_age: [i64; 4],
    /// Changed since they died.
    pub edited: i64,
    /// At or above the queue's `max_redrives`.
    pub over_max_redrives: i64,
    /// A worker has reported the work as done.
    pub completion_remembered: i64,
    /// With a key under which another message of the queue is remembered as acked.
    pub outcome_recorded: i64,
}

impl Figures {
    /// Counts one more. For stores that walk over the messages.
    pub fn add(&mut self, message: &Message, max_redrives: u32, recorded: bool, now: Millis) {
        let Place::Dead(dead) = &message.place else {
            return;
        };
        self.count += 1;
        let reasons = self.by_reason.iter_mut().find(|(r, _)| *r == dead.reason);
        match reasons {
            Some((_, count)) => *count += 1,
            None => self.by_reason.push((dead.reason, 1)),
        }
        let code = dead.error_code.as_deref();
        let codes = self.by_error_code.iter_mut();
        match codes.into_iter().find(|(c, _)| c.as_deref() == code) {
            Some((_, count)) => *count += 1,
            None => self.by_error_code.push((code.map(str::to_owned), 1)),
        }
        let age = now - dead.died_at;
        self.by_age[AGES_MS.iter().filter(|bound| age >= **bound).count()] += 1;
        self.edited += i64::from(dead.edited);
        self.over_max_redrives += i64::from(message.life.redrives >= max_redrives as i32);
        self.completion_remembered += i64::from(message.completion.is_some());
        self.outcome_recorded += i64::from(recorded);
    }

    /// Puts the histograms in order and cuts them. Call it once, at the end.
    pub fn finish(&mut self) {
        self.by_reason.sort_unstable();
        self.by_error_code
            .sort_unstable_by(|a, b| (-a.1, &a.0).cmp(&(-b.1, &b.0)));
        self.by_error_code.truncate(COUNTED_CODES);
    }
}
