//! A TCP proxy that misbehaves as it is told: between clients and a server, or between a server and its database.

use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How it behaves. A change counts for open connections too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Bytes pass.
    Pass,
    /// Nothing passes, nobody is told; what waits passes later.
    BlackHole,
    /// Requests pass, answers wait: the server believes in a client that hears nothing.
    HalfOpen,
    /// Every connection is reset.
    Reset,
    /// Requests pass; in place of an answer the connection is reset.
    LoseAnswers,
    /// Every piece waits.
    Delay(Duration),
    /// Every byte is a packet of its own.
    Drip,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Answer,
}

/// A listener that passes on to one address. Ends when dropped, its connections by themselves.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    upstream: Arc<watch::Sender<SocketAddr>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a port of its own.
    pub(crate) async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mode = watch::Sender::new(Mode::Pass);
        let told = mode.subscribe();
        let upstream = Arc::new(watch::Sender::new(upstream));
        let target = upstream.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, *target.borrow(), told.clone()));
            }
        });
        Ok(Self {
            address,
            mode,
            upstream,
            accepting,
        })
    }

    /// Behaves so from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Passes new connections on to another address.
    pub(crate) fn lead_to(&self, upstream: SocketAddr) {
        self.upstream.send_replace(upstream);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connection(client: TcpStream, upstream: SocketAddr, mut mode: watch::Receiver<Mode>) {
    let begun = mode
        .wait_for(|mode| *mode != Mode::BlackHole)
        .await
        .map(|mode| *mode);
    let server = match begun {
        Ok(Mode::Reset) | Err(_) => None,
        Ok(_) => TcpStream::connect(upstream).await.ok(),
    };
    let Some(server) = server else {
        reset(&client);
        return;
    };
    // Small packets must not wait for each other: the delays are ours to choose.
    let _ = client.set_nodelay(true).and(server.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let up = pump(client_read, server_write, Way::Request, mode.clone());
    let down = pump(server_read, client_write, Way::Answer, mode);
    // An end in order lets the other way go on, a broken one takes it along.
    let _ = tokio::try_join!(up, down);
}

/// Passes on until the end; an error resets both sides.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut mode: watch::Receiver<Mode>,
) -> Result<(), ()> {
    let mut piece = vec![0; 64 << 10];
    let passed = loop {
        let read = tokio::select! {
            read = from.read(&mut piece) => read,
            _ = mode.wait_for(|mode| *mode == Mode::Reset) => break Err(()),
        };
        match read {
            Ok(0) => break Ok(()),
            Ok(n) => {
                if pass(&piece[..n], &mut to, way, &mut mode).await.is_err() {
                    break Err(());
                }
            }
            Err(_) => break Err(()),
        }
    };
    if passed.is_ok() {
        let _ = to.shutdown().await;
    } else {
        reset(from.as_ref());
        reset(to.as_ref());
    }
    passed
}

async fn pass(
    piece: &[u8],
    to: &mut OwnedWriteHalf,
    way: Way,
    mode: &mut watch::Receiver<Mode>,
) -> Result<(), ()> {
    loop {
        let now = *mode.borrow_and_update();
        match now {
            Mode::BlackHole => {}
            Mode::HalfOpen if way == Way::Answer => {}
            Mode::Reset => return Err(()),
            Mode::LoseAnswers if way == Way::Answer => return Err(()),
            Mode::Delay(time) => {
                tokio::time::sleep(time).await;
                return to.write_all(piece).await.map_err(drop);
            }
            Mode::Drip => {
                for byte in piece {
                    to.write_all(&[*byte]).await.map_err(drop)?;
                }
                return Ok(());
            }
            Mode::Pass | Mode::HalfOpen | Mode::LoseAnswers => {
                return to.write_all(piece).await.map_err(drop);
            }
        }
        mode.changed().await.map_err(drop)?;
    }
}

/// Lets the socket's end be a reset.
fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream) -> io::Result<[u8; 4]> {
        stream.write_all(b"ping").await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn bytes_pass_whole_and_in_drops() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert_eq!(ask(&mut stream).await.unwrap(), *b"ping");
        proxy.set(Mode::Drip);
        assert_eq!(ask(&mut stream).await.unwrap(), *b"ping");
    }

    #[tokio::test]
    async fn a_reset_and_a_lost_answer_end_the_connection() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        for mode in [Mode::Reset, Mode::LoseAnswers] {
            proxy.set(Mode::Pass);
            let mut stream = TcpStream::connect(proxy.address).await.unwrap();
            assert_eq!(ask(&mut stream).await.unwrap(), *b"ping");
            proxy.set(mode);
            assert!(ask(&mut stream).await.is_err());
        }
    }

    #[tokio::test]
    async fn what_waits_in_a_black_hole_passes_when_it_is_healed() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        for mode in [Mode::BlackHole, Mode::HalfOpen] {
            proxy.set(mode);
            let asked = tokio::time::timeout(Duration::from_millis(100), ask(&mut stream)).await;
            assert!(asked.is_err(), "nothing passes");
            proxy.set(Mode::Pass);
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, *b"ping");
        }
    }
}
