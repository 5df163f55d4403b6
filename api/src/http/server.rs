//! Stand-in for the connection.

/// The connection that a request came on.
#[derive(Clone)]
pub struct Connection;

impl Connection {
    /// Counts leases as delivered.
    pub fn hold(&self, held: quita_storage::coalescer::Held) {
        held.delivered();
    }
}

/// The body of a request took longer than it may.
#[derive(Debug)]
pub struct BodyTooSlow;

impl std::fmt::Display for BodyTooSlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too slow")
    }
}

impl std::error::Error for BodyTooSlow {}
