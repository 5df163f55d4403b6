//! Profiles: servers and keys in a file that nobody but its owner can read.

use super::exit::{Failure, Outcome};
use super::visible::visible;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The profile that is used when none is named.
const DEFAULT_PROFILE: &str = "default";
/// Permissions that anybody but the owner would have.
const OTHERS: u32 = 0o077;

/// An API key. Its `Debug` shows nothing of it.
#[derive(Clone, Deserialize, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl Secret {
    /// The key itself.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profiles {
    profiles: BTreeMap<String, Profile>,
}

/// One of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Profile {
    /// Its server.
    pub(super) url: Option<String>,
    api_key: Option<Secret>,
    /// The authorities that may vouch for it.
    ca_cert: Option<PathBuf>,
}

impl Profile {
    /// The profile's key, which is for its `own` server alone.
    pub(super) fn key_for(&self, given: Option<&str>, own: Option<&str>) -> Option<Secret> {
        let elsewhere = given.is_some() && own.is_some() && given != own;
        if elsewhere && self.api_key.is_some() {
            super::output::talk(
                "The profile's key is for another server, and is not sent to this one.",
            );
        }
        self.api_key.clone().filter(|_| !elsewhere)
    }

    /// The profile's authorities, who vouch for its `own` server alone.
    pub(super) fn ca_cert_for(&self, given: Option<&str>, own: Option<&str>) -> Option<PathBuf> {
        let elsewhere = given.is_some() && own.is_some() && given != own;
        self.ca_cert.clone().filter(|_| !elsewhere)
    }
}

/// The profile asked for; an empty one when none was asked for and there is none.
pub(super) fn profile(named: Option<&str>, file: Option<&Path>) -> Outcome<Profile> {
    let missing = |what: String| match named {
        Some(name) => Err(Failure::usage(format!("profile {}: {what}", visible(name)))),
        None => Ok(Profile::default()),
    };
    let Some(file) = file else {
        return missing("there is no home folder to look for it".into());
    };
    let shown = file.display().to_string();
    let text = match read_private(file) {
        Err(Unread::Missing) => return missing(format!("there is no file {shown}")),
        Err(Unread::Open(mode)) => {
            return Err(Failure::usage(format!(
                "{shown} can be read by others (mode {mode:04o}), and it may hold keys\n  hint: chmod 600 {shown}"
            )));
        }
        Err(Unread::Failed(error)) => {
            return Err(Failure::usage(format!("{shown}: {error}")));
        }
        Ok(text) => text,
    };
    let mut profiles: Profiles = toml::from_str(&text).map_err(|error| {
        // The error's own text may quote the key.
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        Failure::usage(format!(
            "{shown}, line {line}: expected is TOML with [profiles.NAME] and, in it, `url`, `api_key` and `ca_cert`"
        ))
    })?;
    let name = named.unwrap_or(DEFAULT_PROFILE);
    match profiles.profiles.remove(name) {
        Some(mut profile) => {
            let folder = file.parent().unwrap_or(Path::new(""));
            profile.ca_cert = profile.ca_cert.map(|path| folder.join(path));
            Ok(profile)
        }
        None => missing(format!("there is none of this name in {shown}")),
    }
}

/// Why a file was not read.
enum Unread {
    Missing,
    /// Its permissions.
    Open(u32),
    Failed(std::io::Error),
}

/// The text of a file that its owner alone may read. The file that is checked is the one that is read.
fn read_private(path: &Path) -> Result<String, Unread> {
    let read = || -> std::io::Result<Result<String, u32>> {
        let mut file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Ok(Err(mode));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Ok(text))
    };
    match read() {
        Ok(text) => text.map_err(Unread::Open),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Unread::Missing),
        Err(error) => Err(Unread::Failed(error)),
    }
}

/// A variable of the environment that is set and not empty.
#[expect(
    clippy::disallowed_methods,
    reason = "the one home of the variables that may not be options of the command line"
)]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The user's editor, as a shell command.
pub(super) fn editor() -> String {
    variable("VISUAL")
        .or_else(|| variable("EDITOR"))
        .unwrap_or_else(|| "vi".to_owned())
}
