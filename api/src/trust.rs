//! Whose certificates are believed when this program calls a server.

use rustls_native_certs::CertificateResult;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

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
    /// A part of it is no certificate, and perhaps the one that was meant.
    #[error("it is not whole: a section is damaged, has no end or is no certificate")]
    Damaged,
}

/// The machine's own authorities, so that a company's own one counts; Mozilla's where the machine has none. Where it has some
/// that cannot be read nobody is believed: they may be there to keep Mozilla's out.
pub fn machine() -> TlsConfig {
    let roots = roots_of(&rustls_native_certs::load_native_certs());
    TlsConfig::builder().root_certs(roots).build()
}

fn roots_of(found: &CertificateResult) -> RootCerts {
    if found.certs.is_empty() && found.errors.is_empty() {
        return RootCerts::WebPki;
    }
    for error in &found.errors {
        tracing::warn!(%error, "some of this machine's authorities could not be read");
    }
    let own: Vec<_> = found
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    RootCerts::new_with_certs(&own)
}

/// The authorities in this PEM file, and no others.
pub fn only(file: &Path) -> Result<TlsConfig, TrustError> {
    let mut pem = Vec::new();
    File::open(file)?.take(MAX_FILE + 1).read_to_end(&mut pem)?;
    if pem.len() as u64 > MAX_FILE {
        return Err(TrustError::TooLarge);
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|_| TrustError::Damaged)?;
    if found.is_empty() {
        return Err(TrustError::NoCertificate);
    }
    // The client would leave out what it cannot read.
    let mut readable = RootCertStore::empty();
    for certificate in &found {
        let added = readable.add(certificate.clone());
        added.map_err(|_| TrustError::Damaged)?;
    }
    let found: Vec<_> = found
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
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

    #[test]
    fn a_file_that_is_damaged_anywhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let good = made.cert.pem();
        let cut = &good[..good.len() - 40];
        let no_base64 = good.replacen("MII", "M!!", 1);
        let no_certificate =
            "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n";
        for bad in [cut, &no_base64, no_certificate] {
            for text in [bad.to_owned(), format!("{good}{bad}")] {
                std::fs::write(&file, &text).unwrap();
                assert!(matches!(only(&file), Err(TrustError::Damaged)), "{text}");
            }
        }
    }

    #[test]
    fn mozillas_authorities_count_only_where_the_machine_has_none() {
        let none = CertificateResult::default();
        assert!(matches!(roots_of(&none), RootCerts::WebPki));
        let mut unreadable = CertificateResult::default();
        unreadable.errors.push(rustls_native_certs::Error {
            context: "reading",
            kind: rustls_native_certs::ErrorKind::Os("no permission".into()),
        });
        let believed = roots_of(&unreadable);
        assert!(matches!(believed, RootCerts::Specific(some) if some.is_empty()));
    }
}
