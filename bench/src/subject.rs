//! Who is measured: the bare handler, and quita on each store, each in a process of its own.

use crate::Outcome;
use crate::client::{Connection, Request};
use crate::fresh::{Fresh, Ground};
use crate::lifecycle::{self, Requests};
use crate::load::{Measured, closed_loop};
use crate::messages::{self, QUEUE, message};
use crate::meters::Meters;
use crate::process::{Owned, free_address, memory_mib};
use crate::report::Figures;
use crate::rows::{Row, Subject, Work};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// The word that makes this program the bare handler.
pub(crate) const CEILING: &str = "ceiling";

/// A server is idle so long after it became ready: first maintenance is over, nothing was asked of it.
const IDLE_AFTER: Duration = Duration::from_millis(1500);

/// The bare handler, in a process of its own.
pub(crate) struct Bare {
    process: Owned,
    address: SocketAddr,
}

impl Bare {
    pub(crate) async fn start() -> Outcome<Self> {
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        let process = Owned::start(command.args([CEILING, &address.to_string()]))?;
        let start = Instant::now();
        while Connection::open(address).await.is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the bare handler does not come up".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self { process, address })
    }

    /// Requests over so many connections.
    pub(crate) async fn measure(&self, connections: usize, length: Duration) -> Outcome<Measured> {
        let meters = Meters {
            server: self.process.id(),
            postgres: None,
        };
        let request = Request::new("POST", "/m", None, &message());
        closed_loop(self.address, &[request], connections, length, &meters).await
    }
}

/// Everything that can be measured in this run.
pub(crate) struct Subjects {
    pub(crate) bare: Bare,
    pub(crate) ground: Ground,
}

impl Subjects {
    /// Measures one row once. quita gets a new store each time, so that no row pays for another.
    pub(crate) async fn measure(&self, row: &Row, length: Duration) -> Outcome<Figures> {
        match (row.subject, row.work) {
            (Subject::Bare, Work::Publish(connections)) => {
                Ok(self.bare.measure(connections, length).await?.into())
            }
            (Subject::Bare, _) => Err("the bare handler only takes requests".into()),
            (Subject::Quita(store), work) => {
                let fresh = self.ground.start(store).await?;
                let figures = measure_quita(&fresh, work, length).await;
                fresh.end().await;
                figures
            }
        }
    }
}

async fn measure_quita(fresh: &Fresh, work: Work, length: Duration) -> Outcome<Figures> {
    let (quita, meters) = (&fresh.quita, fresh.meters());
    let key = Some(quita.key.as_str());
    let publish = messages::publish(QUEUE, &message(), key);
    match work {
        Work::Publish(connections) => {
            quita.create(QUEUE).await?;
            Ok(
                closed_loop(quita.address, &[publish], connections, length, &meters)
                    .await?
                    .into(),
            )
        }
        Work::Lifecycle => {
            quita.create(QUEUE).await?;
            let requests = Requests {
                publish,
                receive: messages::receive(QUEUE, 1, key),
                key: quita.key.as_str().into(),
            };
            Ok(lifecycle::run(quita.address, &requests, length, &meters)
                .await?
                .into())
        }
        Work::Idle => {
            tokio::time::sleep(IDLE_AFTER).await;
            let (rss_mib, pss_mib) = memory_mib(quita.id())?;
            Ok(Figures {
                rss_mib,
                pss_mib,
                ..Figures::default()
            })
        }
    }
}
