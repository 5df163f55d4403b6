//! One connection to a listener with TLS: the handshake, and what lies between the socket and the HTTP library after it.

use super::Stage;
use super::connection::Server;
use super::delivery::Shared;
use super::io::{Tcp, Transport};
use super::tls::Tls;
use super::turn_away::tell;
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

/// What plain HTTP is answered here, as it goes over the wire.
const USE_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
content-type: application/problem+json\r\n\
connection: close\r\n\
content-length: 216\r\n\r\n\
{\"type\":\"/problems/malformed_request\",\"title\":\"Malformed request\",\"status\":400,\
\"detail\":\"This port speaks TLS and the request came without it: use https.\",\"code\":\"malformed_request\",\
\"retryable\":false,\"effect\":\"none\"}";

/// Serves a connection that must begin with a handshake. Until the head of its first request has come, one deadline counts.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>, tls: Arc<Tls>, server: Server) {
    let by = Instant::now() + server.bounds.header;
    let mut stage = server.stage.clone();
    let peer = shared.peer();
    let shaken = tokio::select! {
        biased;
        // It has asked for nothing yet.
        _ = stage.wait_for(|stage| *stage != Stage::Open) => return,
        shaken = timeout_at(by, shake(stream, shared.clone(), &tls)) => shaken,
    };
    match shaken {
        Ok(Ok(Some(stream))) => server.serve(stream, shared).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS handshake"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
    }
}

/// `None`: it was no TLS, and that was said if it was HTTP.
async fn shake(
    stream: TcpStream,
    shared: Arc<Shared>,
    tls: &Tls,
) -> io::Result<Option<TlsStream<Tcp>>> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        1 if first[0] == HANDSHAKE => {}
        1 if first[0].is_ascii_uppercase() => {
            tell(stream, USE_TLS).await;
            return Ok(None);
        }
        _ => return Ok(None),
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
    use super::super::turn_away::tests::whole_problem;

    #[test]
    fn the_answer_to_plain_http_is_a_whole_problem() {
        assert_eq!(whole_problem(super::USE_TLS)["code"], "malformed_request");
    }
}
