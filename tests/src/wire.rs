//! A client that sends exactly the bytes it is told to, so that it can also send nonsense.

use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};

/// Longer than any answer takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection.
pub struct Wire<S = TcpStream> {
    stream: S,
    read: Vec<u8>,
}

/// One answer, its body whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Status line and headers, as they came.
    pub head: String,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        lines
            .filter_map(|line| line.split_once(": "))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Wire {
    /// Connects.
    pub async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Connects with a receive buffer that soon is full.
    pub async fn narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let stream = socket.connect(address).await.unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Ends the connection with a reset, as a process does that is killed with bytes unread.
    pub fn reset(self) {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }

    /// Shakes hands.
    pub async fn secure(self, client: Arc<ClientConfig>) -> io::Result<Wire<TlsStream<TcpStream>>> {
        let name = ServerName::from(std::net::Ipv4Addr::LOCALHOST).to_owned();
        let shaken = TlsConnector::from(client).connect(name, self.stream);
        Ok(Wire {
            stream: timeout(PATIENCE, shaken).await.expect("no handshake")?,
            read: Vec::new(),
        })
    }
}

impl Wire<TlsStream<TcpStream>> {
    /// What was agreed on, and the certificate that the other side showed.
    pub fn session(&self) -> &ClientConnection {
        self.stream.get_ref().1
    }

    /// Says goodbye in the session and closes.
    pub async fn part(mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Ends the connection with a reset and no goodbye.
    pub fn abort(self) {
        SockRef::from(self.stream.get_ref().0)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Sends these bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends these bytes if the other side still takes them.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Sends a request with a body, and headers as whole lines.
    pub async fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n"
        );
        self.send(format!("{head}{body}")).await;
    }

    /// A request without a body, and its answer.
    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// The next answer, which must come.
    pub async fn answer(&mut self) -> Answer {
        self.next()
            .await
            .expect("the connection was closed without an answer")
    }

    /// The next answer; `None` when the connection ends before one.
    pub async fn next(&mut self) -> Option<Answer> {
        timeout(PATIENCE, self.read_answer())
            .await
            .expect("no answer came")
    }

    /// Whether the other side closes within `patience`, and how long it took.
    pub async fn closes_within(&mut self, patience: Duration) -> Option<Duration> {
        let began = Instant::now();
        let mut rest = [0; 4096];
        let end = async { while matches!(self.stream.read(&mut rest).await, Ok(n) if n > 0) {} };
        timeout(patience, end).await.ok().map(|()| began.elapsed())
    }

    /// Whether the connection ends in order, with nothing more to read: over TLS, with a goodbye in the session.
    pub async fn ends_well(&mut self) -> bool {
        let mut rest = [0; 1];
        let read = timeout(PATIENCE, self.stream.read(&mut rest)).await;
        matches!(read.expect("it does not end"), Ok(0))
    }

    async fn read_answer(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = self.read_chunks().await?;
            return Some(answer);
        }
        let length = answer
            .header("content-length")
            .map_or(0, |n| n.parse().unwrap());
        while self.read.len() < length {
            self.more().await?;
        }
        answer.body = self.read.drain(..length).collect();
        Some(answer)
    }

    /// `None` when the connection ends before the chunk that says that it was the last.
    async fn read_chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = self.read.windows(2).position(|w| w == b"\r\n") {
                    break at;
                }
                self.more().await?;
            };
            let line = String::from_utf8(self.read.drain(..end + 2).collect()).unwrap();
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            while self.read.len() < length + 2 {
                self.more().await?;
            }
            body.extend(self.read.drain(..length));
            self.read.drain(..2);
            if length == 0 {
                return Some(body);
            }
        }
    }

    async fn more(&mut self) -> Option<()> {
        let mut chunk = vec![0; 64 << 10];
        match self.stream.read(&mut chunk).await {
            Ok(n) if n > 0 => {
                self.read.extend_from_slice(&chunk[..n]);
                Some(())
            }
            _ => None,
        }
    }
}
