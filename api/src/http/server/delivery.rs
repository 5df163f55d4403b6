//! When an answer counts as delivered.
//!
//! A receive parks its leases here. They count as delivered once the HTTP library has taken the whole body of the answer
//! and has then flushed: it flushes the socket only when its own buffer is empty, so at that moment the last byte is in the
//! kernel. TLS keeps bytes too, and its flush ends when they have gone the same way. A connection that ends before drops the leases, and a drop gives them back (product 4.6).
//!
//! The same place knows what the connection is doing and since when, because both come from the same events.

use super::Bounds;
use crate::limit::Limit;
use parking_lot::Mutex;
use quita_storage::coalescer::Held;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// The connection that a request came on; every request carries one as an extension.
#[derive(Clone)]
pub struct Connection(pub(super) Arc<Shared>);

impl Connection {
    /// Keeps leases until the answer to the present request has left, then counts them as delivered. When the answer turns
    /// out to be no success, or does not leave, they are given back.
    pub fn hold(&self, held: Held) {
        if !held.is_empty() {
            self.0.state.lock().parked.push(held);
        }
    }

    /// Who is on the other side.
    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request has begun, or the first one is awaited.
    Head,
    /// A request is being served.
    Busy,
    /// Between two requests.
    Idle,
}

pub(super) struct Shared {
    peer: SocketAddr,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    since: Instant,
    /// The client has taken nothing since.
    stalled: Option<Instant>,
    /// Leases in the answer that is being made.
    parked: Vec<Held>,
    /// Leases in an answer that the HTTP library has taken in whole.
    taken: Vec<Held>,
    /// An answer was taken in whole and not flushed yet.
    answered: bool,
    /// The body of the present request has not come to its end.
    unread: bool,
    lines: Lines,
}

/// Looks through the head of a request for a line feed without a carriage return. Some servers end a line there and some do
/// not, and requests are smuggled between the two. A head that came in one piece with the request before it is not looked
/// through: it could only smuggle past a proxy that pipelines, and none does.
#[derive(Default)]
struct Lines {
    /// The last byte.
    last: u8,
    /// The present line has text in it.
    text: bool,
    /// Some line had.
    begun: bool,
    /// The empty line that ends the head has come.
    ended: bool,
    bare_line_feed: bool,
}

impl Lines {
    fn scan(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.ended {
                return;
            }
            match byte {
                b'\n' => {
                    self.bare_line_feed |= self.last != b'\r';
                    self.ended = self.begun && !self.text;
                    self.text = false;
                }
                b'\r' => {}
                _ => (self.text, self.begun) = (true, true),
            }
            self.last = *byte;
        }
    }
}

impl Shared {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            state: Mutex::new(State {
                phase: Phase::Head,
                since: Instant::now(),
                stalled: None,
                parked: Vec::new(),
                taken: Vec::new(),
                answered: false,
                unread: false,
                lines: Lines::default(),
            }),
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Bytes came.
    pub(super) fn read(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Busy => return,
            Phase::Idle => {
                state.phase = Phase::Head;
                state.since = Instant::now();
            }
            Phase::Head => {}
        }
        state.lines.scan(bytes);
    }

    /// The head of a request is complete. Answers whether one of its lines ended without a carriage return.
    pub(super) fn request(&self, has_body: bool) -> bool {
        let mut state = self.state.lock();
        state.phase = Phase::Busy;
        state.unread = has_body;
        std::mem::take(&mut state.lines).bare_line_feed
    }

    /// The body of the request has come to its end.
    pub(super) fn body_read(&self) {
        self.state.lock().unread = false;
    }

    /// The body of the last request never came to its end.
    pub(super) fn unread(&self) -> bool {
        self.state.lock().unread
    }

    /// Gives back what the answer would have carried.
    pub(super) fn give_back(&self) {
        let parked = std::mem::take(&mut self.state.lock().parked);
        drop(parked);
    }

    /// Takes out the leases of answers that have not left.
    pub(super) fn take_all(&self) -> Vec<Held> {
        let state = &mut *self.state.lock();
        state.answered = false;
        state.taken.append(&mut state.parked);
        std::mem::take(&mut state.taken)
    }

    /// The HTTP library has taken the answer in whole.
    pub(super) fn answered(&self) {
        let state = &mut *self.state.lock();
        state.answered = true;
        state.taken.append(&mut state.parked);
    }

    /// Everything taken so far is in the kernel.
    pub(super) fn flushed(&self) {
        let delivered = {
            let mut state = self.state.lock();
            state.stalled = None;
            if !state.answered {
                return;
            }
            state.answered = false;
            state.phase = Phase::Idle;
            state.since = Instant::now();
            std::mem::take(&mut state.taken)
        };
        delivered.into_iter().for_each(Held::delivered);
    }

    /// The answer that is about to be written, or is being written, carries leases.
    pub(super) fn carries_leases(&self) -> bool {
        !self.state.lock().taken.is_empty()
    }

    /// The client took something, or took nothing.
    pub(super) fn write(&self, progress: bool) {
        let mut state = self.state.lock();
        if progress {
            state.stalled = None;
        } else if state.stalled.is_none() {
            state.stalled = Some(Instant::now());
        }
    }

    /// When the connection must end unless something happens before, and by which limit; `None` while it is up to us.
    pub(super) fn deadline(&self, bounds: &Bounds) -> Option<(Instant, Limit)> {
        let state = self.state.lock();
        let stalled = state
            .stalled
            .map(|since| (since + bounds.write_stall, Limit::WriteStall));
        let resting = match state.phase {
            Phase::Head => Some((state.since + bounds.header, Limit::HeaderTime)),
            Phase::Idle => Some((state.since + bounds.idle, Limit::IdleTime)),
            Phase::Busy => None,
        };
        stalled.into_iter().chain(resting).min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        Shared::new("127.0.0.1:1".parse().unwrap())
    }

    fn bare(parts: &[&[u8]]) -> bool {
        let shared = shared();
        for part in parts {
            shared.read(part);
        }
        shared.request(false)
    }

    #[test]
    fn a_line_feed_alone_is_noticed_in_the_head_and_only_there() {
        assert!(!bare(&[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]));
        assert!(!bare(&[b"GET / HTTP/1.1\r", b"\nHost: x\r\n", b"\r\n"]));
        assert!(!bare(&[b"POST / HTTP/1.1\r\nHost: x\r\n\r\n{\n}"]));
        assert!(!bare(&[b"\r\nPOST / HTTP/1.1\r\nHost: x\r\n", b"\r\n{\n}"]));
        assert!(bare(&[b"GET / HTTP/1.1\nHost: x\r\n\r\n"]));
        assert!(bare(&[b"GET / HTTP/1.1\r\nHost: x", b"\n\r\n"]));
    }

    #[test]
    fn each_phase_has_its_own_end_and_a_request_in_service_has_none() {
        let shared = shared();
        let hour = std::time::Duration::from_hours(1);
        let bounds = Bounds {
            connections: 1,
            header: hour,
            body: hour,
            idle: 5 * hour,
            write_stall: 3 * hour,
            headers: 100,
            header_bytes: 65_536,
        };
        let start = Instant::now();
        let hours = |shared: &Shared| {
            let (at, _) = shared.deadline(&bounds)?;
            Some((at - start + hour / 2).as_secs() / 3_600)
        };
        assert_eq!(hours(&shared), Some(1));
        shared.request(false);
        assert_eq!(hours(&shared), None);
        shared.write(false);
        let stalled = shared.deadline(&bounds);
        assert_eq!(stalled.map(|(_, limit)| limit), Some(Limit::WriteStall));
        assert_eq!(hours(&shared), Some(3));
        shared.write(false);
        assert_eq!(shared.deadline(&bounds), stalled);
        shared.answered();
        shared.flushed();
        assert_eq!(hours(&shared), Some(5));
        shared.read(b"G");
        assert_eq!(hours(&shared), Some(1));
    }
}
