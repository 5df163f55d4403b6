//! Reading: one line after the other, also of a packed file, with the digest of what was read.

use super::Line;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The lines of a file.
pub(crate) struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    unpacker: Option<Child>,
    hash: Sha256,
    text: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Of this file; `.gz` and `.zst` are unpacked by `gzip` and `zstd`.
    ///
    /// # Errors
    /// When the file or the program that unpacks it is not there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let program = match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Some("gzip"),
            Some("zst") => Some("zstd"),
            _ => None,
        };
        let file = File::open(path)?;
        let mut lines = Self::of(Box::new(io::empty()));
        lines.from = BufReader::with_capacity(
            1 << 18,
            match program {
                None => Box::new(file),
                Some(program) => {
                    let mut child = Command::new(program)
                        .arg("-dc")
                        .stdin(file)
                        .stdout(Stdio::piped())
                        .spawn()?;
                    let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
                    lines.unpacker = Some(child);
                    Box::new(out)
                }
            },
        );
        Ok(lines)
    }

    fn of(from: Box<dyn Read + Send>) -> Self {
        Self {
            from: BufReader::new(from),
            unpacker: None,
            hash: Sha256::new(),
            text: Vec::new(),
            number: 0,
        }
    }

    /// SHA-256 of the (unpacked) history, as far as it was read: after the last line, of all of it.
    pub(crate) fn sha256(&self) -> String {
        use std::fmt::Write;
        let hash = self.hash.clone().finalize();
        hash.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn line(&mut self) -> io::Result<Option<Line>> {
        self.text.clear();
        if self.from.read_until(b'\n', &mut self.text)? == 0 {
            return self.unpacked().map(|()| None);
        }
        self.number += 1;
        self.hash.update(&self.text);
        let line = serde_json::from_slice(&self.text)
            .map_err(|error| io::Error::other(format!("line {}: {error}", self.number)))?;
        Ok(Some(line))
    }

    /// A packed file that ends early is an error, not a short history.
    fn unpacked(&mut self) -> io::Result<()> {
        match self.unpacker.take() {
            Some(mut child) => {
                let unpacked = child.wait()?.success();
                let error = || io::Error::other("the history could not be unpacked");
                unpacked.then_some(()).ok_or_else(error)
            }
            None => Ok(()),
        }
    }
}

impl Iterator for Lines {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Header, History, Op};

    #[test]
    fn a_packed_history_reads_like_the_plain_one_and_has_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("h.jsonl");
        let history = History::create(&plain, Header::default()).unwrap();
        history.record(Op::default());
        history.finish().unwrap();
        let packed = Command::new("gzip").arg("-k").arg(&plain).status().unwrap();
        assert!(packed.success());
        let read = |path: &Path| {
            let mut lines = Lines::open(path).unwrap();
            (lines.by_ref().map(Result::unwrap).count(), lines.sha256())
        };
        let gz = folder.path().join("h.jsonl.gz");
        assert_eq!(read(&plain).0, 2);
        assert_eq!(read(&plain), read(&gz));
        let whole = std::fs::read(&gz).unwrap();
        std::fs::write(&gz, &whole[..whole.len() - 9]).unwrap();
        let last = Lines::open(&gz).unwrap().last().unwrap();
        assert!(last.is_err(), "a cut file is no short history");
    }

    #[test]
    fn a_line_that_is_no_line_is_named() {
        let mut lines = Lines::of(Box::new(
            &b"{\"event\":{\"kind\":\"healed\"}}\nnonsense\n"[..],
        ));
        assert!(lines.next().unwrap().is_ok());
        let error = lines.next().unwrap().unwrap_err();
        assert!(error.to_string().starts_with("line 2:"), "{error}");
    }
}
