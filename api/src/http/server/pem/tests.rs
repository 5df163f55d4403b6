//! Pairs of files that are served, and the sentences about those that are not.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::fs;
use tempfile::TempDir;

/// 1 July 2026.
const NOW: Millis = 1_782_864_000_000;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// What is said about this certificate and this key.
    fn said(&self, cert: &str, key: &str) -> String {
        let (cert, key) = (self.put("cert.pem", cert), self.put("key.pem", key));
        match read(&cert, &key, NOW) {
            Ok(pair) => format!("good until {}", pair.not_after),
            Err(error) => error.to_string(),
        }
    }
}

/// A certificate for this key, good in these years.
fn certificate(key: &KeyPair, from: i32, to: i32) -> String {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params.self_signed(key).unwrap().pem()
}

fn section(name: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN {name}-----\n{text}\n-----END {name}-----\n")
}

#[test]
fn each_form_of_a_key_is_taken() {
    let files = Files::new();
    for (pem, name, at) in [
        (
            include_str!("../../../auth/jwt/tests/keys/rsa.pem"),
            "RSA PRIVATE KEY",
            26,
        ),
        (
            include_str!("../../../auth/jwt/tests/keys/p256.pem"),
            "EC PRIVATE KEY",
            29,
        ),
    ] {
        let key = KeyPair::from_pem(pem).unwrap();
        let cert = certificate(&key, 2026, 2027);
        assert_eq!(files.said(&cert, pem), "good until 2027-01-01T00:00:00Z");
        // Inside PKCS#8, behind its head, lies the older form.
        let older = section(name, &key.serialized_der()[at..]);
        assert_eq!(files.said(&cert, &older), "good until 2027-01-01T00:00:00Z");
    }
    let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let chain = certificate(&edwards, 2026, 2030) + &certificate(&edwards, 2001, 2002);
    let said = files.said(&chain, &edwards.serialize_pem());
    assert_eq!(said, "good until 2030-01-01T00:00:00Z");
}

#[test]
fn what_is_wrong_is_said_with_the_file_and_without_the_key() {
    let files = Files::new();
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (cert, pem) = (certificate(&key, 2026, 2027), key.serialize_pem());
    let secret = pem.lines().nth(1).unwrap();
    let cut = &pem[..pem.len() / 2];
    let broken = pem.replace(secret, &format!("!{secret}"));
    let large = "x".repeat(MAX_FILE as usize + 1);
    for (cert, pem, file, why) in [
        ("", &*pem, "cert.pem", "no certificate in PEM form"),
        (&*pem, &pem, "cert.pem", "no certificate in PEM form"),
        (&cert[..200], &pem, "cert.pem", "not whole"),
        (&large, &pem, "cert.pem", "larger than"),
        (
            &section("CERTIFICATE", b"nonsense"),
            &pem,
            "cert.pem",
            "first certificate",
        ),
        (&cert, "", "key.pem", "no private key in PEM form"),
        (&cert, &cert, "key.pem", "no private key in PEM form"),
        (
            &cert,
            &section("ENCRYPTED PRIVATE KEY", b"nonsense"),
            "key.pem",
            "passphrase",
        ),
        (
            &cert,
            &section("PRIVATE KEY", b"nonsense"),
            "key.pem",
            "cannot be used",
        ),
        (&cert, cut, "key.pem", "not whole"),
        (&cert, &broken, "key.pem", "not whole"),
        (
            &cert,
            &other.serialize_pem(),
            "key.pem",
            "not the key of the first certificate in ",
        ),
        (
            &certificate(&key, 2020, 2026),
            &pem,
            "cert.pem",
            "ended at 2026-01-01T00:00:00Z",
        ),
        (
            &certificate(&key, 2027, 2028),
            &pem,
            "cert.pem",
            "not good before 2027-01-01T00:00:00Z",
        ),
    ] {
        let said = files.said(cert, pem);
        assert!(said.contains(why) && said.contains(file), "{said}");
        assert!(!said.contains(secret) && !said.contains('\n'), "{said}");
    }
    let missing = files.0.path().join("none.pem");
    let good = files.put("good.pem", &pem);
    let error = read(&missing, &good, NOW).err().unwrap().to_string();
    assert!(
        error.contains("none.pem") && error.contains("No such file"),
        "{error}"
    );
    let error = read(&files.put("c.pem", &cert), &missing, NOW)
        .err()
        .unwrap();
    assert!(error.to_string().starts_with("the TLS key "), "{error}");
    assert!(!format!("{error:?}").contains(secret));
}

#[test]
fn a_certificate_is_good_from_its_first_to_its_last_second() {
    let key = KeyPair::generate().unwrap();
    let pem = certificate(&key, 2026, 2027);
    let own = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (begins, ends) = (1_767_225_600_000, 1_798_761_600_000);
    for (now, good) in [
        (begins - 1, false),
        (begins, true),
        (ends + 999, true),
        (ends + 1_000, false),
    ] {
        assert_eq!(check_dates(&own, now).is_ok(), good, "{now}");
    }
}

#[test]
fn a_pipe_or_a_folder_is_refused_without_waiting() {
    let files = Files::new();
    let pipe = files.0.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in [&*pipe, files.0.path()] {
        let said = read(path, path, NOW).err().map(|error| error.to_string());
        assert!(said.unwrap().contains("it is no ordinary file"));
    }
}
