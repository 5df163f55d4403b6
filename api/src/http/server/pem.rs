//! A certificate and its private key, from two PEM files to what TLS signs with. Whatever is wrong with them is a sentence
//! that names the file and says what to do; nothing of the key is in it.

use jiff::Timestamp;
use quita_storage::model::Millis;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::time::Time;
use zeroize::Zeroizing;

/// Largest file that is read, in bytes: a chain of four certificates has some 8 KiB.
const MAX_FILE: u64 = 1 << 20;

/// Why two files are not a pair that could be served.
#[derive(Debug, thiserror::Error)]
#[error("the TLS {what} {}: {why}", path.display())]
pub struct PairError {
    what: &'static str,
    path: PathBuf,
    why: Fault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file could not be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is a folder, a pipe or a device, and reading it might never end.
    #[error("it is no ordinary file")]
    NoFile,
    /// It is larger than 1 MiB.
    #[error("it is larger than {MAX_FILE} bytes; is it the right file?")]
    TooLarge,
    /// A PEM section of it is damaged.
    #[error("it is not whole: a PEM section is damaged or has no end")]
    Damaged,
    /// It has no certificate.
    #[error(
        "it holds no certificate in PEM form (BEGIN CERTIFICATE); a file in DER form has to be converted"
    )]
    NoCertificate,
    /// It has no key that could be used.
    #[error(
        "it holds no private key in PEM form (BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY or BEGIN EC PRIVATE KEY); one with a passphrase has to be decrypted first"
    )]
    NoKey,
    /// The first certificate cannot be understood.
    #[error("its first certificate cannot be read ({0})")]
    BadCertificate(String),
    /// The key is of a kind that TLS has no use for.
    #[error(
        "this private key cannot be used ({0}); good are RSA of 2048 bits or more, EC on P-256 or P-384, and Ed25519"
    )]
    BadKey(String),
    /// Certificate and key have nothing to do with each other.
    #[error(
        "it is not the key of the first certificate in {}; the server's own certificate comes first there, and both files have to be of one renewal",
        .0.display()
    )]
    Mismatch(PathBuf),
    /// It ended.
    #[error("it ended at {0}, and no client would take it: renew it, or set this machine's clock")]
    Over(Timestamp),
    /// It has not begun.
    #[error(
        "it is not good before {0}, and no client would take it: wait, or set this machine's clock"
    )]
    NotYet(Timestamp),
}

/// What was in the files.
pub(super) struct Pair {
    pub(super) key: CertifiedKey,
    /// When the certificate ends.
    pub(super) not_after: Timestamp,
}

/// Reads and checks both files, for use at `now`.
pub(super) fn read(cert: &Path, key: &Path, now: Millis) -> Result<Pair, PairError> {
    let of = |what, path: &Path| {
        let path = path.to_owned();
        move |why: Fault| PairError {
            what,
            path: path.clone(),
            why,
        }
    };
    let of_cert = of("certificate", cert);
    let of_key = of("key", key);
    let chain = chain(cert).map_err(&of_cert)?;
    let not_after = check_dates(&chain[0], now).map_err(&of_cert)?;
    let private = private_key(key).map_err(&of_key)?;
    let pair = CertifiedKey::from_der(chain, private, &ring::default_provider());
    let key = pair.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            of_key(Fault::Mismatch(cert.to_owned()))
        }
        Error::InvalidCertificate(error) => of_cert(Fault::BadCertificate(format!("{error:?}"))),
        other => of_key(Fault::BadKey(other.to_string())),
    })?;
    Ok(Pair { key, not_after })
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let pem = bytes(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|_| Fault::Damaged)?;
    if found.is_empty() {
        return Err(Fault::NoCertificate);
    }
    Ok(found)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    PrivateKeyDer::from_pem_slice(&bytes(file)?).map_err(|error| match error {
        PemError::NoItemsFound => Fault::NoKey,
        // Its text may quote the file.
        _ => Fault::Damaged,
    })
}

fn bytes(file: &Path) -> Result<Zeroizing<Vec<u8>>, Fault> {
    // Asked before it is opened: opening a pipe waits for somebody to write.
    if !fs::metadata(file)?.is_file() {
        return Err(Fault::NoFile);
    }
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(file)?
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Fault::TooLarge);
    }
    Ok(bytes)
}

/// Looks at the server's own certificate only: chains hold a link that is over for the sake of old clients, and rightly so.
fn check_dates(own: &CertificateDer<'_>, now: Millis) -> Result<Timestamp, Fault> {
    let own = Certificate::from_der(own).map_err(|e| Fault::BadCertificate(e.to_string()))?;
    let validity = own.tbs_certificate().validity();
    let (begins, ends) = (at(validity.not_before), at(validity.not_after));
    if now < begins.as_millisecond() {
        return Err(Fault::NotYet(begins));
    }
    // The second that is named belongs to it.
    if now >= ends.as_millisecond() + 1_000 {
        return Err(Fault::Over(ends));
    }
    Ok(ends)
}

fn at(time: Time) -> Timestamp {
    let seconds = time.to_unix_duration().as_secs() as i64;
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
