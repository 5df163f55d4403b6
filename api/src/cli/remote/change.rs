//! What all changes have in common: a request id, which makes a repeat safe, and `--dry-run`, which shows and does nothing.

use super::Session;
use super::client::{Body, Change, Client};
use super::exit::{Exit, Failure, Outcome};
use super::output::{Format, talk};
use super::visible::visible;
use super::{json, table};
use clap::Args;
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde_json::Value;
use std::fmt::Write;

/// Options of every change.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct ChangeArgs {
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Names the request: a repeat with the same id gives the first answer again [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(super) request_id: Option<String>,
}

impl ChangeArgs {
    /// A body with the request id and these members; members without a value are left out.
    pub(super) fn body(&self, members: Vec<(&'static str, Value)>) -> Outcome<Body> {
        let id = match &self.request_id {
            Some(id) => id.clone(),
            None => new_request_id()?,
        };
        let members = members
            .into_iter()
            .chain([("client_request_id", id.into())]);
        Ok(members
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), json::raw(&value)))
            .collect())
    }
}

/// 80 random bits.
pub(super) fn new_request_id() -> Outcome<String> {
    let mut random = [0; 10];
    OsRng
        .try_fill_bytes(&mut random)
        .map_err(|_| Failure::failed("the operating system gave no random bytes"))?;
    let mut id = "cli-".to_owned();
    for byte in random {
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

/// Sends a change; what to do when nobody knows whether it took effect is said with the failure.
pub(super) fn send(client: &Client, change: &Change) -> Outcome<String> {
    client
        .send(change)
        .map_err(|failure| match change.body.get("client_request_id") {
            Some(id) if failure.exit == Exit::Temporary => failure.and(&format!(
                "hint: a repeat with --request-id {} is safe",
                visible(id.get().trim_matches('"'))
            )),
            _ => failure,
        })
}

impl Session {
    /// Shows what would be sent, and the present state as names and values.
    pub(super) fn show_dry_run(&mut self, change: &Change, present: &[(&str, String)]) -> Outcome {
        let request = format!("{} {}", change.method, change.path);
        match self.out.format {
            Format::Table | Format::Name => {
                talk("Nothing was changed. This would be sent:");
                self.out.line(&request)?;
                if !change.body.is_empty() {
                    self.out.line(&json::pretty(&change.text()))?;
                }
                talk("\nIt would meet:");
                self.out.line("")?;
                self.out.line(&table::fields(present, self.out.width))?;
            }
            Format::Json | Format::Jsonl => {
                let present: serde_json::Map<String, Value> = present
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
                    .collect();
                let text = format!(
                    r#"{{"dry_run":true,"method":"{}","path":{},"body":{},"present":{}}}"#,
                    change.method,
                    Value::from(change.path.as_str()),
                    change.text(),
                    Value::Object(present)
                );
                self.out.one(&text, "path", |_, _| String::new())?;
            }
        }
        self.out.flush()?;
        Ok(Exit::Done)
    }
}
