//! Which server, and with which key: from options, from `QUITA_URL` and `QUITA_API_KEY`, or from a profile.
//!
//! What was typed goes before what was exported, and a key is sent to no server but its own. It never comes from the command
//! line, where every user of the machine could read it.

use super::exit::{Failure, Outcome};
use super::profile::{Secret, profile, variable};
use clap::Args;
use etcetera::BaseStrategy;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a server listens that was started without settings.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Options that say which server.
#[derive(Args, Debug, Default)]
pub(super) struct Connection {
    /// The server [default: `QUITA_URL`, else the profile's, else `http://127.0.0.1:8080`]
    #[arg(long, global = true, value_name = "URL", help_heading = "Connection")]
    url: Option<String>,

    /// A profile of `~/.config/quita/config.toml`; goes before `QUITA_URL` and `QUITA_API_KEY` [default: `QUITA_PROFILE`, else
    /// `default`]. A key is never given on the command line
    #[arg(long, global = true, value_name = "NAME", help_heading = "Connection")]
    profile: Option<String>,

    /// PEM file with the authorities that may vouch for an https server, in place of the machine's own [default:
    /// `QUITA_CA_CERT`, else the profile's `ca_cert`]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    ca_cert: Option<PathBuf>,

    /// How long an answer, and each part of it, may take; what can be repeated is tried three times
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=3_600),
        help_heading = "Connection"
    )]
    timeout: u64,
}

/// What the environment says. What was typed goes before it.
#[derive(Default)]
struct Exported {
    url: Option<String>,
    profile: Option<String>,
    key: Option<Secret>,
    ca_cert: Option<PathBuf>,
}

/// A server and what it is called with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Scheme, host, port and perhaps a path; no slash at the end.
    pub(super) url: String,
    pub(super) key: Option<Secret>,
    /// Whose certificates count there; the machine's own authorities without it.
    pub(super) ca_cert: Option<PathBuf>,
}

impl Connection {
    /// The server to call.
    pub(super) fn place(&self) -> Outcome<Place> {
        let exported = Exported {
            url: variable("QUITA_URL"),
            profile: variable("QUITA_PROFILE"),
            key: variable("QUITA_API_KEY").map(Secret),
            ca_cert: variable("QUITA_CA_CERT").map(PathBuf::from),
        };
        let file = etcetera::base_strategy::Xdg::new()
            .ok()
            .map(|folders| folders.config_dir().join("quita/config.toml"));
        let mut place = self.resolve(exported, file.as_deref())?;
        // What was typed goes before all.
        place.ca_cert = self.ca_cert.clone().or(place.ca_cert);
        Ok(place)
    }

    /// How long an answer may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    fn resolve(&self, exported: Exported, file: Option<&Path>) -> Outcome<Place> {
        let typed = said(self.url.as_ref()).map(server).transpose()?;
        if let Some(name) = said(self.profile.as_ref()) {
            return typed_profile(name, typed, exported, file);
        }
        let given = match typed {
            None => said(exported.url.as_ref()).map(server).transpose()?,
            typed => typed,
        };
        let name = said(exported.profile.as_ref());
        // Where everything is said already, the file is not looked at.
        if let (Some(url), Some(key), None) = (&given, &exported.key, name) {
            return Ok(Place {
                url: url.clone(),
                key: Some(key.clone()),
                ca_cert: exported.ca_cert,
            });
        }
        let profile = profile(name, file)?;
        let own = profile.url.as_deref().map(server).transpose()?;
        let own_key = profile.key_for(given.as_deref(), own.as_deref());
        let key = exported.key.or(own_key);
        let own_ca = profile.ca_cert_for(given.as_deref(), own.as_deref());
        let ca_cert = exported.ca_cert.or(own_ca);
        let url = given.or(own).unwrap_or_else(|| DEFAULT_URL.to_owned());
        Ok(Place { url, key, ca_cert })
    }
}

/// A profile that was typed goes before what was exported.
fn typed_profile(
    name: &str,
    typed: Option<String>,
    exported: Exported,
    file: Option<&Path>,
) -> Outcome<Place> {
    let profile = profile(Some(name), file)?;
    let own = profile.url.as_deref().map(server).transpose()?;
    let elsewhere = said(exported.url.as_ref()).map(server).transpose()?;
    let key = profile.key_for(typed.as_deref(), own.as_deref());
    let own_ca = profile.ca_cert_for(typed.as_deref(), own.as_deref());
    let url = typed.or(own).or_else(|| elsewhere.clone());
    let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
    let differs = elsewhere.is_some_and(|elsewhere| elsewhere != url);
    if differs {
        super::output::talk(&format!(
            "The server is {url}, by --profile {name}; QUITA_URL names another one."
        ));
    }
    // An exported key is for the exported server.
    let key = key.or(exported.key.filter(|_| !differs));
    let ca_cert = own_ca.or(exported.ca_cert);
    Ok(Place { url, key, ca_cert })
}

/// A variable that is set to nothing is not set.
fn said(option: Option<&String>) -> Option<&str> {
    option.map(String::as_str).filter(|text| !text.is_empty())
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

#[cfg(test)]
mod tests {
    use super::super::exit::Exit;
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const FILE: &str = "[profiles.default]\nurl = \"https://quita.example/\"\napi_key = \"one\"\n\n[profiles.other]\nurl = \"http://other:1\"\n";

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
            ca_cert: None,
            timeout: 30,
        }
    }

    fn exported(url: &str, key: &str) -> Exported {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Exported {
            url: some(url),
            profile: None,
            key: some(key).map(Secret),
            ca_cert: None,
        }
    }

    #[test]
    fn the_environment_wins_over_the_profile_and_the_profile_over_the_default() {
        let (_folder, path) = with(FILE, 0o600);
        let file = Some(path.as_path());
        let resolve = |url, profile, key: &str| {
            let place = ask(url, profile).resolve(exported("", key), file).unwrap();
            (place.url, place.key.map(|key| key.reveal().to_owned()))
        };
        let one = Some("one".to_owned());
        assert_eq!(
            resolve(None, None, ""),
            ("https://quita.example".into(), one.clone())
        );
        assert_eq!(
            resolve(None, None, "two"),
            ("https://quita.example".into(), Some("two".into()))
        );
        assert_eq!(
            resolve(None, Some("other"), ""),
            ("http://other:1".into(), None)
        );
        assert_eq!(resolve(Some("https://quita.example"), None, "").1, one);
        // The key of one server is not shown to another.
        assert_eq!(resolve(Some("http://else"), None, "").1, None);
        let nothing = ask(None, None).resolve(Exported::default(), None).unwrap();
        assert_eq!((nothing.url.as_str(), nothing.key), (DEFAULT_URL, None));
    }

    #[test]
    fn what_was_typed_goes_before_what_was_exported() {
        let text = format!("{FILE}api_key = \"three\"\n[profiles.bare]\nurl = \"http://bare\"\n");
        let (_folder, path) = with(&text, 0o600);
        let resolve = |url, profile, from: Exported| {
            let place = ask(url, Some(profile)).resolve(from, Some(&path)).unwrap();
            (place.url, place.key.map(|key| key.reveal().to_owned()))
        };
        let three = Some("three".to_owned());
        assert_eq!(
            resolve(None, "other", exported("http://exported", "two")),
            ("http://other:1".into(), three)
        );
        // An exported key is for the exported server.
        assert_eq!(
            resolve(None, "bare", exported("http://exported", "two")),
            ("http://bare".into(), None)
        );
        let two = Some("two".to_owned());
        for url in ["", "http://bare/"] {
            assert_eq!(
                resolve(None, "bare", exported(url, "two")),
                ("http://bare".into(), two.clone())
            );
        }
        assert_eq!(
            resolve(Some("http://typed"), "other", exported("", "")),
            ("http://typed".into(), None)
        );
        let typed = ask(Some("http://typed"), None);
        let place = typed.resolve(exported("http://exported", "two"), None);
        assert_eq!(place.unwrap().url, "http://typed");
    }

    #[test]
    fn the_authorities_of_a_profile_are_for_its_own_server() {
        let text = "[profiles.default]\nurl = \"https://own\"\nca_cert = \"ca.pem\"\n[profiles.far]\nurl = \"https://far\"\nca_cert = \"/etc/far.pem\"\n";
        let (folder, path) = with(text, 0o600);
        let resolve = |url, profile, ca_cert: Option<&str>| {
            let from = Exported {
                ca_cert: ca_cert.map(PathBuf::from),
                ..Exported::default()
            };
            let place = ask(url, profile).resolve(from, Some(&path)).unwrap();
            place.ca_cert
        };
        // A file is named from where the profiles lie.
        let own = Some(folder.path().join("ca.pem"));
        let far = Some(PathBuf::from("/etc/far.pem"));
        let exported = Some(PathBuf::from("e.pem"));
        assert_eq!(resolve(None, None, None), own);
        assert_eq!(resolve(Some("https://own/"), None, None), own);
        assert_eq!(resolve(Some("https://else"), None, None), None);
        assert_eq!(resolve(None, None, Some("e.pem")), exported);
        assert_eq!(resolve(None, Some("far"), Some("e.pem")), far);
        assert_eq!(
            resolve(Some("https://else"), Some("far"), Some("e.pem")),
            exported
        );
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o644, 0o640, 0o602, 0o660] {
            let (_folder, path) = with(FILE, mode);
            let refused = ask(None, None)
                .resolve(Exported::default(), Some(&path))
                .unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
            // It is not even looked at where the environment says everything.
            let place = ask(Some("http://h"), None).resolve(exported("", "k"), Some(&path));
            assert_eq!(place.unwrap().url, "http://h");
        }
        let (_folder, path) = with(FILE, 0o400);
        assert!(
            ask(None, None)
                .resolve(Exported::default(), Some(&path))
                .is_ok()
        );
    }

    #[test]
    fn a_named_profile_must_exist_and_an_error_shows_no_key() {
        let (folder, path) = with(FILE, 0o600);
        for file in [path.clone(), folder.path().join("absent")] {
            let missing = ask(None, Some("third")).resolve(Exported::default(), Some(&file));
            assert_eq!(missing.unwrap_err().exit, Exit::Usage);
        }
        let (_folder, path) = with("[profiles.default]\napi_key = \"geheim\n", 0o600);
        let wrong = ask(None, None)
            .resolve(Exported::default(), Some(&path))
            .unwrap_err();
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
