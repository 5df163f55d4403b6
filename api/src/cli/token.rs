//! `quita token`: why a token is taken or refused, for whoever runs the server.
//!
//! The caller of a server hears one answer for everything that is wrong with a token. Here the reason is told, since who can
//! read the file of issuers is not who tries tokens.

use super::{Done, say, small_runtime};
use crate::auth::jwt::{MAX_TOKEN_BYTES, Now, Reason, Tokens, Verified};
use clap::{Args, Subcommand};
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Say whether a token (JWT) would be taken, as whom and for what, or why not; the exit code says it too
    #[command(after_help = "EXAMPLES
  quita token check --jwt-issuers issuers.toml < token.txt
  quita token check --jwt-issuers issuers.toml --token-file token.txt
  get-token | QUITA_JWT_ISSUERS=issuers.toml quita token check -")]
    Check(CheckArgs),
}

/// Which token, by which issuers.
#[derive(Args)]
pub(super) struct CheckArgs {
    /// The file that the server is started with
    #[arg(long, env = "QUITA_JWT_ISSUERS", value_name = "FILE")]
    jwt_issuers: PathBuf,

    /// Read the token from this file
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// The token; without it, or as -, it is read from standard input. A command line can be read by others on this machine
    #[arg(value_name = "TOKEN")]
    token: Option<String>,
}

pub(super) fn run(command: TokenCommand) -> Done {
    let TokenCommand::Check(args) = command;
    let tokens = Tokens::load(&args.jwt_issuers)?;
    let token = match (&args.token_file, args.token) {
        (Some(path), _) => {
            let file = File::open(path).map_err(|error| in_file(path, &error))?;
            read(file).map_err(|error| in_file(path, &error))?
        }
        (None, Some(token)) if token != "-" => token.into_bytes(),
        (None, _) => read(io::stdin().lock())?,
    };
    let now = Now::read();
    let checked = small_runtime()?.block_on(tokens.check(bare(&token), now));
    match checked {
        Ok(verified) => {
            say(&taken(&verified, now));
            Ok(())
        }
        Err(reason) => Err(refused(&reason).into()),
    }
}

/// More than is taken, so that a longer one is refused as such, and not all of what has no end.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut token = Vec::new();
    from.take(2 * MAX_TOKEN_BYTES as u64)
        .read_to_end(&mut token)?;
    Ok(token)
}

fn in_file(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Without white space, and without the scheme where a whole header value was given.
fn bare(token: &[u8]) -> &[u8] {
    let token = token.trim_ascii();
    match token.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
        _ => token,
    }
}

fn taken(verified: &Verified, now: Now) -> String {
    let caller = &verified.principal;
    let left = caller.expires_at.map_or(0, |at| (at - now.wall) / 1_000);
    let scopes = if caller.scopes.is_empty() {
        "none: it may do nothing here".to_owned()
    } else {
        caller.scopes.to_string()
    };
    let mut text = format!(
        "The token is taken.\n  caller     {}\n  issuer     {}\n  algorithm  {}\n  scopes     {scopes}\n  ends in    {left} s, leeway included\n",
        caller.id, verified.issuer, verified.algorithm
    );
    for error in &verified.passed_over {
        let _ = writeln!(text, "  passed over: {error}");
    }
    text
}

fn refused(reason: &Reason) -> String {
    let code = if reason.is_unavailable() {
        "issuer_unavailable"
    } else {
        "invalid_token"
    };
    format!("the token is refused ({code}): {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_and_the_scheme_are_not_part_of_a_token() {
        for text in ["a.b.c", " a.b.c\n", "Bearer a.b.c", "bearer  a.b.c \r\n"] {
            assert_eq!(bare(text.as_bytes()), b"a.b.c", "{text}");
        }
        assert_eq!(bare(b"Bearer"), b"Bearer");
        assert_eq!(bare(b"\xff"), b"\xff");
    }

    #[test]
    fn no_more_is_read_than_is_needed_to_refuse_it() {
        let token = read(io::repeat(b'a')).unwrap();
        assert!(token.len() > MAX_TOKEN_BYTES && token.len() <= 2 * MAX_TOKEN_BYTES);
    }
}
