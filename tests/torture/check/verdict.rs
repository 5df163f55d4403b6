//! What is said about a promise, and how the words for it are collected.

use std::collections::BTreeMap;

/// Examples that are kept of what broke a promise.
const EXAMPLES: usize = 5;

/// What a history says about one promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was kept each time that it could be judged.
    Holds {
        /// How often that was.
        checked: u64,
    },
    /// It was not.
    Broken {
        /// How often it could be judged.
        checked: u64,
        /// How often it was broken.
        broken: u64,
        /// The first ones.
        examples: Vec<String>,
    },
    /// This history cannot tell, and why.
    NotCovered(String),
}

/// Counts what was judged about one promise.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    checked: u64,
    broken: u64,
    examples: Vec<String>,
    cannot: Option<String>,
}

impl Tally {
    /// Judges once; `say` tells what is wrong.
    pub(crate) fn check(&mut self, kept: bool, say: impl FnOnce() -> String) {
        self.checked += 1;
        if !kept {
            self.broken += 1;
            if self.examples.len() < EXAMPLES {
                self.examples.push(say());
            }
        }
    }

    /// Judged this often without a complaint.
    pub(crate) fn kept(&mut self, times: u64) {
        self.checked += times;
    }

    /// Why nothing can be judged here, unless something is.
    pub(crate) fn cannot(&mut self, why: &str) {
        self.cannot.get_or_insert_with(|| why.to_owned());
    }

    /// How often it was broken.
    pub(crate) fn broken(&self) -> u64 {
        self.broken
    }

    /// The first complaints.
    pub(crate) fn examples(&self) -> &[String] {
        &self.examples
    }

    /// What to say in the end.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.broken > 0 {
            return Verdict::Broken {
                checked: self.checked,
                broken: self.broken,
                examples: self.examples.clone(),
            };
        }
        match (&self.cannot, self.checked) {
            (Some(why), 0) => Verdict::NotCovered(why.clone()),
            (None, 0) => Verdict::NotCovered("nothing of the kind happened".to_owned()),
            (_, checked) => Verdict::Holds { checked },
        }
    }
}

/// A tally per promise, and the table of duplicates.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    tallies: BTreeMap<u8, Tally>,
    /// Second and later hand-outs by their cause.
    pub(crate) duplicates: BTreeMap<&'static str, u64>,
}

impl Tallies {
    /// Of promise number `n` of the reliability contract.
    pub(crate) fn of(&mut self, n: u8) -> &mut Tally {
        self.tallies.entry(n).or_default()
    }

    /// How often promise `n` was broken.
    pub(crate) fn broken(&self, n: u8) -> u64 {
        self.tallies.get(&n).map_or(0, Tally::broken)
    }
}
