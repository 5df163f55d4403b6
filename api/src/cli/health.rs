//! `quita health`: for container images that have no other client.

use super::{Done, say};
use crate::config::Config;
use crate::trust;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use ureq::Agent;

/// A server that is ready answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whom to ask.
#[derive(Args)]
pub(super) struct HealthArgs {
    /// Address that the server listens on
    #[arg(
        long,
        env = "QUITA_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,

    /// Given as to the server, says that it speaks TLS. The file is not read, and no certificate is checked: nothing secret
    /// is sent
    #[arg(long, env = "QUITA_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
}

pub(super) fn run(args: &HealthArgs) -> Done {
    let url = Config::local_url(args.listen, args.tls_cert.is_some()) + "/readyz";
    let agent = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .tls_config(trust::anybody())
        .timeout_global(Some(PATIENCE))
        .build()
        .new_agent();
    let answer = agent.get(&url).call();
    let status = answer.map_err(|error| format!("{url}: {error}"))?.status();
    if status == 200 {
        say("ready\n");
        Ok(())
    } else {
        Err(format!("{url}: it answered {status}").into())
    }
}
