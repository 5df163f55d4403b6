//! What no input may cause (29): a 5xx while nothing is broken, a panic, an answer that is no problem document, a leak.

use super::facts::Facts;
use super::verdict::Tallies;
use crate::history::{Happened, Kind};

/// Answers that are meant when there is too much: no fault of the server.
const MEANT: [&str; 2] = ["overloaded", "disk_low"];

/// 5xx outside faults, and panics.
pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) -> (u64, u64) {
    let tally = tallies.of(29);
    tally.kept(facts.refusals);
    let mut unwell = 0;
    for op in &facts.troubles {
        if op.body.misshapen && op.status != 0 {
            tally.check(false, || {
                format!(
                    "{:?} {} was answered {} without a problem document",
                    op.op, op.n, op.status
                )
            });
        }
        let meant = op.op == Kind::Readyz || MEANT.contains(&op.code.as_str());
        if op.status >= 500 && !meant && !facts.windows.touch(op.t_inv, op.t_ret) {
            unwell += 1;
            tally.check(false, || {
                format!(
                    "{:?} {} was answered {} {} while nothing was wrong",
                    op.op, op.n, op.status, op.code
                )
            });
        }
    }
    let mut panics = 0;
    for event in &facts.events {
        let server = event.replica.unwrap_or(0);
        match event.kind {
            Happened::Panicked => {
                panics += 1;
                tally.check(false, || {
                    format!("server {server} panicked: {}", event.detail)
                });
            }
            Happened::Leaked => tally.check(false, || {
                format!("the log of server {server} has a secret: {}", event.detail)
            }),
            Happened::LogRead => tally.kept(1),
            _ => {}
        }
    }
    (unwell, panics)
}
