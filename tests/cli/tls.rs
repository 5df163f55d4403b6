//! A server with TLS, and whose word is taken for it.

use crate::run::{prepared, run};
use quita_tests::certificates::Authority;
use quita_tests::server::Process;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

#[test]
fn an_authority_of_ones_own_is_named_by_option_variable_or_profile() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::default());
    let pair = authority.issue(folder.path());
    let server = Process::start(folder.path(), &pair.arguments());
    let key = fs::read_to_string(folder.path().join("data/admin.key")).unwrap();
    let (url, key) = (format!("https://{}", server.address), key.trim());
    let profiles = folder.path().join(".config/quita");
    fs::create_dir_all(&profiles).unwrap();
    let ca = profiles.join("ca.pem");
    authority.write(&ca);
    let ca = ca.to_str().unwrap();
    let list = |more: &[&str], exported: &str| {
        let line = [&["queue", "list"], more].concat();
        let mut command = prepared(folder.path(), &url, key, &line);
        run(command.env("QUITA_CA_CERT", exported), "")
    };
    list(&["--ca-cert", ca], "").ended(0).says("no queues");
    list(&[], ca).ended(0).says("no queues");
    // Nobody vouches for it, or somebody else does.
    list(&[], "").ended(1).says("no answer from https://");
    let other = folder.path().join("other.pem");
    Authority::default().write(&other);
    list(&["--ca-cert", other.to_str().unwrap()], ca).ended(1);
    list(&["--ca-cert", "none.pem"], "")
        .ended(2)
        .says("--ca-cert none.pem: No such file");
    let key_file = pair.key.to_str().unwrap();
    list(&["--ca-cert", key_file], "")
        .ended(2)
        .says("no certificate in PEM form");

    let file = profiles.join("config.toml");
    let text =
        format!("[profiles.here]\nurl = \"{url}\"\napi_key = \"{key}\"\nca_cert = \"ca.pem\"\n");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let line = ["queue", "list", "--profile", "here"];
    run(&mut prepared(folder.path(), "", "", &line), "").ended(0);
}

#[test]
fn health_asks_over_tls_when_the_server_speaks_it() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::default());
    let pair = authority.issue(folder.path());
    let mut server = Process::start(folder.path(), &pair.arguments());
    let listen = server.address.to_string();
    let cert = pair.cert.to_str().unwrap();
    let health = |variables: &[(&str, &str)]| {
        let line = ["health", "--listen", &listen];
        let mut command = prepared(folder.path(), "", "", &line);
        run(command.envs(variables.iter().copied()), "")
    };
    assert_eq!(health(&[("QUITA_TLS_CERT", cert)]).ended(0).out, "ready\n");
    health(&[]).ended(1).says("400");
    server.signal("TERM");
    assert!(server.wait().success());
    health(&[("QUITA_TLS_CERT", cert)])
        .ended(1)
        .says("https://127.0.0.1:");
}
