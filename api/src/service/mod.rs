//! stand-in

use quita_storage::coalescer::Coalescer;
use quita_storage::model::Policy;
use std::sync::Arc;

/// Settings.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Publishing to an unknown queue creates it.
    pub auto_create_queues: bool,
    /// Of new queues.
    pub default_policy: Policy,
    /// Most waiting receives.
    pub max_waiting_receives: usize,
    /// Least free disk.
    pub min_free_bytes: u64,
}

/// The service.
pub struct Service {
    /// Where to.
    pub coalescer: Coalescer,
}

impl Service {
    /// A service.
    pub fn new(coalescer: Coalescer, _: ServiceSettings) -> Arc<Self> {
        Arc::new(Self { coalescer })
    }
}
