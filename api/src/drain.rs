//! Whether the server is on its way out.

use std::sync::Arc;
use tokio::sync::watch;

/// Says that the server is about to stop: readiness is over, answers close their connections, nobody waits any longer.
#[derive(Clone)]
pub struct Drain {
    begun: Arc<watch::Sender<bool>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            begun: Arc::new(watch::channel(false).0),
        }
    }
}

impl Drain {
    /// Begins to drain. There is no way back.
    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Draining has begun.
    pub fn is_draining(&self) -> bool {
        *self.begun.borrow()
    }

    /// Waits until draining begins; at once when it has.
    pub async fn draining(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn everybody_learns_of_it_whenever_they_ask() {
        let drain = Drain::default();
        let before = tokio::spawn({
            let drain = drain.clone();
            async move { drain.draining().await }
        });
        tokio::task::yield_now().await;
        assert!(!drain.is_draining() && drain.draining().now_or_never().is_none());
        drain.begin();
        before.await.unwrap();
        assert!(drain.clone().is_draining() && drain.draining().now_or_never().is_some());
    }
}
