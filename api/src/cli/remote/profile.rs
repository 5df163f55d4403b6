//! Which server, and with which key: from `QUITA_URL` and `QUITA_API_KEY`, or from a profile in a file of the user's alone.
//!
//! A key never comes from the command line, where every user of the machine could read it.

use super::exit::{Failure, Outcome};
use super::visible::visible;
use clap::Args;
use etcetera::BaseStrategy;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where a server listens that was started without settings.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// The profile that is used when none is named.
const DEFAULT_PROFILE: &str = "default";
/// Permissions that anybody but the owner would have.
const OTHERS: u32 = 0o077;

/// Options that say which server.
#[derive(Args, Debug, Default)]
pub(super) struct Connection {
    /// The server; without it that of the profile, else `http://127.0.0.1:8080`
    #[arg(
        long,
        env = "QUITA_URL",
        hide_env_values = true,
        global = true,
        value_name = "URL",
        help_heading = "Connection"
    )]
    url: Option<String>,

    /// A profile of `$XDG_CONFIG_HOME/quita/config.toml` [default: default]. The key comes from `QUITA_API_KEY` or from the
    /// profile, never from the command line
    #[arg(
        long,
        env = "QUITA_PROFILE",
        global = true,
        value_name = "NAME",
        help_heading = "Connection"
    )]
    profile: Option<String>,
}

/// A server and what it is called with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Scheme, host, port and perhaps a path; no slash at the end.
    pub(super) url: String,
    pub(super) key: Option<Secret>,
}

/// An API key. Its `Debug` shows nothing of it.
#[derive(Clone, Deserialize, PartialEq, Eq)]
pub(super) struct Secret(String);

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

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profile {
    url: Option<String>,
    api_key: Option<Secret>,
}

impl Connection {
    /// The server to call.
    pub(super) fn place(&self) -> Outcome<Place> {
        let key = variable("QUITA_API_KEY").map(Secret);
        let file = etcetera::base_strategy::Xdg::new()
            .ok()
            .map(|folders| folders.config_dir().join("quita/config.toml"));
        self.resolve(key, file.as_deref())
    }

    fn resolve(&self, key: Option<Secret>, file: Option<&Path>) -> Outcome<Place> {
        let given = said(self.url.as_ref()).map(server).transpose()?;
        // Where everything is said already, the file is not looked at.
        if let (Some(url), Some(key), None) = (&given, &key, said(self.profile.as_ref())) {
            let (url, key) = (url.clone(), Some(key.clone()));
            return Ok(Place { url, key });
        }
        let profile = self.profile(file)?;
        let own = profile.url.as_deref().map(server).transpose()?;
        let key = key.or_else(|| {
            // A profile's key is for its own server.
            let elsewhere = given.is_some() && own.is_some() && given != own;
            if elsewhere && profile.api_key.is_some() {
                super::output::talk(
                    "The profile's key is for another server, and is not sent to this one.",
                );
            }
            profile.api_key.filter(|_| !elsewhere)
        });
        let url = given.or(own).unwrap_or_else(|| DEFAULT_URL.to_owned());
        Ok(Place { url, key })
    }

    /// The profile asked for; an empty one when none was asked for and there is none.
    fn profile(&self, file: Option<&Path>) -> Outcome<Profile> {
        let named = said(self.profile.as_ref());
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
                "{shown}, line {line}: expected is TOML with [profiles.NAME] and, in it, `url` and `api_key`"
            ))
        })?;
        let name = named.unwrap_or(DEFAULT_PROFILE);
        match profiles.profiles.remove(name) {
            Some(profile) => Ok(profile),
            None => missing(format!("there is none of this name in {shown}")),
        }
    }
}

/// A variable that is set to nothing is not set.
fn said(option: Option<&String>) -> Option<&str> {
    option.map(String::as_str).filter(|text| !text.is_empty())
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

/// A server's address as it is used from here on.
fn server(url: &str) -> Outcome<String> {
    let url = url.trim_end_matches('/');
    let wrong = |what: &str| Failure::usage(format!("the server's URL {what}"));
    let scheme = url.split("://").next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err(wrong("has to begin with http:// or https://"));
    }
    let parsed: http::Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
    let authority = parsed.authority().ok_or_else(|| wrong("names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong(
            "holds a user name or a password; the key comes from QUITA_API_KEY or from a profile",
        ));
    }
    if parsed.query().is_some() {
        return Err(wrong("has a query"));
    }
    Ok(url.to_owned())
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

#[cfg(test)]
mod tests {
    use super::super::exit::Exit;
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const FILE: &str = "[profiles.default]\nurl = \"https://quita.example/\"\napi_key = \"one\"\n\n[profiles.other]\nurl = \"http://other:1\"\n";

    fn secret(text: &str) -> Secret {
        Secret(text.into())
    }

    fn with(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn ask(url: Option<&str>, profile: Option<&str>) -> Connection {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Connection {
            url: owned(url),
            profile: owned(profile),
        }
    }

    #[test]
    fn the_environment_wins_over_the_profile_and_the_profile_over_the_default() {
        let (_folder, path) = with(FILE, 0o600);
        let file = Some(path.as_path());
        let resolve = |url, profile, key: Option<Secret>| {
            let place = ask(url, profile).resolve(key, file).unwrap();
            (place.url, place.key.map(|key| key.reveal().to_owned()))
        };
        let one = Some("one".to_owned());
        assert_eq!(
            resolve(None, None, None),
            ("https://quita.example".into(), one.clone())
        );
        assert_eq!(
            resolve(None, None, Some(secret("two"))),
            ("https://quita.example".into(), Some("two".into()))
        );
        assert_eq!(
            resolve(None, Some("other"), None),
            ("http://other:1".into(), None)
        );
        assert_eq!(resolve(Some("https://quita.example"), None, None).1, one);
        // The key of one server is not shown to another.
        assert_eq!(resolve(Some("http://else"), None, None).1, None);
        let nothing = ask(None, None).resolve(None, None).unwrap();
        assert_eq!((nothing.url.as_str(), nothing.key), (DEFAULT_URL, None));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o644, 0o640, 0o602, 0o660] {
            let (_folder, path) = with(FILE, mode);
            let refused = ask(None, None).resolve(None, Some(&path)).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
            // It is not even looked at where the environment says everything.
            let place = ask(Some("http://h"), None).resolve(Some(secret("k")), Some(&path));
            assert_eq!(place.unwrap().url, "http://h");
        }
        let (_folder, path) = with(FILE, 0o400);
        assert!(ask(None, None).resolve(None, Some(&path)).is_ok());
    }

    #[test]
    fn a_named_profile_must_exist_and_an_error_shows_no_key() {
        let (folder, path) = with(FILE, 0o600);
        for file in [path.clone(), folder.path().join("absent")] {
            let missing = ask(None, Some("third")).resolve(None, Some(&file));
            assert_eq!(missing.unwrap_err().exit, Exit::Usage);
        }
        let (_folder, path) = with("[profiles.default]\napi_key = \"geheim\n", 0o600);
        let wrong = ask(None, None).resolve(None, Some(&path)).unwrap_err();
        let text = format!("{wrong:?}");
        assert!(
            text.contains("line 2") && !text.contains("geheim"),
            "{text}"
        );
    }

    #[test]
    fn a_url_is_a_place_and_nothing_more() {
        for good in ["http://h", "https://h:1/base/"] {
            assert!(!server(good).unwrap().ends_with('/'));
        }
        for bad in [
            "h:8080",
            "ftp://h",
            "http://",
            "http://u:p@h",
            "http://h/?key=1",
        ] {
            assert_eq!(server(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}
