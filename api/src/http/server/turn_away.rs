//! Connections over the cap: answered once and closed, by a bounded number of tasks.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Connections that are being told so at once; those beyond are closed without a word.
const AT_ONCE: usize = 128;
/// A client that has not read its answer by then will not.
const PATIENCE: Duration = Duration::from_millis(500);

/// The answer as it goes over the wire.
const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/problem+json\r\n\
x-content-type-options: nosniff\r\n\
cache-control: no-store\r\n\
content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n\
retry-after: 1\r\n\
connection: close\r\n\
content-length: 250\r\n\r\n\
{\"type\":\"/problems/overloaded\",\"title\":\"Overloaded\",\"status\":503,\
\"detail\":\"Too many connections are open.\",\"code\":\"overloaded\",\"retryable\":true,\"effect\":\"none\",\
\"hint\":\"Repeat after the time in Retry-After, and use few connections for many requests.\"}";

pub(super) struct TurnAway {
    places: Arc<Semaphore>,
}

impl Default for TurnAway {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl TurnAway {
    /// Sends the answer and closes.
    pub(super) fn answer(&self, stream: TcpStream) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            tell(stream, ANSWER).await;
            drop(place);
        });
    }
}

/// Sends an answer to whatever was asked, to a client that takes it soon.
pub(super) async fn tell(mut stream: TcpStream, answer: &[u8]) {
    let told = async {
        stream.write_all(answer).await?;
        linger(&mut stream).await
    };
    let _ = tokio::time::timeout(PATIENCE, told).await;
}

/// Says that nothing more will come and takes what the client still sends until it closes. Closing at once with bytes
/// unread would reset the connection, and a reset can overtake the answer.
pub(super) async fn linger(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.shutdown().await?;
    let mut rest = [0u8; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::ANSWER;

    /// The body of an answer, which must be as long as its head says.
    pub(in super::super) fn whole_problem(answer: &[u8]) -> serde_json::Value {
        let text = std::str::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.contains(&length), "{}", body.len());
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn the_answer_is_a_whole_problem() {
        assert_eq!(whole_problem(ANSWER)["code"], "overloaded");
    }
}
