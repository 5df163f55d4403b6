//! What a person who started the server by hand wants to know: where it is, where the key is, and what to type first.

use crate::auth::first_key::KeyPlace;
use crate::config::{Config, dev};
use std::fmt::Write;
use std::net::SocketAddr;

/// The text. Its commands work as they stand, in the folder that the server was started in.
pub(super) fn text(config: &Config, bound: SocketAddr, key: &KeyPlace) -> String {
    let tls = config.tls.is_on();
    let url = Config::local_url(bound, tls);
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
        KeyPlace::NotNeeded => (
            "not needed: everybody may do everything (--dev-no-auth)".into(),
            String::new(),
        ),
    };
    let curl = curl(config, bound);
    let credentials = match bearer.as_str() {
        "" => String::new(),
        bearer => format!(" -H \"Authorization: Bearer {bearer}\""),
    };
    let mut out = String::new();
    let call = |path: &str, body: Option<&str>| {
        let body = body.map_or(String::new(), |body| {
            format!(" -H 'Content-Type: application/json' -d '{body}'")
        });
        format!("{curl}{credentials}{body} {url}{path}")
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
        call(
            "/v1/queue/publish",
            Some(r#"{"queue":"hello","message":{"n":1}}"#)
        ),
        call("/v1/queue/receive", Some(r#"{"queue":"hello"}"#)),
        call("/v1/queues/hello", None),
    );
    out
}

/// How to call it. The certificate names the server as others call it, so at this machine's own address nobody looks at it:
/// who answers there has been started here. On the way to any other address somebody else could answer, and take the key.
fn curl(config: &Config, bound: SocketAddr) -> String {
    match &config.tls.tls_cert {
        None => "curl -sS".into(),
        Some(_) if dev::is_loopback(bound) || bound.ip().is_unspecified() => "curl -sSk".into(),
        Some(cert) => format!("curl -sS --cacert {}", quoted(&cert.display().to_string())),
    }
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

    #[test]
    fn the_lines_fit_a_server_with_tls_and_one_that_asks_for_no_key() {
        let mut config = Config::default();
        let listen = "127.0.0.1:8080".parse().unwrap();
        let open = text(&config, listen, &KeyPlace::NotNeeded);
        assert!(!open.contains("Authorization") && open.contains("--dev-no-auth"));
        assert!(open.contains("curl -sS http://127.0.0.1:8080/v1/queues/hello"));
        config.tls.tls_cert = Some("c.pem".into());
        let tls = text(&config, listen, &KeyPlace::Environment);
        assert_eq!(tls.matches("curl -sSk -H").count(), 3);
        assert_eq!(tls.matches("https://127.0.0.1:8080/").count(), 4);
        let everywhere = "0.0.0.0:8080".parse().unwrap();
        assert!(text(&config, everywhere, &KeyPlace::Environment).contains("curl -sSk"));
    }

    #[test]
    fn a_key_is_sent_to_no_other_address_without_a_look_at_who_answers() {
        let mut config = Config::default();
        config.tls.tls_cert = Some("/etc/my certs/c.pem".into());
        let listen = "192.0.2.1:8080".parse().unwrap();
        let text = text(&config, listen, &KeyPlace::Environment);
        let checked = "curl -sS --cacert '/etc/my certs/c.pem' -H";
        assert_eq!(text.matches(checked).count(), 3, "{text}");
        assert!(!text.contains("-sSk"), "{text}");
    }
}
