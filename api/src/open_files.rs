//! The operating system's limit on open files: a connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsFd;

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

/// Makes the kernel's table of this process's open files large enough for `files`. It would double the table whenever it is
/// full, and in a process with threads it waits for all processors to do so: the thread that accepts the 257th connection
/// stood still for 10 to 90 ms (Linux 6.18). Does nothing where the limit on open files is lower.
pub fn reserve(files: usize, any: impl AsFd) {
    let last = i32::try_from(files).unwrap_or(i32::MAX);
    drop(rustix::io::fcntl_dupfd_cloexec(any, last));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_holds_what_was_reserved() {
        let size = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|l| l.starts_with("FDSize:")).unwrap();
            line["FDSize:".len()..].trim().parse::<usize>().unwrap()
        };
        let needed = size() + 1;
        super::reserve(needed, std::io::stdin());
        assert!(size() > needed);
    }
}
