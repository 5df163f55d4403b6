//! What a person who started the server by hand wants to know: where it is, where the key is, and what to type first.

use crate::auth::first_key::KeyPlace;
use crate::config::Config;
use std::fmt::Write;
use std::net::SocketAddr;

/// The text. Its commands work as they stand, in the folder that the server was started in.
pub(super) fn text(config: &Config, bound: SocketAddr, key: &KeyPlace) -> String {
    let url = Config::local_url(bound);
    let (place, bearer) = match key {
        KeyPlace::File { path, new } => {
            let path = path.display().to_string();
            let made = if *new { " (made just now)" } else { "" };
            (format!("{path}{made}"), format!("$(cat {})", quoted(&path)))
        }
        KeyPlace::Environment => ("in QUITA_ADMIN_KEY".into(), "$QUITA_ADMIN_KEY".into()),
        KeyPlace::Elsewhere => (
            "made earlier, and not on this machine".into(),
            "$QUITA_KEY".into(),
        ),
    };
    let mut out = String::new();
    let curl = |path: &str, body: Option<&str>| {
        let body = body.map_or(String::new(), |body| {
            format!(" -H 'Content-Type: application/json' -d '{body}'")
        });
        format!("curl -sS -H \"Authorization: Bearer {bearer}\"{body} {url}{path}")
    };
    let _ = write!(
        out,
        "quita {} serves on {url}\n\
         store      {}\n\
         admin key  {place}\n\n\
         Publish, receive and count:\n\n  {}\n\n  {}\n\n  {}\n\n\
         The interface is described at {url}/docs. Ctrl-C stops.\n",
        env!("CARGO_PKG_VERSION"),
        config.store.shown_url(),
        curl(
            "/v1/queue/publish",
            Some(r#"{"queue":"hello","message":{"n":1}}"#)
        ),
        curl("/v1/queue/receive", Some(r#"{"queue":"hello"}"#)),
        curl("/v1/queues/hello", None),
    );
    out
}

/// A path as a shell inside double quotes inside `$( )` takes it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_name_the_key_file_and_no_secret() {
        let mut config = Config::default();
        config.store.database_url = Some("postgres://u:geheim@h/db".into());
        let key = KeyPlace::File {
            path: "./my data/admin.key".into(),
            new: true,
        };
        let text = text(&config, "0.0.0.0:8080".parse().unwrap(), &key);
        assert!(text.contains(r#""Authorization: Bearer $(cat './my data/admin.key')""#));
        assert!(text.contains("http://127.0.0.1:8080/v1/queues/hello"));
        assert_eq!(text.matches("curl -sS").count(), 3);
        assert!(!text.contains("geheim"));
    }
}
