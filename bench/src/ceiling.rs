//! The ceiling: a bare axum handler that parses a JSON body and answers a small one.
//!
//! No store, no authentication, no routing to speak of: what HTTP and JSON alone cost on this machine. Every figure of
//! quita is published as a ratio to this one, measured in the same run, so that the machine cancels out.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::serve::ListenerExt;
use axum::{Json, Router, routing::post};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

#[derive(serde::Serialize)]
struct Answer {
    id: u64,
    status: &'static str,
}

async fn accept(body: Bytes) -> Result<(StatusCode, Json<Answer>), StatusCode> {
    let message: serde_json::Value =
        serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    if message.get("id").is_none() {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok((
        StatusCode::CREATED,
        Json(Answer {
            id: NEXT_ID.fetch_add(1, Relaxed),
            status: "ok",
        }),
    ))
}

/// Serves `POST /m` on `address` with two worker threads until the process is killed.
#[tokio::main(worker_threads = 2)]
pub(crate) async fn serve(address: &str) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await?
        .tap_io(|stream| {
            // A refusal costs latency, not correctness, and shows in the figures.
            let _ = stream.set_nodelay(true);
        });
    axum::serve(listener, Router::new().route("/m", post(accept))).await
}
