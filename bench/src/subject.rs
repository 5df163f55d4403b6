//! Who is measured: the bare handler, and quita on each store, each in a process of its own.

use crate::Outcome;
use crate::client::{Connection, Request, SERIAL};
use crate::lifecycle::{self, Requests};
use crate::load::{closed_loop, message};
use crate::meters::Meters;
use crate::postgres;
use crate::process::{Owned, free_address, memory_mib};
use crate::report::Figures;
use crate::rows::{Row, Subject, Work};
use crate::server::Quita;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The word that makes this program the bare handler.
pub(crate) const CEILING: &str = "ceiling";

/// The queue that is worked on.
const QUEUE: &str = "bench";

/// A server is idle so long after it became ready: first maintenance is over, nothing was asked of it.
const IDLE_AFTER: Duration = Duration::from_millis(1500);

/// Everything that can be measured in this run.
pub(crate) struct Subjects {
    bare: Owned,
    bare_address: SocketAddr,
    program: PathBuf,
    directory: PathBuf,
}

impl Subjects {
    /// Starts the bare handler. `directory` is where stores are made, `program` the server.
    pub(crate) async fn prepare(program: PathBuf, directory: PathBuf) -> Outcome<Self> {
        let bare_address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        let bare = Owned::start(command.args([CEILING, &bare_address.to_string()]))?;
        let start = Instant::now();
        while Connection::open(bare_address).await.is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the bare handler does not come up".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self {
            bare,
            bare_address,
            program,
            directory,
        })
    }

    /// Measures one row once. quita gets a new store each time, so that no row pays for another.
    pub(crate) async fn measure(&self, row: &Row, length: Duration) -> Outcome<Figures> {
        match row.subject {
            Subject::Bare => self.measure_bare(row.work, length).await,
            Subject::Sqlite => {
                let quita = Quita::start(&self.program, &self.directory, None).await?;
                measure_quita(&quita, row.work, length, None).await
            }
            Subject::Postgres => {
                let database = postgres::database().await?;
                let quita =
                    Quita::start(&self.program, &self.directory, Some(&database.url)).await?;
                let figures = measure_quita(&quita, row.work, length, postgres::postmaster()).await;
                drop(quita);
                database.drop().await;
                figures
            }
        }
    }

    async fn measure_bare(&self, work: Work, length: Duration) -> Outcome<Figures> {
        let Work::Publish(connections) = work else {
            return Err("the bare handler only takes requests".into());
        };
        let meters = Meters {
            server: self.bare.id(),
            postgres: None,
        };
        let request = Request::new("POST", "/m", None, &message());
        Ok(
            closed_loop(self.bare_address, &request, connections, length, &meters)
                .await?
                .into(),
        )
    }
}

async fn measure_quita(
    quita: &Quita,
    work: Work,
    length: Duration,
    postgres: Option<u32>,
) -> Outcome<Figures> {
    let meters = Meters {
        server: quita.id(),
        postgres,
    };
    let key = Some(quita.key.as_str());
    let publish = format!(
        "{{\"queue\":\"{QUEUE}\",\"message\":{},\"client_request_id\":\"{SERIAL}\"}}",
        message()
    );
    let publish = Request::new("POST", "/v1/queue/publish", key, &publish);
    match work {
        Work::Publish(connections) => {
            quita.create(QUEUE).await?;
            Ok(
                closed_loop(quita.address, &publish, connections, length, &meters)
                    .await?
                    .into(),
            )
        }
        Work::Lifecycle => {
            quita.create(QUEUE).await?;
            let receive =
                format!("{{\"queue\":\"{QUEUE}\",\"max_messages\":1,\"wait_seconds\":1}}");
            let receive = Request::new("POST", "/v1/queue/receive", key, &receive);
            let requests = Requests {
                publish,
                receive,
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
