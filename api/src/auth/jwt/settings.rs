//! What an operator says about token issuers: one file, TOML or (with the ending `.json`) JSON.
//!
//! ```toml
//! [[issuer]]
//! name = "login"                        # stands before the subject in audit rows
//! iss = "https://login.example.com/"    # compared exactly
//! audience = ["quita"]                  # one of them must be in `aud`
//! algorithms = ["RS256"]
//! jwks_url = "https://login.example.com/keys"   # or jwks_file, pem_file, secret_file, secret
//! ceiling = ["publish:mail-*", "read"]  # a token allows what it says and this allows
//! scope_claim = "scope"                 # a string with spaces or a list
//! scope_prefix = "quita:"               # taken off; without it a scope is not ours
//! only_access_tokens = true             # `typ` must be at+jwt, so that an ID token opens nothing
//! ```
//!
//! Paths are seen from the folder of the file. Everything is checked at the start; only a URL may fail for a while.

use super::algorithm::Algorithm;
use serde::Deserialize;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Largest file of settings, key or secret in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Most issuers.
pub const MAX_ISSUERS: usize = 16;

/// Text that nobody gets to see: not by `Debug`, and not in memory that was freed.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Hides `text`.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The settings of one issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerSettings {
    /// Short name: `[a-z0-9-]`, at most 32 characters.
    pub name: String,
    /// `iss` of its tokens.
    pub iss: String,
    /// Of which one must be in `aud`.
    pub audience: Vec<String>,
    /// What its tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// Where its keys are served.
    pub jwks_url: Option<String>,
    /// A file with its keys.
    pub jwks_file: Option<PathBuf>,
    /// A file with its one public key.
    pub pem_file: Option<PathBuf>,
    /// The id of the key of `pem_file`; without it a token may name any.
    pub kid: Option<String>,
    /// A file with the secret for HS256; a line end at its end is not part of it.
    pub secret_file: Option<PathBuf>,
    /// The secret itself.
    pub secret: Option<Secret>,
    /// The most that a token may allow.
    pub ceiling: Vec<String>,
    /// The claim with the scopes.
    #[serde(default = "scope_claim")]
    pub scope_claim: String,
    /// What stands before each scope that is ours.
    #[serde(default)]
    pub scope_prefix: String,
    /// Whether only tokens that say so (`typ`, RFC 9068) are access tokens.
    #[serde(default)]
    pub only_access_tokens: bool,
}

fn scope_claim() -> String {
    "scope".to_owned()
}

/// The settings of all issuers, and the folder that their paths are seen from.
#[derive(Clone, Debug, Default)]
pub struct JwtSettings {
    /// In the order of the file.
    pub issuers: Vec<IssuerSettings>,
    /// Relative paths begin here.
    pub folder: PathBuf,
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file could not be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what the documentation shows.
    #[error("{}: {why}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and why. Never with a line of the file, which may hold a secret.
        why: String,
    },
    /// One issuer cannot be used.
    #[error("token issuer \"{issuer}\": {why}")]
    Issuer {
        /// Its name.
        issuer: Box<str>,
        /// Why.
        why: Box<str>,
    },
    /// Too many issuers, or two alike.
    #[error("{0}")]
    Issuers(&'static str),
}

impl JwtSettings {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Document {
            #[serde(default)]
            issuer: Vec<IssuerSettings>,
        }
        let bytes = read(path)?;
        let syntax = |why: String| SettingsError::Syntax {
            path: path.to_owned(),
            why,
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| syntax("it is not UTF-8".into()))?;
        let is_json = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
        let document: Document = if is_json {
            serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error| syntax(without_source(&error, text)))?
        };
        Ok(Self {
            issuers: document.issuer,
            folder: path.parent().map(Into::into).unwrap_or_default(),
        })
    }
}

/// The message alone: the `Display` of the error shows the line.
fn without_source(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map(|span| {
        1 + text
            .bytes()
            .take(span.start)
            .filter(|b| *b == b'\n')
            .count()
    });
    match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

/// A file of bounded size.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, SettingsError> {
    let failed = |error| SettingsError::File {
        path: path.to_owned(),
        error,
    };
    let mut bytes = Zeroizing::new(Vec::new());
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other("it is too large")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "[[issuer]]\nname = 'login'\niss = 'https://login/'\naudience = ['quita']\nalgorithms = ['RS256', 'EdDSA']\njwks_url = 'https://login/keys'\nceiling = ['publish']\n";

    fn load(name: &str, text: &str) -> Result<JwtSettings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        JwtSettings::load(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let json = r#"{"issuer":[{"name":"login","iss":"https://login/","audience":["quita"],"algorithms":["RS256","EdDSA"],"jwks_url":"https://login/keys","ceiling":["publish"]}]}"#;
        let (one, other) = (
            load("a.toml", PLAIN).unwrap(),
            load("a.json", json).unwrap(),
        );
        assert_eq!(format!("{:?}", one.issuers), format!("{:?}", other.issuers));
        assert_eq!(one.issuers[0].scope_claim, "scope");
        assert!(load("empty.toml", "").unwrap().issuers.is_empty());
    }

    #[test]
    fn a_misspelt_setting_or_algorithm_is_refused() {
        for (from, to) in [
            ("ceiling", "cieling"),
            ("'RS256'", "'none'"),
            ("'RS256'", "'HS512'"),
            ("[[issuer]]", "[[issuers]]"),
        ] {
            assert!(load("a.toml", &PLAIN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_secret_is_in_no_message() {
        let secret = "correct horse battery staple, really";
        let hidden = Secret::new(secret.to_owned());
        assert_eq!(
            (hidden.reveal(), &*format!("{hidden:?}")),
            (secret, "Secret(…)")
        );
        let wrong = format!("{PLAIN}secret = '{secret}' oops\n");
        let unknown = format!("{PLAIN}sceret = '{secret}'\n");
        let number = format!("{PLAIN}secret = ['{secret}']\n");
        for text in [wrong, unknown, number] {
            let error = load("a.toml", &text).unwrap_err();
            assert!(
                error.contains("line 8") && !error.contains("horse"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_huge_or_absent_file_is_refused() {
        assert!(
            load("a.toml", &"#".repeat(300_000))
                .unwrap_err()
                .contains("too large")
        );
        let absent = JwtSettings::load(Path::new("/nowhere/at/all.toml"));
        assert!(matches!(absent, Err(SettingsError::File { .. })));
    }
}
