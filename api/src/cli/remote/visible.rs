//! Text that came from others, made safe for a terminal and honest for a reader.
//!
//! Keys, error texts, payloads and names are whatever somebody sent. Printed as they are, an escape sequence could clear the
//! screen or answer a question, and a direction mark could show `100` where `001` is stored.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal would act on the character, hide it, or let it change the order of its neighbours.
pub(super) fn unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // soft hyphen, Arabic letter mark, Mongolian vowel separator
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // zero width and direction marks; separators; embeddings and overrides
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // word joiner, invisible operators, isolates
            | '\u{2060}'..='\u{206f}'
            // byte order mark, interlinear annotation
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // tags
            | '\u{e0000}'..='\u{e007f}')
}

/// The text with every such character written out: `\n`, `\x1b`, `\u{202e}`. One line.
pub(in crate::cli) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(unseen) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if unseen(c) && u32::from(c) < 0x80 => {
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c if unseen(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_and_direction_marks_are_written_out() {
        for (text, shown) in [
            ("plain text, ключ, 鍵, 🔑", "plain text, ключ, 鍵, 🔑"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\x1b[2J\\x1b]0;title\\x07"),
            ("one\ntwo\r\n\tthree\0", "one\\ntwo\\r\\n\\tthree\\x00"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\x7f"),
            ("a\u{202e}001\u{2066}b", "a\\u{202e}001\\u{2066}b"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    proptest! {
        #[test]
        fn nothing_unseen_is_left(text in any::<String>()) {
            prop_assert!(!visible(&text).chars().any(unseen));
        }
    }
}
