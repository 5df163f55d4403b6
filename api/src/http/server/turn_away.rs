//! Connections that are no use to the HTTP library: answered once and closed. Those over the cap by a bounded number of tasks.

use crate::http::edge::refuse_at_edge;
use crate::http::problem::{Code, Problem};
use crate::limit::Limit;
use crate::metrics::Metrics;
use axum::body::to_bytes;
use axum::response::Response;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Connections that are being told so at once; those beyond are closed without a word.
const AT_ONCE: usize = 128;
/// A client that has not read its answer by then will not.
const PATIENCE: Duration = Duration::from_millis(500);

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
    /// Says that there are too many, and closes.
    pub(super) fn answer(&self, stream: TcpStream, metrics: &Metrics) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            metrics.limited(Limit::Connections);
            return;
        };
        let problem = Problem::new(Code::Overloaded, "Too many connections are open.");
        let answer = refuse_at_edge(problem.by(Limit::Connections), metrics);
        tokio::spawn(async move {
            tell(stream, answer).await;
            drop(place);
        });
    }
}

/// Sends an answer to whatever was asked, to a client that takes it soon.
pub(super) async fn tell(mut stream: TcpStream, answer: Response) {
    let answer = written(answer).await;
    let told = async {
        stream.write_all(&answer).await?;
        linger(&mut stream).await
    };
    let _ = tokio::time::timeout(PATIENCE, told).await;
}

/// The last answer of a connection, as it goes over the wire.
async fn written(answer: Response) -> Vec<u8> {
    let (head, body) = answer.into_parts();
    // Problems are built whole: nothing of them can be missing or late.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let mut out = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        out.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    out.extend(
        format!(
            "connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .bytes(),
    );
    out.extend(body);
    out
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
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_goes_over_the_wire_is_a_whole_answer() {
        let metrics = Metrics::default();
        let answer = refuse_at_edge(Problem::from(Code::Overloaded), &metrics);
        let text = String::from_utf8(written(answer).await).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        for line in [
            "connection: close",
            "retry-after: 1",
            &format!("content-length: {}", body.len()),
        ] {
            assert!(head.lines().any(|l| l == line), "{line} in {head}");
        }
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], "overloaded");
    }
}
