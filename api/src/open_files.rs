//! The operating system's limit on open files: a connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit on open files, after it was raised to `needed` as far as it may be.
pub fn raise_to(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(soft) = limit.current else {
        return needed;
    };
    if soft >= needed {
        return soft;
    }
    let raised = limit.maximum.map_or(needed, |hard| hard.min(needed));
    let wanted = Rlimit {
        current: Some(raised),
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, wanted).is_ok() {
        raised
    } else {
        soft
    }
}
