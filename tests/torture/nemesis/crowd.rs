//! Clients that do harm without meaning to: many, slow, and gone before their answer.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// How many at once.
const CROWD: usize = 500;

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "slow_clients",
            fits: |_| Fits::Yes,
            run: |cluster, chance| Box::pin(slow(cluster, chance)),
        },
        Kind {
            name: "vanishing_clients",
            fits: |_| Fits::Yes,
            run: |cluster, chance| Box::pin(vanishing(cluster, chance)),
        },
    ]
}

fn some_replica(cluster: &Cluster, chance: &mut StdRng) -> (usize, SocketAddr) {
    let which = chance.random_range(0..cluster.replicas.len());
    (which, cluster.replicas[which].direct)
}

/// Each sends a byte of a request now and then.
async fn slow(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let (which, address) = some_replica(&cluster, &mut chance);
    let dripping = (0..CROWD).map(|_| async move {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            return 0;
        };
        let request = b"POST /v1/queue/publish HTTP/1.1\r\nhost: localhost\r\ncontent-le";
        for byte in request.chunks(1).take(20) {
            if stream.write_all(byte).await.is_err() {
                return 1;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        1
    });
    let connected: usize = join_all(dripping).await.into_iter().sum();
    let detail = format!("{connected} connections dripped for 2 s");
    Ok(Injected::of(&format!("replica {which}"), detail))
}

/// Each waits for messages of a queue that the load does not use. Then one, ten and a hundred messages come, and all hang up.
async fn vanishing(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let (which, address) = some_replica(&cluster, &mut chance);
    let key = &cluster.key;
    let head = |path: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let body = r#"{"queue":"crowd","wait_seconds":10,"visibility_timeout_seconds":1}"#;
    let receive = &head("/v1/queue/receive", body);
    let waiting = join_all((0..CROWD).map(|_| async move {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(receive.as_bytes()).await.ok()?;
        Some(stream)
    }));
    let waiting: Vec<TcpStream> = waiting.await.into_iter().flatten().collect();
    for count in [1, 10, 100] {
        let one = r#"{"message":"for the crowd"}"#;
        let messages = vec![one; count].join(",");
        let body = format!(r#"{{"queue":"crowd","messages":[{messages}]}}"#);
        let Ok(mut stream) = TcpStream::connect(address).await else {
            break;
        };
        let batch = head("/v1/queue/publish-batch", &body);
        let _ = stream.write_all(batch.as_bytes()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let detail = format!("{} receives waited and hung up", waiting.len());
    drop(waiting);
    Ok(Injected::of(&format!("replica {which}"), detail))
}
