//! What a person gives: JSON as an argument, from a file or from standard input, and answers to questions.

use super::client::read_all;
use super::exit::{Failure, Outcome};
use super::json;
use super::visible::visible;
use serde_json::value::RawValue;
use std::io::{self, BufRead, IsTerminal, Write};

/// More than any message may have; white space may be a part of it.
const MAX_INPUT: u64 = 8 << 20;

/// JSON from `text` itself, from the file after `@`, or from standard input for `-`.
pub(super) fn json_from(what: &str, text: &str) -> Outcome<Box<RawValue>> {
    let read = match text.strip_prefix('@') {
        _ if text == "-" => read_all(io::stdin().lock(), MAX_INPUT, "standard input")?,
        Some(name) => {
            let shown = visible(name);
            let file = std::fs::File::open(name)
                .map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
            read_all(file, MAX_INPUT, &shown)?
        }
        None => text.to_owned(),
    };
    json::check(&read).map_err(|error| {
        let hint = if text == read && !text.starts_with(['{', '[', '"']) {
            "\n  hint: a text is JSON in double quotes, a file is @NAME"
        } else {
            ""
        };
        Failure::usage(format!("{what} is not JSON: {error}{hint}"))
    })
}

/// `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected is NAME=VALUE".to_owned()),
    }
}

/// A part of a whole: above 0, at most 1.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("expected is a number above 0 and at most 1".to_owned()),
    }
}

/// A number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected is a number above 0".to_owned()),
    }
}

/// What is wrong with a justification that the server would refuse; nothing when it is long enough.
pub(super) fn too_short(justification: &str) -> Option<&'static str> {
    let said = justification.chars().filter(|c| !c.is_whitespace()).count();
    (said < 10).then_some(
        "the justification needs at least 10 characters that are not spaces (reason_required)",
    )
}

/// Whether there is a person who can be asked.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether an editor has a terminal to work on.
pub(super) fn can_edit() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks on the terminal for exactly `wanted`.
///
/// # Errors
/// Refused when there is nobody to ask (`otherwise` says what to do then) or when the answer is another one.
pub(super) fn confirm(question: &str, wanted: &str, otherwise: &str) -> Outcome<()> {
    if !can_ask() {
        return Err(Failure::refused(format!(
            "nothing was done: this has to be confirmed, and there is no terminal to ask on\n  hint: {otherwise}"
        )));
    }
    confirm_on(&mut io::stdin().lock(), &mut io::stderr(), question, wanted)
}

fn confirm_on(
    from: &mut impl BufRead,
    to: &mut impl Write,
    question: &str,
    wanted: &str,
) -> Outcome<()> {
    let _ = write!(to, "{question} ");
    let _ = to.flush();
    let mut answer = String::new();
    let read = from.read_line(&mut answer);
    if read.is_ok() && answer.trim() == wanted {
        Ok(())
    } else {
        Err(Failure::refused("nothing was done"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::exit::Exit;
    use super::*;
    use std::io::Cursor;

    #[test]
    fn json_comes_from_the_argument_or_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"n\": 1e400}\n").unwrap();
        let name = format!("@{}", file.path().display());
        assert_eq!(json_from("x", &name).unwrap().get(), "{\"n\": 1e400}");
        assert_eq!(json_from("x", " [1] ").unwrap().get(), "[1]");
        for bad in ["hello", "@/nowhere/at/all", "{"] {
            assert_eq!(json_from("x", bad).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn only_the_wanted_answer_confirms() {
        for (answer, good) in [
            ("123\n", true),
            (" 123 ", true),
            ("y\n", false),
            ("", false),
        ] {
            let mut shown = Vec::new();
            let asked = confirm_on(&mut Cursor::new(answer), &mut shown, "Type 123:", "123");
            assert_eq!(asked.is_ok(), good, "{answer:?}");
            assert_eq!(shown, b"Type 123: ");
            if let Err(refused) = asked {
                assert_eq!(refused.exit, Exit::Refused);
            }
        }
    }

    #[test]
    fn numbers_are_in_their_ranges() {
        for (text, part, number) in [
            ("0.2", true, true),
            ("1", true, true),
            ("1.5", false, true),
            ("0", false, false),
            ("-1", false, false),
            ("inf", false, false),
            ("NaN", false, false),
            ("x", false, false),
        ] {
            assert_eq!(fraction(text).is_ok(), part, "{text}");
            assert_eq!(positive(text).is_ok(), number, "{text}");
        }
        assert!(too_short(" a b c d e f g h i ").is_some());
        assert!(too_short("a b c d e f g h i j").is_none());
    }

    #[test]
    fn a_pair_has_a_name() {
        assert_eq!(pair("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }
}
