//! `quita message`, and what all listings of messages have in common.

use super::Session;
use super::exit::{Exit, Outcome};
use super::story::Story;
use super::table::{Column, mark, text, time};
use super::{client, path};
use clap::Subcommand;
use serde_json::Value;

#[derive(Subcommand)]
pub(in crate::cli) enum MessageCommand {
    /// Show a message and all that happened to it, in the order of time
    #[command(after_help = "EXAMPLES
  quita message show msg_02mx3k8s9qv40
  quita message show msg_02mx3k8s9qv40 -o json | jq .message")]
    Show {
        /// Its id
        id: String,
    },
}

/// A dead letter in a listing of one queue.
pub(super) const SUMMARY: &[Column] = &[
    Column::firm("MESSAGE", |m| text(&m["message_id"])),
    Column::firm("DIED", |m| time(&m["dead_letter"]["died_at"])),
    Column::firm("KIND", kind),
    Column::text("CODE", |m| text(&m["dead_letter"]["error_code"])),
    Column::text("ERROR", error),
    Column::text("KEY", |m| text(&m["key"])),
    Column::number("ATTEMPTS", |m| text(&m["attempts"])),
    Column::number("REDRIVES", |m| text(&m["redrive_count"])),
    Column::firm("EDITED", |m| mark(&m["dead_letter"]["edited"])),
];

/// A dead letter in a listing over queues.
pub(super) const SUMMARY_WITH_QUEUE: &[Column] = &[
    Column::firm("MESSAGE", |m| text(&m["message_id"])),
    Column::text("QUEUE", |m| text(&m["queue"])),
    Column::firm("DIED", |m| time(&m["dead_letter"]["died_at"])),
    Column::firm("KIND", kind),
    Column::text("CODE", |m| text(&m["dead_letter"]["error_code"])),
    Column::text("ERROR", error),
    Column::text("KEY", |m| text(&m["key"])),
    Column::number("ATTEMPTS", |m| text(&m["attempts"])),
    Column::number("REDRIVES", |m| text(&m["redrive_count"])),
    Column::firm("EDITED", |m| mark(&m["dead_letter"]["edited"])),
];

/// How it died, in the words of `--failure-kind`.
fn kind(message: &Value) -> String {
    let dead = &message["dead_letter"];
    match &dead["failure_kind"] {
        Value::Null => text(&dead["reason"]),
        kind => text(kind),
    }
}

/// What the last worker said.
fn error(message: &Value) -> String {
    text(&message["last_delivery"]["error"]["detail"])
}

pub(super) fn run(session: &mut Session, command: MessageCommand) -> Outcome {
    let MessageCommand::Show { id } = command;
    let text = read(session, &id)?;
    show(session, &id, &text)
}

/// All that is known about a message, as JSON.
pub(super) fn read(session: &Session, id: &str) -> Outcome<String> {
    session.client.get(&path::message(id))
}

/// Prints it.
pub(super) fn show(session: &mut Session, id: &str, message: &str) -> Outcome {
    let story: Story = client::parse(&path::message(id), message)?;
    session
        .out
        .one(message, "message_id", |_, width| story.shown(width))?;
    Ok(Exit::Done)
}
