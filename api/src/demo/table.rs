//! The result on a terminal.

use super::account::{Account, DeadLetter};

/// Prints the numbers, the dead letters and the verdict.
pub(super) fn print(account: &Account) {
    println!("\n{:<32}{:>10}  {:<24}", "", "found", "must be");
    for line in &account.lines {
        let mark = match (line.expected.is_empty(), line.right) {
            (true, _) => "",
            (false, true) => "ok",
            (false, false) => "WRONG",
        };
        println!(
            "{:<32}{:>10}  {:<24}{mark}",
            line.name, line.found, line.expected
        );
    }
    println!("\ndead letters");
    for letter in &account.dead {
        println!("  {}", describe(letter));
    }
    let verdict = if account.is_right() {
        "Every charge once, every message accounted for."
    } else {
        "The books do not agree."
    };
    println!(
        "\n{verdict} Again with the same gateway: --seed {}",
        account.seed
    );
}

fn describe(letter: &DeadLetter) -> String {
    let charged = if letter.charged {
        "charged by the gateway"
    } else {
        "not charged"
    };
    let doubt = if letter.explained {
        ""
    } else {
        "  UNEXPLAINED"
    };
    format!(
        "{:<24} {:<18} {charged}  [{}]{doubt}",
        letter.key,
        letter.reason,
        letter.causes.join(" ")
    )
}
