//! A client that lives through crashes of its server: every call may fail, and says so.

use serde_json::Value;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any call takes, a long poll included.
const PATIENCE: Duration = Duration::from_secs(40);

/// One keep-alive connection, opened when it is needed.
pub struct Client {
    address: SocketAddr,
    key: String,
    stream: Option<TcpStream>,
}

impl Client {
    /// A client of the server at `address`; connects at the first call.
    pub fn new(address: SocketAddr, key: &str) -> Self {
        Self {
            address,
            key: key.to_owned(),
            stream: None,
        }
    }

    /// Status and JSON of the answer.
    ///
    /// # Errors
    /// Whatever broke the connection. Then nobody knows whether the call took effect, and the next call connects again.
    pub async fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let answered = tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await;
        let answer = answered.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    /// [`Client::call`] that must succeed with a 2xx.
    pub async fn must(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(method, path, body).await.unwrap();
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        answer
    }

    async fn exchange(&mut self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(TcpStream::connect(self.address).await?),
        };
        stream.set_nodelay(true)?;
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let media = if body.is_null() {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        let key = &self.key;
        let length = text.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n{media}content-length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{text}").as_bytes()).await?;
        let mut read = Vec::new();
        let (status, start, end) = loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&read[..at]).to_ascii_lowercase();
            let field = |name: &str| {
                head.lines()
                    .find_map(|l| l.strip_prefix(name).map(|v| v.trim().to_owned()))
            };
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|s| s.parse().ok())
                .ok_or(Error::from(ErrorKind::InvalidData))?;
            let length: usize = field("content-length:")
                .and_then(|l| l.parse().ok())
                .unwrap_or(0);
            break (status, at + 4, at + 4 + length);
        };
        while read.len() < end {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let json = if start == end {
            Value::Null
        } else {
            serde_json::from_slice(&read[start..end])?
        };
        Ok((status, json))
    }
}
