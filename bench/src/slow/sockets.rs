//! Clients that hold a connection as long as they are let.

use crate::Outcome;
use crate::process::{client_sockets, open_sockets, socket_at};
use crate::server::Quita;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant as Clock, sleep, sleep_until, timeout};

/// Time between two bytes of a dripping client.
const DRIP: Duration = Duration::from_secs(1);

/// Receive buffer of a client that does not read, in bytes: the smallest, since the kernel must not read for it.
const SMALL_BUFFER: u32 = 2304;

/// How often it is looked whether the server still has a connection. A look reads a link for each.
const LOOK: Duration = Duration::from_millis(100);

/// How a client is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its head comes a byte a second.
    Head,
    /// Its body comes a byte a second.
    Body,
    /// It asks for a large answer and does not read it.
    Reader,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Head, Self::Body, Self::Reader];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Head => "head that drips",
            Self::Body => "body that drips",
            Self::Reader => "answer that is not read",
        }
    }
}

/// Ports of the clients that do not read.
pub(super) type Readers = Arc<Mutex<HashSet<u16>>>;

/// What a slow client needs to know.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) key: String,
    /// The body of a receive whose answer is larger than what the kernel takes.
    pub(super) receive: String,
    /// A connection that is still open after this is not closed at all.
    pub(super) patience: Duration,
    /// Ports of the connections that the server has not closed, see [`look`].
    pub(super) open: watch::Receiver<HashSet<u16>>,
    /// Where one that does not read says so.
    pub(super) readers: Readers,
    /// Gets a permit for each slow client that is there: it waits, or its answer has begun to come.
    pub(super) there: Arc<Semaphore>,
}

/// Opens a slow connection and holds it until the server ends it. Answers how long that took, counted from when it could begin
/// to wait; `None` when the client lost its patience.
pub(super) async fn hold(target: &Target, kind: Kind) -> Outcome<Option<Duration>> {
    let socket = TcpSocket::new_v4()?;
    if kind == Kind::Reader {
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
    }
    let mut stream = socket.connect(target.address).await?;
    let mut begun = Instant::now();
    let start = match kind {
        Kind::Head => "GET /readyz HTTP/1.1\r\nX-Slow: ".to_owned(),
        Kind::Body => head("publish", &target.key, 1_000) + "{\"queue\":\"",
        Kind::Reader => head("receive", &target.key, target.receive.len()) + &target.receive,
    };
    stream.write_all(start.as_bytes()).await?;
    if kind == Kind::Reader {
        stream.readable().await?;
        // What it took to make the answer is not what the client waits for.
        begun = Instant::now();
        target.readers.lock().insert(stream.local_addr()?.port());
    }
    target.there.add_permits(1);
    let closed = if kind == Kind::Reader {
        timeout(target.patience, ignore(&stream, target.open.clone()))
            .await
            .is_ok_and(|seen| seen.is_ok())
    } else {
        drip(stream, (begun + target.patience).into()).await
    };
    Ok(closed.then(|| begun.elapsed()))
}

fn head(what: &str, key: &str, length: usize) -> String {
    format!(
        "POST /v1/queue/{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// Sends a byte a second until the server answers, which it only does to refuse, or closes. True when it did.
async fn drip(mut stream: TcpStream, by: Clock) -> bool {
    let (mut input, mut output) = stream.split();
    let mut next = Clock::now() + DRIP;
    let mut bytes = [0; 1024];
    loop {
        tokio::select! {
            _ = input.read(&mut bytes) => return true,
            () = sleep_until(next.min(by)) => {
                if next >= by {
                    return false;
                }
                next += DRIP;
                if output.write_all(b"a").await.is_err() {
                    return true;
                }
            }
        }
    }
}

/// Reads nothing. The end of the connection stands behind all that was not read, so this end does not see it: the kernel
/// is asked what the other end is doing.
async fn ignore(stream: &TcpStream, mut open: watch::Receiver<HashSet<u16>>) -> Outcome<()> {
    let port = stream.local_addr()?.port();
    open.wait_for(|open| open.contains(&port)).await?;
    open.wait_for(|open| !open.contains(&port)).await?;
    Ok(())
}

/// Looks again and again which connections of those who do not read the server has not closed, as long as somebody wants to
/// know. Where they are is looked up once: the tables of all sockets are long, and the ordinary callers would notice.
pub(super) async fn look(
    server: &Quita,
    readers: &Readers,
    open: watch::Sender<HashSet<u16>>,
) -> Outcome<()> {
    let clients = client_sockets(server.address)?;
    let sockets = open_sockets(server.id())?;
    let place = |port: &u16| {
        let number = clients.get(port)?;
        Some((*port, *number, *sockets.get(number)?))
    };
    let mut places: Vec<_> = readers.lock().iter().filter_map(place).collect();
    while !open.is_closed() {
        places.retain(|(_, number, at)| socket_at(server.id(), *at) == Some(*number));
        open.send_replace(places.iter().map(|(port, ..)| *port).collect());
        sleep(LOOK).await;
    }
    Ok(())
}
