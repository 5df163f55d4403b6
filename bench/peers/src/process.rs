//! What a server costs: CPU and memory of its process and of all that it started, read from `/proc`.

use std::collections::HashMap;
use std::fs::{read_dir, read_to_string};

/// Kernel clock ticks per second (`sysconf(_SC_CLK_TCK)`); 100 on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of a process tree, ended children included. 0 of process 0: nothing is metered.
pub fn cpu_seconds(root: u32) -> f64 {
    tree(root).iter().map(|(_, seconds)| seconds).sum()
}

/// Memory of a process tree in MiB; what is shared counts once.
pub fn pss_mib(root: u32) -> f64 {
    let pss = |pid: u32| -> Option<f64> {
        let rollup = read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let kib: f64 = tree(root).iter().filter_map(|(pid, _)| pss(*pid)).sum();
    kib / 1024.0
}

fn tree(root: u32) -> Vec<(u32, f64)> {
    if root == 0 {
        return Vec::new();
    }
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut seconds: HashMap<u32, f64> = HashMap::new();
    for entry in read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some((pid, (parent, cpu))) = pid.and_then(|pid| Some((pid, stat(pid)?))) {
            children.entry(parent).or_default().push(pid);
            seconds.insert(pid, cpu);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
        .into_iter()
        .filter_map(|pid| Some((pid, *seconds.get(&pid)?)))
        .collect()
}

/// Parent and CPU seconds: fields 4 and 14 to 17 of `/proc/PID/stat` (proc(5)), counted from behind the name.
fn stat(pid: u32) -> Option<(u32, f64)> {
    let text = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let ticks: Option<f64> = (11..15).map(|at| fields.get(at)?.parse::<f64>().ok()).sum();
    Some((fields.get(1)?.parse().ok()?, ticks? / TICKS_PER_SECOND))
}
