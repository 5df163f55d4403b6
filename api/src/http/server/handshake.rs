//! One connection to a listener with TLS: the handshake, and what lies between the socket and the HTTP library after it.

use super::Stage;
use super::connection::Server;
use super::delivery::Shared;
use super::io::{Tcp, Transport};
use super::tls::Tls;
use super::turn_away::tell;
use crate::http::edge::refuse_at_edge;
use crate::http::problem::{Code, Problem};
use crate::limit::Limit;
use crate::metrics::Metrics;
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Context;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of every handshake.
const HANDSHAKE: u8 = 0x16;

/// What plain HTTP is told.
const USE_TLS: &str = "This port speaks TLS and the request came without it: use https.";

/// Serves a connection that must begin with a handshake. Until the head of its first request has come, one deadline counts.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>, tls: Arc<Tls>, server: Server) {
    let by = Instant::now() + server.bounds.header;
    let mut stage = server.stage.clone();
    let peer = shared.peer();
    let shaken = tokio::select! {
        biased;
        // It has asked for nothing yet.
        _ = stage.wait_for(|stage| *stage != Stage::Open) => return,
        shaken = timeout_at(by, shake(stream, shared.clone(), &tls, &server.metrics)) => shaken,
    };
    match shaken {
        Ok(Ok(Some(stream))) => server.serve(stream, shared).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "no TLS handshake");
            server.metrics.handshake_failed();
        }
        Err(_) => {
            tracing::debug!(%peer, limit = Limit::HeaderTime.name(), "a TLS handshake took too long");
            server.metrics.limited(Limit::HeaderTime);
            server.metrics.handshake_failed();
        }
    }
}

/// `None`: nothing came, or plain HTTP, which was told so.
async fn shake(
    stream: TcpStream,
    shared: Arc<Shared>,
    tls: &Tls,
    metrics: &Metrics,
) -> io::Result<Option<TlsStream<Tcp>>> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        1 if first[0] == HANDSHAKE => {}
        1 if first[0].is_ascii_uppercase() => {
            let problem = Problem::new(Code::TlsRequired, USE_TLS);
            tell(stream, refuse_at_edge(problem, metrics)).await;
            return Ok(None);
        }
        0 => return Ok(None),
        _ => return Err(ErrorKind::InvalidData.into()),
    }
    let acceptor = TlsAcceptor::from(tls.current());
    acceptor.accept(Tcp::new(stream, shared)).await.map(Some)
}

impl Transport for TlsStream<Tcp> {
    /// A client says goodbye inside of the session before it closes, so what the kernel has must be read to know. It is kept
    /// for the next read like anything that came early.
    fn still_there(&mut self, cx: &Context<'_>) -> io::Result<()> {
        let (tcp, session) = self.get_mut();
        let socket = SockRef::from(&tcp.stream);
        while session.wants_read() {
            match session.read_tls(&mut &*socket) {
                Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
                Ok(_) => {
                    let came = session.process_new_packets();
                    let came =
                        came.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    if came.peer_has_closed() {
                        return Err(ErrorKind::ConnectionReset.into());
                    }
                    // The event loop may not tell anybody about bytes that are gone by the time it looks.
                    cx.waker().wake_by_ref();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn holds_back(&self) -> bool {
        self.get_ref().1.wants_write()
    }

    fn tcp(&mut self) -> &mut TcpStream {
        &mut self.get_mut().0.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tls::TlsSettings;
    use futures_util::FutureExt;
    use futures_util::task::noop_waker;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    type Client = tokio_rustls::client::TlsStream<TcpStream>;

    /// Both ends of a session.
    async fn session() -> (TlsStream<Tcp>, Client) {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let settings = TlsSettings {
            tls_cert: Some(cert),
            tls_key: Some(key),
            ..TlsSettings::default()
        };
        let tls = Tls::load(&settings).unwrap().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap());
        let (socket, accepted) = tokio::join!(socket, listener.accept());
        let (stream, peer) = accepted.unwrap();
        let name = ServerName::from(Ipv4Addr::LOCALHOST).to_owned();
        let connector = TlsConnector::from(Arc::new(client));
        let metrics = Metrics::default();
        let (served, called) = tokio::join!(
            shake(stream, Arc::new(Shared::new(peer)), &tls, &metrics),
            connector.connect(name, socket.unwrap())
        );
        (served.unwrap().unwrap(), called.unwrap())
    }

    fn there(server: &mut TlsStream<Tcp>) -> bool {
        let waker = noop_waker();
        server.still_there(&Context::from_waker(&waker)).is_ok()
    }

    #[tokio::test]
    async fn a_client_that_has_gone_is_known_before_the_event_loop_says_so() {
        let (mut server, client) = session().await;
        assert!(there(&mut server) && there(&mut server));
        drop(client);
        assert!(!there(&mut server));
        let (mut server, mut client) = session().await;
        client.shutdown().now_or_never().unwrap().unwrap();
        assert!(!there(&mut server));
        // A goodbye alone is enough, with the socket still open.
        let (mut server, mut client) = session().await;
        let (socket, inside) = client.get_mut();
        inside.send_close_notify();
        inside.write_tls(&mut &*SockRef::from(&*socket)).unwrap();
        assert!(!there(&mut server));
    }

    #[tokio::test]
    async fn what_a_look_finds_is_kept_for_the_next_read() {
        let (mut server, mut client) = session().await;
        client.write_all(b"early").now_or_never().unwrap().unwrap();
        assert!(there(&mut server) && there(&mut server));
        let mut read = [0; 5];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"early");
        assert!(there(&mut server));
    }
}
