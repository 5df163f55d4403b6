//! One client: a connection to each server, kept while it lasts, and no second try.

use bytes::BytesMut;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came of a call.
pub(crate) enum Outcome {
    /// An answer, whole.
    Answer {
        /// Its status.
        status: u16,
        /// Status line and headers, in lower case.
        head: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// None; the word says why.
    Lost(&'static str),
}

/// One client.
pub(crate) struct Caller {
    addresses: Vec<SocketAddr>,
    streams: Vec<Option<TcpStream>>,
    key: String,
}

impl Caller {
    /// A client of these servers, which connects when it calls.
    pub(crate) fn new(addresses: &[SocketAddr], key: &str) -> Self {
        Self {
            addresses: addresses.to_owned(),
            streams: addresses.iter().map(|_| None).collect(),
            key: key.to_owned(),
        }
    }

    /// Sends one request; hangs up when no answer came within `patience`.
    pub(crate) async fn call(
        &mut self,
        server: usize,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> Outcome {
        let stream = self.streams[server].take().filter(is_alive);
        let address = self.addresses[server];
        let request = request(method, path, &self.key, body);
        let asked = exchange(stream, address, &request);
        match tokio::time::timeout(patience, asked).await {
            Ok(Ok((stream, status, head, body))) => {
                self.streams[server] = stream;
                Outcome::Answer { status, head, body }
            }
            Ok(Err(e)) => Outcome::Lost(match e.kind() {
                ErrorKind::ConnectionRefused => "refused",
                ErrorKind::InvalidData => "not_http",
                _ => "reset",
            }),
            Err(_) => Outcome::Lost("timeout"),
        }
    }
}

/// Whether the other side has neither closed the connection nor sent what nobody asked for.
fn is_alive(stream: &TcpStream) -> bool {
    let nothing = stream.try_read(&mut [0]);
    matches!(nothing, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

fn request(method: &str, path: &str, key: &str, body: &str) -> Vec<u8> {
    let media = if body.is_empty() {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{media}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

async fn exchange(
    stream: Option<TcpStream>,
    address: SocketAddr,
    request: &[u8],
) -> Result<(Option<TcpStream>, u16, String, Vec<u8>)> {
    let mut stream = match stream {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    stream.set_nodelay(true)?;
    stream.write_all(request).await?;
    let mut read = BytesMut::with_capacity(16 << 10);
    let end = loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(at) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&read.split_to(end)).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status: u16 = status.ok_or(Error::from(ErrorKind::InvalidData))?;
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(str::trim)
    };
    let length = field("content-length:").and_then(|length| length.parse().ok());
    let length: usize = length.unwrap_or(0);
    while read.len() < length {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    let goes_on = field("connection:") != Some("close");
    Ok((goes_on.then_some(stream), status, head, read.to_vec()))
}
