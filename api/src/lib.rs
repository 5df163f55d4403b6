//! quita-api: HTTP edge and service.

pub mod auth;
pub mod config;
pub mod http;
pub mod service;

use std::sync::Arc;
use tokio::sync::watch;

/// What every handler may use.
#[derive(Clone)]
pub struct AppState {
    /// The operations.
    pub service: Arc<service::Service>,
    /// Who calls.
    pub auth: Arc<auth::Authenticator>,
    /// Settings.
    pub config: Arc<config::Config>,
    /// Whether the server is stopping.
    pub drain: Drain,
}

/// Whether the server is stopping.
#[derive(Clone)]
pub struct Drain {
    draining: watch::Receiver<bool>,
    _keep: Arc<watch::Sender<bool>>,
}

impl Default for Drain {
    fn default() -> Self {
        let (keep, draining) = watch::channel(false);
        Self {
            draining,
            _keep: Arc::new(keep),
        }
    }
}

impl Drain {
    /// It is.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Resolves when it is.
    pub async fn draining(&self) {
        let mut draining = self.draining.clone();
        let _ = draining.wait_for(|d| *d).await;
    }
}
