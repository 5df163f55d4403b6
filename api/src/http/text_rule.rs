//! What a text of a request may be.

use super::problem::Code;
use std::borrow::Cow;

/// What a text may be.
#[derive(Clone, Copy)]
pub(crate) struct TextRule {
    /// Fewest bytes.
    pub(crate) min: usize,
    /// Most bytes.
    pub(crate) max: usize,
    /// The code for another length.
    pub(crate) length_code: Code,
    /// Control characters, other than line breaks and tabs, are allowed.
    pub(crate) controls: bool,
    /// Line breaks and tabs are allowed.
    pub(crate) lines: bool,
}

impl TextRule {
    /// One line of `min` to `max` bytes.
    pub(crate) const fn line(min: usize, max: usize) -> Self {
        Self {
            min,
            max,
            length_code: if min == 0 {
                Code::TooLong
            } else {
                Code::OutOfRange
            },
            controls: false,
            lines: false,
        }
    }

    /// Several lines of at most `max` bytes.
    pub(crate) const fn prose(max: usize) -> Self {
        Self {
            lines: true,
            ..Self::line(0, max)
        }
    }

    /// Checks a text; `Err` says what is wrong.
    pub(crate) fn check(self, text: &str) -> Result<(), (Code, Cow<'static, str>)> {
        if text.len() < self.min || text.len() > self.max {
            let detail = if self.min == 0 {
                format!("At most {} bytes are allowed.", self.max)
            } else {
                format!("{} to {} bytes are allowed.", self.min, self.max)
            };
            return Err((self.length_code, detail.into()));
        }
        let forbidden = |c: char| {
            c.is_control() && !self.controls && !(self.lines && matches!(c, '\n' | '\r' | '\t'))
        };
        if text.chars().any(forbidden) {
            return Err((
                Code::ControlCharacter,
                "Control characters are not allowed.".into(),
            ));
        }
        Ok(())
    }
}
