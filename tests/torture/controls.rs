//! The tests of the tests: known bugs, put back one at a time in a server of their own, which the ordinary load has to find.
//!
//! The checks are not told which bug it is, or that there is one. The same runs without the bug have to hold.

use crate::args::Args;
use crate::cluster::{Store, Twist};
use crate::history_of;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// What a bug needs to show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ground {
    postgres: bool,
    /// Kinds of faults, with commas.
    faults: &'static str,
    /// Length of the load, and from one fault to the next.
    seconds: (u32, u32),
}

const SQLITE: Ground = Ground {
    postgres: false,
    faults: "none",
    seconds: (15, 5),
};

/// Three servers, whose clocks are an hour apart from the first one's.
const POSTGRES: Ground = Ground {
    postgres: true,
    ..SQLITE
};

const POWER_CUTS: Ground = with(SQLITE, "power_cut", 20, 3);
const MANY_POWER_CUTS: Ground = with(SQLITE, "power_cut", 30, 1);
const KILLS: Ground = with(SQLITE, "kill", 20, 2);
const LOST_ANSWERS: Ground = with(POSTGRES, "database_answers_lost", 25, 2);
const RESTARTS: Ground = with(POSTGRES, "rolling_restart", 15, 4);
/// Purges are rare, and a cache is wrong for moments.
const PURGES: Ground = with(POSTGRES, "none", 40, 5);
const CUT_OFF: Ground = with(POSTGRES, "kill,backend_terminated", 40, 2);

const fn with(on: Ground, faults: &'static str, seconds: u32, every: u32) -> Ground {
    Ground {
        faults,
        seconds: (seconds, every),
        ..on
    }
}

/// The bugs, by the names that the server knows them by, each where it can be.
const BUGS: [(&str, Ground); 15] = [
    ("ack-ignores-the-fence", SQLITE),
    ("synchronous-normal", POWER_CUTS),
    ("claim-located-before-it-is-locked", POSTGRES),
    ("dedupe-by-select-then-insert", POSTGRES),
    ("dead-letter-move-in-two-transactions", CUT_OFF),
    ("attempt-lowered-on-release", SQLITE),
    ("counter-outside-the-transaction", KILLS),
    ("expiry-judged-by-the-servers-clock", POSTGRES),
    ("listener-closed-before-readiness-flips", RESTARTS),
    ("blind-rerun-of-an-unknown-commit", LOST_ANSWERS),
    ("request-id-freed-at-ack", SQLITE),
    ("late-ack-taken-from-the-present-holder", SQLITE),
    ("receive-committed-asynchronously", MANY_POWER_CUTS),
    ("coalesced-duplicates-share-one-answer", SQLITE),
    ("purge-through-a-stale-queue-cache", PURGES),
];

impl Ground {
    /// The arguments of a run; folder and binaries are those given.
    fn args(self, given: &Args, name: &str, seed: u64) -> Args {
        let (seconds, every) = self.seconds;
        Args {
            store: if self.postgres {
                Store::Postgres
            } else {
                Store::Sqlite
            },
            seed: Some(seed),
            minutes: f64::from(seconds) / 60.0,
            every: f64::from(every),
            faults: self.faults.split(',').map(str::to_owned).collect(),
            max_faults: None,
            out: given.out.join(name),
            ..given.clone()
        }
    }

    fn shown(self) -> String {
        let store = if self.postgres { "postgres" } else { "sqlite" };
        format!("{store}, faults {}", self.faults)
    }
}

/// Whether every bug is found with every seed, and nothing is found without it.
pub(crate) fn all(given: &Args) -> Result<bool, String> {
    let bugs = chosen(&given.only)?;
    let quita = match &given.quita_with_bugs {
        Some(path) => path.clone(),
        None => quita_tests::server::binary_with_bugs().map_err(|e| e.to_string())?,
    };
    let mut text = String::new();
    // Bugs on the same ground have the same run without them.
    let mut without = BTreeMap::new();
    let mut found = 0;
    for (name, ground) in &bugs {
        let row = Row::of(given, name, *ground, &quita);
        let holds = match without.get(ground) {
            Some(holds) => *holds,
            None => *without.entry(*ground).or_insert(holds(given, *ground)),
        };
        found += usize::from(row.found && holds);
        let word = match (row.found, holds) {
            (true, true) => "found",
            (true, false) => "FOUND WITHOUT IT AS WELL",
            (false, _) => "NOT FOUND",
        };
        let _ = writeln!(
            text,
            "{name:<42}{:<44}{word}, broken: {}",
            ground.shown(),
            row.by
        );
    }
    println!("\n{text}controls: {found} of {}", bugs.len());
    Ok(found == bugs.len())
}

fn chosen(only: &[String]) -> Result<Vec<(&'static str, Ground)>, String> {
    let known = |name: &str| BUGS.iter().any(|(bug, _)| *bug == name);
    if let Some(name) = only.iter().find(|name| !known(name)) {
        let names: Vec<_> = BUGS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "no known bug {name:?}; there are: {}",
            names.join(", ")
        ));
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|other| other == name);
    Ok(BUGS
        .iter()
        .copied()
        .filter(|(name, _)| wanted(name))
        .collect())
}

/// What came of the runs with one bug.
struct Row {
    found: bool,
    /// The promises that were broken with every seed; with no common one, with any.
    by: String,
}

impl Row {
    fn of(given: &Args, name: &str, ground: Ground, quita: &Path) -> Self {
        let mut broken: Vec<BTreeSet<u8>> = Vec::new();
        for seed in &given.seeds {
            let args = Args {
                quita: Some(quita.to_owned()),
                known_bug: Some(name.to_owned()),
                ..ground.args(given, name, *seed)
            };
            let promises = promises(&args, name).unwrap_or_default();
            broken.push(promises.into_iter().collect());
        }
        let found = !broken.is_empty() && broken.iter().all(|promises| !promises.is_empty());
        let common = broken
            .iter()
            .cloned()
            .reduce(|a, b| a.intersection(&b).copied().collect())
            .unwrap_or_default();
        let any = broken.into_iter().flatten().collect();
        let by = if common.is_empty() { any } else { common };
        Self {
            found,
            by: listed(&by),
        }
    }
}

fn holds(given: &Args, ground: Ground) -> bool {
    // Every seed is tried, for the sake of what is printed.
    let verdicts: Vec<_> = given
        .seeds
        .iter()
        .map(|seed| promises(&ground.args(given, "without", *seed), "without a bug"))
        .collect();
    let kept = |broken: &Option<Vec<u8>>| broken.as_ref().is_some_and(Vec::is_empty);
    verdicts.iter().all(kept)
}

/// The promises that a run breaks; `None` when it has no verdict.
fn promises(args: &Args, what: &str) -> Option<Vec<u8>> {
    let report = history_of(args, Twist::None)
        .and_then(|file| Report::of(&file).map_err(|e| format!("{}: {e}", file.display())));
    let seed = args.seed.unwrap_or_default();
    match report {
        Ok(report) => {
            let broken = report.broken_promises();
            let word = if broken.is_empty() {
                "holds"
            } else {
                "broken:"
            };
            let numbers = listed(&broken.iter().copied().collect());
            println!("{what}, seed {seed}: {word} {numbers}");
            print!("{}", report.complaints());
            Some(broken)
        }
        Err(why) => {
            println!("{what}, seed {seed}: NO VERDICT ({why})");
            None
        }
    }
}

fn listed(promises: &BTreeSet<u8>) -> String {
    let numbers: Vec<String> = promises.iter().map(u8::to_string).collect();
    numbers.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|e| e == "rs") {
                *text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }

    #[test]
    fn every_bug_is_one_that_the_server_knows_and_the_other_way_round() {
        let mut text = String::new();
        for folder in ["storage/src", "api/src"] {
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            sources(&workspace.join(folder), &mut text);
        }
        let there: BTreeSet<&str> = text
            .split("known_bug!(")
            .skip(1)
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
            .collect();
        let listed: BTreeSet<&str> = BUGS.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, there);
    }

    #[test]
    fn a_name_that_nobody_knows_is_refused() {
        assert!(chosen(&["no-such-bug".to_owned()]).is_err());
        assert_eq!(chosen(&[]).unwrap().len(), BUGS.len());
        assert_eq!(chosen(&["synchronous-normal".to_owned()]).unwrap().len(), 1);
    }
}
