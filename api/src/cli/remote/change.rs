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
    /// Show the request and what it would meet, and send nothing: the server does not check it. Of many, the server counts what
    /// would happen
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Names the request: the same command with the same id gives the first answer again [default: a new one]
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

/// What a dry run has found out without the server's help.
pub(super) struct Meets<'a> {
    /// The name of what it is about.
    pub(super) name: String,
    /// The present state, for people.
    pub(super) fields: Vec<(&'a str, String)>,
    /// The present state, as the interface says it.
    pub(super) present: Value,
    /// Why the server would refuse it, where that can be seen from here.
    pub(super) refusal: Option<String>,
}

impl Session {
    /// Shows what would be sent and what it would meet. Refused where it is clear that the server would refuse it.
    pub(super) fn show_dry_run(&mut self, change: &Change, meets: &Meets<'_>) -> Outcome {
        match self.out.format {
            Format::Name => self.out.line(&visible(&meets.name))?,
            Format::Table => {
                self.out.line(
                    "Nothing was sent, and the server has not checked this. It would be sent:\n",
                )?;
                let request = format!("{} {}", change.method, change.path);
                self.out.line(&visible(&request))?;
                if !change.body.is_empty() {
                    self.out.line(&json::pretty(&change.text()))?;
                }
                self.out.line("\nIt would meet:\n")?;
                let fields = table::fields(&meets.fields, self.out.width);
                self.out.line(&fields)?;
            }
            Format::Json | Format::Jsonl => {
                let text = format!(
                    r#"{{"dry_run":true,"checked_by_server":false,"method":"{}","path":{},"body":{},"present":{},"refusal":{}}}"#,
                    change.method,
                    Value::from(change.path.as_str()),
                    change.text(),
                    meets.present,
                    Value::from(meets.refusal.clone()),
                );
                self.out.one(&text, "path", |_, _| String::new())?;
            }
        }
        self.out.flush()?;
        match &meets.refusal {
            None => Ok(Exit::Done),
            Some(why) => {
                talk(&format!("This would be refused: {why}"));
                Ok(Exit::Refused)
            }
        }
    }
}
