//! Settings of TLS on the listener.

use clap::Args;
use std::path::{Path, PathBuf};

/// Which certificate the listener shows. Both settings or none.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsSettings {
    /// PEM file with the server's certificate, and after it those that lead to its authority: with it the listener speaks
    /// TLS (1.2 and 1.3), and plain HTTP no longer. Goes with --tls-key. SIGHUP has both files read again; open connections
    /// go on. A certificate that is over or not good yet is refused
    #[arg(long, env = "QUITA_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of that certificate: PKCS#8, PKCS#1 (RSA) or SEC1 (EC), without a passphrase
    #[arg(long, env = "QUITA_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

/// One of the two settings was given without the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--tls-cert and --tls-key go together: give both, or none for plain HTTP")]
pub struct HalfAPair;

impl TlsSettings {
    /// The files of certificate and key; `None`: plain HTTP.
    pub fn files(&self) -> Result<Option<(&Path, &Path)>, HalfAPair> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            _ => Err(HalfAPair),
        }
    }

    /// Whether the listener speaks TLS.
    pub fn is_on(&self) -> bool {
        self.tls_cert.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_pair_is_refused() {
        let given = |cert: Option<&str>, key: Option<&str>| {
            let settings = TlsSettings {
                tls_cert: cert.map(PathBuf::from),
                tls_key: key.map(PathBuf::from),
            };
            settings.files().map(|files| files.is_some())
        };
        assert_eq!(given(None, None), Ok(false));
        assert_eq!(given(Some("c"), Some("k")), Ok(true));
        assert_eq!(given(Some("c"), None), Err(HalfAPair));
        assert_eq!(given(None, Some("k")), Err(HalfAPair));
    }
}
