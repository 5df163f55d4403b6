//! Runs the binary and keeps what came of it.

use quita_tests::server::command;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// What was printed, of a command that has to have ended like this.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }

    /// Standard error has this in it.
    #[track_caller]
    pub(crate) fn says(self, part: &str) -> Self {
        assert!(
            self.err.contains(part),
            "{part:?} is missing in\n{}",
            self.err
        );
        self
    }

    /// The lines of standard output.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

/// The binary with a server and a key, in a folder of its own.
pub(crate) fn prepared(folder: &Path, url: &str, key: &str, line: &[&str]) -> Command {
    let mut command = command(folder);
    command
        .env("HOME", folder)
        .env("QUITA_URL", url)
        .env("QUITA_API_KEY", key)
        .args(line);
    command
}

/// Runs it to its end with this standard input.
pub(crate) fn quita(url: &str, key: &str, line: &[&str], input: &str) -> Ran {
    let folder = TempDir::new().unwrap();
    run(&mut prepared(folder.path(), url, key, line), input)
}

/// Runs any command to its end.
pub(crate) fn run(command: &mut Command, input: &str) -> Ran {
    let mut child = started(command);
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    finished(child)
}

/// Starts a command with its input and output in our hands.
pub(crate) fn started(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a command.
pub(crate) fn finished(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it on a terminal of its own, where a person types `input`. Both outputs come as one.
pub(crate) fn on_terminal(url: &str, line: &[&str], input: &str) -> Ran {
    let folder = TempDir::new().unwrap();
    let plain = prepared(folder.path(), url, "the-key", line);
    at_a_terminal(&plain, input)
}

/// [`on_terminal`], for a command that is prepared already.
pub(crate) fn at_a_terminal(plain: &Command, input: &str) -> Ran {
    let words = [plain.get_program()].into_iter().chain(plain.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let shown = format!("stty cols 80 rows 24; {}", words.join(" "));
    let mut command = Command::new("script");
    command
        .env_clear()
        .env("TERM", "xterm")
        .env("PATH", "/usr/bin:/bin");
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    if let Some(folder) = plain.get_current_dir() {
        command.current_dir(folder);
    }
    command.args(["-q", "-e", "-c", &shown, "/dev/null"]);
    run(&mut command, input)
}
