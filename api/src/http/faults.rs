//! Wrong values, collected: an answer names all of them at once.

use super::problem::{Code, FieldError, Problem};
use std::borrow::Cow;

/// How alike an unknown name must be to a known one (Jaro-Winkler) for that one to be offered.
const ALIKE: f64 = 0.75;
/// Longest name that is repeated in a pointer: no name that is meant is longer.
const MAX_NAME_BYTES: usize = 40;
/// Wrong values that one answer names.
const MAX_FAULTS: usize = 32;

/// What was found wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    code: Option<Code>,
    errors: Vec<FieldError>,
}

impl Faults {
    /// Notes a wrong value. The first one decides the code of the whole problem.
    pub(crate) fn add(
        &mut self,
        code: Code,
        pointer: String,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.code.get_or_insert(code);
        if self.errors.len() < MAX_FAULTS {
            let (code, detail) = (code.as_str(), detail.into());
            self.errors.push(FieldError {
                pointer,
                code,
                detail,
            });
        }
    }

    /// Takes over what a part of the request had wrong.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.code = self.code.or(other.code);
        self.errors.extend(other.errors);
        self.errors.truncate(MAX_FAULTS);
    }

    /// Nothing is wrong.
    pub(crate) fn check(self) -> Result<(), Problem> {
        match self.code {
            None => Ok(()),
            Some(code) => Err(Problem::of_fields(code, self.errors)),
        }
    }
}

/// A name from outside as it may be repeated in a pointer: one that somebody may have meant as a name, which is letters and
/// underscores. Anything else may be a key, a token or a receipt at the wrong place, and is not repeated.
pub(crate) fn plain(name: &str) -> &str {
    let plain = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    if plain { name } else { "?" }
}

/// What to say about a name that is not known.
pub(crate) fn not_known(name: &str, known: &[&'static str]) -> Cow<'static, str> {
    let nearest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(candidate, name), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, candidate)) => format!("Not known. Did you mean {candidate}?").into(),
        None if known.is_empty() => "Not known. None is allowed here.".into(),
        None => format!("Not known. Allowed: {}.", known.join(", ")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_meant_as_a_name_is_repeated() {
        for name in ["dealy_seconds", "delaySeconds", "x"] {
            assert_eq!(plain(name), name);
        }
        let key = crate::auth::ApiKey::generate().unwrap();
        let long = "a".repeat(41);
        for name in [
            "",
            "?",
            "<b>",
            "a b",
            "x1",
            "eyJhbGciOiJIUzI1NiJ9.e30",
            key.reveal(),
            &long,
        ] {
            assert_eq!(plain(name), "?", "{name}");
        }
    }
}
