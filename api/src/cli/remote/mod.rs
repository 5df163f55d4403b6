//! The operators' commands: they talk to a server's API and know nothing of its store.
//!
//! Reading order: [`exit`] (codes and failures) → [`connection`] and [`profile`] (which server, which key) → [`client`] and [`path`] → [`visible`],
//! [`json`], [`table`], [`output`] (how things are printed) → [`paging`], [`change`], [`progress`] → one file per command;
//! decisions about many go through [`start`], [`bulk`] and [`watch`].
//!
//! Standard output is data and standard error is talk, everything that others wrote is printed with its control characters
//! made visible, and nothing that changes more than one message happens without a count that the operator has seen.

mod audit;
mod bulk;
mod change;
mod client;
mod connection;
mod dead;
mod decide;
mod event;
mod exit;
mod filter;
mod fix;
mod input;
mod json;
mod lines;
mod message;
mod output;
mod paging;
mod path;
mod policy;
mod problem;
mod profile;
mod progress;
mod publish;
mod queue;
mod redrive;
mod selection;
mod start;
mod story;
mod table;
mod visible;
mod watch;

use clap::{Args, Subcommand};
use client::Client;
use connection::Connection;
use exit::Outcome;
use output::{Out, OutputArgs};
use std::process::ExitCode;

pub(super) use output::talk;
pub(super) use visible::visible;

/// Where a server and a key come from, and what the exit codes are. A macro, as constants take no other constants.
macro_rules! surroundings {
    () => {
        "\
ENVIRONMENT
  QUITA_URL       the server
  QUITA_API_KEY   the key; there is no option for it, since others could read it there
  QUITA_CA_CERT   a PEM file: the authorities that may vouch for an https server, in place of the machine's
  QUITA_PROFILE   a profile of ~/.config/quita/config.toml (in $XDG_CONFIG_HOME where that is set)

  The file is read only when nobody else can (chmod 600). An example:

    [profiles.default]
    url = \"https://quita.example\"
    api_key = \"qta_...\"
    ca_cert = \"company.pem\"   # if need be; beside this file unless the path is whole

EXIT CODES
  0 done          1 failed                2 usage       3 not found
  4 not allowed   5 refused by a guard    6 temporary   7 partly done
  130 a watch was interrupted"
    };
}
pub(super) use surroundings;

/// What stands below the help of all of them.
pub(super) const SURROUNDINGS: &str = surroundings!();

/// Commands that call a server.
#[derive(Subcommand)]
pub(super) enum RemoteCommand {
    /// Look at queues, and change, pause and purge them
    Queue(Of<queue::QueueCommand>),
    /// Look at dead letters and decide about them
    Dead(Of<dead::DeadCommand>),
    /// Follow and steer redrives and discards of many dead letters
    Redrive(Of<redrive::RedriveCommand>),
    /// Look at one message
    Message(Of<message::MessageCommand>),
    /// Publish a message, or one per line
    #[command(after_help = publish::EXAMPLES)]
    Publish(With<publish::PublishArgs>),
    /// Read what was done to queues and messages, by whom and why
    #[command(after_help = audit::EXAMPLES)]
    Audit(With<audit::AuditArgs>),
}

/// A command with commands of its own.
#[derive(Args)]
#[command(after_help = SURROUNDINGS)]
pub(super) struct Of<C: Subcommand> {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: C,
}

/// A command with arguments.
#[derive(Args)]
pub(super) struct With<A: Args> {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    args: A,
}

/// Options of all these commands.
#[derive(Args)]
struct Common {
    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    output: OutputArgs,
}

/// A server to call and a place to print to.
struct Session {
    client: Client,
    out: Out,
}

/// Runs it; the exit code is one of [`exit::Exit`].
pub(super) fn run(command: RemoteCommand) -> ExitCode {
    let done = match command {
        RemoteCommand::Queue(Of { common, command }) => {
            with(&common, |session| queue::run(session, command))
        }
        RemoteCommand::Dead(Of { common, command }) => {
            with(&common, |session| dead::run(session, command))
        }
        RemoteCommand::Redrive(Of { common, command }) => {
            with(&common, |session| redrive::run(session, command))
        }
        RemoteCommand::Message(Of { common, command }) => {
            with(&common, |session| message::run(session, command))
        }
        RemoteCommand::Publish(With { common, args }) => {
            with(&common, |session| publish::run(session, &args))
        }
        RemoteCommand::Audit(With { common, args }) => {
            with(&common, |session| audit::run(session, &args))
        }
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print();
            failure.exit.into()
        }
    }
}

fn with(common: &Common, work: impl FnOnce(&mut Session) -> Outcome) -> Outcome {
    let mut session = Session {
        client: Client::new(common.connection.place()?, common.connection.patience())?,
        out: Out::new(common.output.output),
    };
    let done = work(&mut session);
    // What was found before a failure is data all the same.
    let written = session.out.flush();
    let exit = done?;
    written.map(|()| exit)
}
