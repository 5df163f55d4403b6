//! SIGHUP: the certificate is read again, and nobody notices who does not look. Without TLS it is the end of a terminal.

use quita_tests::certificates::{Authority, Pair};
use quita_tests::server::{Process, command};
use quita_tests::wire::Wire;
use std::fs;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

async fn secure(server: &Process, authority: &Authority) -> Wire<TlsStream<TcpStream>> {
    let wire = Wire::to(server.address).await;
    wire.secure(authority.client()).await.unwrap()
}

/// The certificate that a new connection is shown.
async fn shown(server: &Process, authority: &Authority) -> Vec<u8> {
    let wire = secure(server, authority).await;
    let chain = wire.session().peer_certificates().unwrap();
    chain[0].to_vec()
}

fn start(folder: &TempDir, pair: &Pair) -> Process {
    Process::start_heard(folder.path(), &pair.arguments())
}

#[tokio::test]
async fn a_reload_shows_the_new_certificate_and_cuts_no_connection() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::default());
    let first = authority.issue(folder.path());
    let mut server = start(&folder, &first);
    let mut open = secure(&server, &authority).await;
    assert_eq!(open.get("/readyz").await.status, 200);
    assert_eq!(shown(&server, &authority).await, first.der);
    let second = authority.issue(folder.path());
    server.signal("HUP");
    server.says("the TLS certificate was read again", 1).await;
    assert!(server.said().contains("not_after="), "{}", server.said());
    assert_eq!(shown(&server, &authority).await, second.der);
    assert_eq!(open.get("/readyz").await.status, 200);

    // Half of a renewal: the new key is not there yet.
    let key = fs::read_to_string(&second.key).unwrap();
    let third = authority.issue(folder.path());
    let next = fs::read_to_string(&third.key).unwrap();
    for (n, broken) in [&*key, "", &next[..100]].into_iter().enumerate() {
        fs::write(&third.key, broken).unwrap();
        server.signal("HUP");
        server
            .says("the TLS certificate was not taken", n + 1)
            .await;
        assert_eq!(shown(&server, &authority).await, second.der);
    }
    fs::write(&third.key, &next).unwrap();
    server.signal("HUP");
    server.says("the TLS certificate was read again", 2).await;
    assert_eq!(shown(&server, &authority).await, third.der);
    assert_eq!(open.get("/readyz").await.status, 200);
    for secret in [&key, &next] {
        assert!(!server.said().contains(secret.lines().nth(1).unwrap()));
    }

    server.signal("TERM");
    assert!(open.ends_well().await);
    assert_eq!(server.wait().code(), Some(0));
}

/// A pipe that nobody writes to, in place of a file on a file system that hangs.
#[tokio::test]
async fn files_that_cannot_be_read_to_their_end_hold_up_nobody() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::default());
    let pair = authority.issue(folder.path());
    let mut server = start(&folder, &pair);
    fs::remove_file(&pair.cert).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(&pair.cert)
        .status();
    assert!(made.unwrap().success());
    server.signal("HUP");
    assert_eq!(shown(&server, &authority).await, pair.der);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(server.said().contains("stopped"), "{}", server.said());
}

#[tokio::test]
async fn without_tls_the_end_of_its_terminal_stops_it_in_order() {
    let folder = TempDir::new().unwrap();
    let mut server = Process::start_heard(folder.path(), &["--drain-delay-seconds", "1"]);
    server.signal("HUP");
    server.says("stopping", 1).await;
    let mut late = Wire::to(server.address).await;
    assert_eq!(late.get("/readyz").await.status, 503);
    // A second one does not cut that short.
    server.signal("HUP");
    assert!(late.ends_well().await);
    assert_eq!(server.wait().code(), Some(0));
    assert!(server.said().contains("stopped"), "{}", server.said());
}

#[tokio::test]
async fn bad_files_are_a_sentence_and_the_store_is_not_touched() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::default());
    let pair = authority.issue(folder.path());
    let file = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (cert, key) = (file(&pair.cert), file(&pair.key));
    let missing = file(&folder.path().join("none.pem"));
    let began = Instant::now();
    for (arguments, why) in [
        (&["--tls-cert", &cert][..], "go together"),
        (&["--tls-key", &key], "go together"),
        (&["--tls-cert", &missing, "--tls-key", &key], "none.pem"),
        (&["--tls-cert", &cert, "--tls-key", &missing], "none.pem"),
        (&["--tls-cert", &key, "--tls-key", &key], "no certificate"),
        (&["--tls-cert", &cert, "--tls-key", &cert], "no private key"),
    ] {
        let out = command(folder.path()).args(arguments).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.starts_with("quita: ") && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!folder.path().join("data").exists(), "{said}");
    }
    assert!(began.elapsed() < Duration::from_secs(10));
}
