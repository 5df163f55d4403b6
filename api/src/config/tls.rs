//! Settings of TLS on the listener.

use super::count;
use clap::Args;
use std::path::{Path, PathBuf};

/// Which certificate the listener shows, both files or none, and what browsers are told about it.
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

    /// Seconds for which a browser that came over TLS takes nothing but TLS from this host name (Strict-Transport-Security), 0
    /// to 63,072,000. 0: it is told nothing, since that would count for every port of the name, and could not be taken back
    /// where something else there has no TLS. A year is 31536000
    #[arg(long, env = "QUITA_TLS_HSTS_SECONDS", default_value_t = 0, value_parser = count(0, 63_072_000), value_name = "SECONDS")]
    pub tls_hsts_seconds: u64,
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
                ..TlsSettings::default()
            };
            settings.files().map(|files| files.is_some())
        };
        assert_eq!(given(None, None), Ok(false));
        assert_eq!(given(Some("c"), Some("k")), Ok(true));
        assert_eq!(given(Some("c"), None), Err(HalfAPair));
        assert_eq!(given(None, Some("k")), Err(HalfAPair));
    }
}
