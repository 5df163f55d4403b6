//! TLS on the listener: a certificate and its key from two files, read at the start and again when somebody asks for it.
//!
//! A pair that no client would accept is served neither at the start nor after a reload: not one that does not fit together,
//! and not a certificate that is over. So a roll-out with the wrong files stops at its first replica, and a reload that fails
//! leaves the pair in use that was good before. A certificate that ends while it is in use stays in use, as there is nothing
//! better: what it says is for the client to judge.

use super::pem::{self, PairError};
use crate::config::tls::{HalfAPair, TlsSettings};
use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use quita_storage::clock;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{self, ServerConfig};

/// The one protocol that is spoken inside.
const ALPN: &[u8] = b"http/1.1";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One setting without the other.
    #[error(transparent)]
    Half(#[from] HalfAPair),
    /// The files are not a pair that could be served.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// rustls does not take them.
    #[error("TLS cannot be used: {0}")]
    Refused(#[from] rustls::Error),
}

/// The pair in use, and where the next one comes from.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
    reading: Mutex<()>,
    hsts: Option<HeaderValue>,
}

impl Tls {
    /// Reads the pair that the settings name; `None`: they name none.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        let Some((cert, key)) = settings.files()? else {
            return Ok(None);
        };
        let pair = pem::read(cert, key, clock::wall())?;
        warn_about(key);
        Ok(Some(Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            current: RwLock::new(server_config(pair.key)?),
            reading: Mutex::new(()),
            hsts: hsts(settings.tls_hsts_seconds),
        }))
    }

    /// Reads the pair again, for connections to come; the log says how it went. After a failure the one before stays.
    /// Sessions cannot be resumed over it: a client that comes again sees the new certificate.
    pub fn reload(&self) {
        // Whoever asks last also reads last.
        let _one = self.reading.lock();
        match self.read_again() {
            Ok(not_after) => {
                tracing::info!(certificate = %self.cert.display(), %not_after, "the TLS certificate was read again");
            }
            Err(error) => {
                tracing::error!(%error, "the TLS certificate was not taken: the one before stays in use");
            }
        }
    }

    /// For the next handshake.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.read().clone()
    }

    /// What every answer over TLS says about TLS (RFC 6797), if anything.
    pub(super) fn hsts(&self) -> Option<HeaderValue> {
        self.hsts.clone()
    }

    fn read_again(&self) -> Result<jiff::Timestamp, TlsError> {
        let pair = pem::read(&self.cert, &self.key, clock::wall())?;
        *self.current.write() = server_config(pair.key)?;
        Ok(pair.not_after)
    }
}

/// Whoever reads the key is this server to every client.
fn warn_about(key: &Path) {
    let mode = fs::metadata(key).map_or(0, |found| found.permissions().mode());
    if mode & 0o044 != 0 {
        let mode = format!("{:03o}", mode & 0o777);
        tracing::warn!(key = %key.display(), mode, "the TLS key can be read by others than its owner: mode 400 is enough");
    }
}

fn hsts(seconds: u64) -> Option<HeaderValue> {
    let said = (seconds > 0).then(|| format!("max-age={seconds}"))?;
    HeaderValue::try_from(said).ok()
}

fn server_config(key: CertifiedKey) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reload_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
        let write = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&cert, made.cert.pem()).unwrap();
            fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        };
        write();
        let settings = TlsSettings {
            tls_cert: Some(cert.clone()),
            tls_key: Some(key.clone()),
            ..TlsSettings::default()
        };
        let tls = Tls::load(&settings).unwrap().unwrap();
        let first = tls.current();
        fs::write(&key, "half of it").unwrap();
        tls.reload();
        assert!(Arc::ptr_eq(&first, &tls.current()));
        write();
        tls.reload();
        assert!(!Arc::ptr_eq(&first, &tls.current()));
        assert!(Tls::load(&TlsSettings::default()).unwrap().is_none());
    }
}
