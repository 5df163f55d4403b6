//! Bugs that are put back on purpose, to see whether the tests see them.
//!
//! Only with the feature `known-bugs`, which no release has; then `QUITA_KNOWN_BUG` names one of them. Without it, the macro
//! is `false` (or the statement as it is), and nothing of this is in the binary.

/// Whether this bug is put back; with a statement and its changes, the statement that then runs.
#[cfg(not(feature = "known-bugs"))]
#[macro_export]
macro_rules! known_bug {
    ($name:literal) => {
        false
    };
    ($name:literal, $sql:expr, $($good:literal => $bad:literal),+) => {
        $sql
    };
}

/// Whether this bug is put back; with a statement and its changes, the statement that then runs.
#[cfg(feature = "known-bugs")]
#[macro_export]
macro_rules! known_bug {
    ($name:literal) => {
        $crate::known_bug::is($name)
    };
    ($name:literal, $sql:expr, $($good:literal => $bad:literal),+) => {
        $crate::known_bug::changed($name, $sql, &[$(($good, $bad)),+])
    };
}

#[cfg(all(feature = "known-bugs", not(debug_assertions)))]
compile_error!("known bugs are for tests: no optimised server has them");

#[cfg(feature = "known-bugs")]
pub use chosen::{changed, is};

#[cfg(feature = "known-bugs")]
mod chosen {
    use parking_lot::Mutex;
    use std::collections::HashMap;
    use std::sync::LazyLock;

    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "read here alone, and by no release"
        )]
        let name = std::env::var("QUITA_KNOWN_BUG").ok();
        if let Some(name) = &name {
            tracing::warn!(name, "a known bug is put back");
        }
        name
    });

    static CHANGED: LazyLock<Mutex<HashMap<String, &'static str>>> = LazyLock::new(Mutex::default);

    /// Whether this bug is put back.
    pub fn is(name: &str) -> bool {
        CHOSEN.as_deref() == Some(name)
    }

    /// The statement that runs: with its changes, when the bug is put back.
    ///
    /// # Panics
    /// When the statement has nothing of the kind: it was changed, and the bug has to follow.
    pub fn changed(name: &str, sql: &'static str, changes: &[(&str, &str)]) -> &'static str {
        if !is(name) {
            return sql;
        }
        CHANGED.lock().entry(sql.to_owned()).or_insert_with(|| {
            let text = changes.iter().fold(sql.to_owned(), |text, (good, bad)| {
                assert!(text.contains(good), "{name}: {good:?} is not there");
                text.replace(good, bad)
            });
            Box::leak(text.into_boxed_str())
        })
    }
}
