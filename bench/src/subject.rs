//! Who is measured: the bare handler, and quita on each store, each in a process of its own.

use crate::Outcome;
use crate::client::{Connection, Request, SERIAL};
use crate::lifecycle::{self, Requests};
use crate::load::{closed_loop, message};
use crate::meters::Meters;
use crate::process::{Owned, free_address, memory_mib};
use crate::report::Figures;
use crate::rows::{Row, Subject, Work};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The word that makes this program the bare handler.
pub(crate) const CEILING: &str = "ceiling";

/// Everything that can be measured in this run.
pub(crate) struct Subjects {
    bare: Owned,
    bare_address: SocketAddr,
    directory: PathBuf,
}

impl Subjects {
    pub(crate) async fn prepare(
        server: Option<PathBuf>,
        directory: Option<PathBuf>,
        chosen: &mut Vec<Row>,
    ) -> Outcome<Self> {
        let myself = std::env::current_exe()?;
        let directory = directory
            .or_else(|| Some(myself.parent()?.to_path_buf()))
            .ok_or("no directory for stores")?;
        let bare_address = free_address()?;
        let bare = Owned::start(Command::new(&myself).args([CEILING, &bare_address.to_string()]))?;
        chosen.retain(|row| row.subject == Subject::Bare);
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(Self {
            bare,
            bare_address,
            directory,
        })
    }

    pub(crate) async fn measure(&self, row: &Row, length: Duration) -> Outcome<Figures> {
        let Work::Publish(connections) = row.work else {
            return Err("not a row of the bare handler".into());
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
