//! An authority of the test's own, the certificates it gives out, and clients that believe it.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, on disk.
pub struct Pair {
    /// The certificate, in DER form.
    pub der: Vec<u8>,
    /// The file of the certificate.
    pub cert: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

impl Pair {
    /// The settings of a server that shows it.
    pub fn arguments(&self) -> [&str; 4] {
        let cert = self.cert.to_str().unwrap();
        ["--tls-cert", cert, "--tls-key", self.key.to_str().unwrap()]
    }
}

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }
}

impl Authority {
    /// Gives a server on this machine a new certificate: `cert.pem` and `key.pem` in `folder`, in place of those before.
    pub fn issue(&self, folder: &Path) -> Pair {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.0).unwrap();
        let pair = Pair {
            der: made.der().to_vec(),
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        };
        fs::write(&pair.cert, made.pem()).unwrap();
        fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }

    /// Writes its own certificate, for clients to believe.
    pub fn write(&self, file: &Path) {
        fs::write(file, self.0.pem()).unwrap();
    }

    /// A client that believes it, and speaks HTTP/1.1 over TLS 1.3 or 1.2.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client_with(&[&version::TLS13, &version::TLS12], b"http/1.1")
    }

    /// A client that believes it and speaks these versions, and this protocol inside.
    pub fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        protocol: &[u8],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }
}
