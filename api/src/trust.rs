//! Whose certificates are believed when this program calls a server.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Largest file of authorities, in bytes: five times what a distribution ships.
const MAX_FILE: u64 = 1 << 20;

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It could not be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is larger than 1 MiB.
    #[error("it is larger than {MAX_FILE} bytes")]
    TooLarge,
    /// There is nothing in it that could be believed.
    #[error("it holds no certificate in PEM form (BEGIN CERTIFICATE)")]
    NoCertificate,
}

/// The machine's own authorities, so that a company's own one counts; Mozilla's where the machine has none.
pub fn machine() -> TlsConfig {
    let own: Vec<_> = rustls_native_certs::load_native_certs()
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    let roots = if own.is_empty() {
        RootCerts::WebPki
    } else {
        RootCerts::new_with_certs(&own)
    };
    TlsConfig::builder().root_certs(roots).build()
}

/// The authorities in this PEM file, and no others.
pub fn only(file: &Path) -> Result<TlsConfig, TrustError> {
    let mut pem = Vec::new();
    File::open(file)?.take(MAX_FILE + 1).read_to_end(&mut pem)?;
    if pem.len() as u64 > MAX_FILE {
        return Err(TrustError::TooLarge);
    }
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(TrustError::NoCertificate);
    }
    let roots = RootCerts::new_with_certs(&found);
    Ok(TlsConfig::builder().root_certs(roots).build())
}

/// Whoever answers: for a question to this machine that carries no secret, whose answer decides nothing elsewhere.
pub fn anybody() -> TlsConfig {
    TlsConfig::builder().disable_verification(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        assert!(matches!(only(&file), Err(TrustError::Unreadable(_))));
        std::fs::write(&file, "no PEM").unwrap();
        assert!(matches!(only(&file), Err(TrustError::NoCertificate)));
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&file, key.serialize_pem()).unwrap();
        assert!(matches!(only(&file), Err(TrustError::NoCertificate)));
        std::fs::write(&file, vec![b'x'; MAX_FILE as usize + 1]).unwrap();
        assert!(matches!(only(&file), Err(TrustError::TooLarge)));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let two = format!("a comment\n{0}{0}", made.cert.pem());
        std::fs::write(&file, two).unwrap();
        assert!(only(&file).is_ok());
    }
}
