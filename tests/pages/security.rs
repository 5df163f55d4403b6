//! docs/SECURITY.md: its pattern for secret scanners, and the tests that it calls as witnesses.

use quita_api::auth::ApiKey;
use regex::Regex;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn page() -> String {
    fs::read_to_string(Path::new(ROOT).join("docs/SECURITY.md")).unwrap()
}

fn pattern() -> Regex {
    let page = page();
    let (_, rest) = page.split_once("\n```regex\n").unwrap();
    let (pattern, _) = rest.split_once("\n```").unwrap();
    Regex::new(pattern).unwrap()
}

/// As the page says it, without the crate that makes keys: CRC-32 (IEEE), in base 62, six digits.
fn checksum(text: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let crc = text.bytes().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    });
    let mut rest = !crc;
    let mut digits = [0u8; 6];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    String::from_utf8(digits.to_vec()).unwrap()
}

#[test]
fn the_published_pattern_finds_every_key_wherever_it_stands() {
    let pattern = pattern();
    for _ in 0..1_000 {
        let key = ApiKey::generate().unwrap();
        let key = key.reveal();
        for around in ["", "export QUITA_API_KEY=", "{\"key\": \"", "Bearer "] {
            let text = format!("{around}{key}\"\n");
            assert_eq!(pattern.find(&text).map(|found| found.as_str()), Some(key));
        }
        assert_eq!(checksum(&key[..60]), key[60..], "{key}");
    }
}

#[test]
fn the_published_pattern_finds_nothing_else() {
    let pattern = pattern();
    let key = ApiKey::generate().unwrap();
    let key = key.reveal();
    for text in [
        &key[..65],
        &format!("{key}a"),
        &format!("x{key}"),
        &key.replacen("qta_", "gho_", 1),
        &key.replacen("qta_", "QTA_", 1),
        &format!("qta_{}1{}", &key[4..15], &key[16..]),
        &format!("qta_{}-{}", &key[4..16], &key[17..]),
        "qta_k7f2mx3q5sv4_…",
        "msg_02mx3k8s9qv40",
    ] {
        assert!(!pattern.is_match(text), "{text}");
    }
    // What has the form and no good checksum is no key.
    let end = if key.ends_with('0') { "1" } else { "0" };
    let made_up = format!("{}{end}", &key[..65]);
    assert!(pattern.is_match(&made_up) && ApiKey::parse(&made_up).is_none());
    assert_ne!(checksum(&made_up[..60]), made_up[60..]);
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = page();
    let named = Regex::new(r"`((?:api|storage|tests)/[a-z_/]+\.rs)::([a-z0-9_]+)`").unwrap();
    let mut count = 0;
    for found in named.captures_iter(&page) {
        let source = fs::read_to_string(Path::new(ROOT).join(&found[1])).unwrap_or_default();
        assert!(
            source.contains(&format!("fn {}(", &found[2])),
            "{}",
            &found[0]
        );
        count += 1;
    }
    assert!(count > 30, "{count}");
}
