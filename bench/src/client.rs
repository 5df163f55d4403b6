//! The cheapest client that still speaks HTTP/1.1: one raw socket, requests built once, answers hardly parsed.
//!
//! Load and server share the machine, so every microsecond spent here is taken from the server's figure. A request is
//! one `write`, an answer one `read`; between requests only a few digits change in place.

use memchr::memmem;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Stands in a request's body where [`Request::number`] writes the serial number: unique in every request.
pub(crate) const SERIAL: &str = "SERIAL__________";
/// Stands in a request's body where [`Request::number`] writes the time of sending.
pub(crate) const STAMP: &str = "STAMP___________";

/// A request that is built once and sent many times.
#[derive(Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    serials: Vec<usize>,
    stamps: Vec<usize>,
}

impl Request {
    /// A request with a JSON body.
    pub(crate) fn new(method: &str, path: &str, key: Option<&str>, body: &str) -> Self {
        let bearer = key.map_or(String::new(), |key| {
            format!("Authorization: Bearer {key}\r\n")
        });
        let bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{bearer}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes();
        let places = |mark: &str| memmem::find_iter(&bytes, mark).collect();
        Self {
            serials: places(SERIAL),
            stamps: places(STAMP),
            bytes,
        }
    }

    /// Writes 16 digits over each [`SERIAL`] and [`STAMP`].
    pub(crate) fn number(&mut self, serial: u64, stamp: u64) {
        for (places, value) in [(&self.serials, serial), (&self.stamps, stamp)] {
            for at in places {
                let mut rest = value;
                for digit in self.bytes[*at..*at + SERIAL.len()].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
    }

    /// The request as it goes over the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What came back.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    /// The characters between the first `before` and the next quotation mark.
    pub(crate) fn text_after(&self, before: &str) -> Option<&str> {
        let start = memmem::find(self.body, before.as_bytes())? + before.len();
        let length = memchr::memchr(b'"', &self.body[start..])?;
        std::str::from_utf8(&self.body[start..start + length]).ok()
    }

    /// An error that quotes the answer.
    pub(crate) fn unexpected(&self) -> Error {
        Error::other(format!(
            "HTTP {}: {}",
            self.status,
            String::from_utf8_lossy(self.body)
        ))
    }
}

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Vec::with_capacity(16 << 10),
        })
    }

    /// Sends one request and reads its whole answer, which must carry a `content-length`.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.input.clear();
        let mut whole = None;
        loop {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if whole.is_none() {
                whole = head(&self.input)?;
            }
            if let Some((start, end)) = whole
                && self.input.len() >= end
            {
                return Ok(Answer {
                    status: status(&self.input)?,
                    body: &self.input[start..end],
                });
            }
        }
    }
}

/// Where the body begins and ends; `None` while the head is not complete.
fn head(input: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(end) = memmem::find(input, b"\r\n\r\n") else {
        return Ok(None);
    };
    for line in input[..end].split(|byte| *byte == b'\n').skip(1) {
        if let Some((name, value)) = line.split_at_checked(15)
            && name.eq_ignore_ascii_case(b"content-length:")
        {
            let length: usize = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .ok_or(ErrorKind::InvalidData)?;
            return Ok(Some((end + 4, end + 4 + length)));
        }
    }
    Err(Error::new(
        ErrorKind::InvalidData,
        "an answer without content-length",
    ))
}

fn status(input: &[u8]) -> Result<u16> {
    input
        .get(9..12)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Error::new(ErrorKind::InvalidData, "an answer without status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_place() {
        let mut request = Request::new(
            "POST",
            "/m",
            Some("k"),
            &format!("{{\"id\":\"{SERIAL}-{STAMP}\"}}"),
        );
        let before = request.bytes().len();
        request.number(42, 7);
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        assert!(text.ends_with("{\"id\":\"0000000000000042-0000000000000007\"}"));
        assert_eq!(text.len(), before);
    }

    #[test]
    fn an_incomplete_head_waits_for_more() {
        assert!(
            head(b"HTTP/1.1 201 Created\r\ncontent-le")
                .unwrap()
                .is_none()
        );
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(head(whole).unwrap(), Some((whole.len() - 2, whole.len())));
        assert_eq!(status(whole).unwrap(), 201);
    }
}
