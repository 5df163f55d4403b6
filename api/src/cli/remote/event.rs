//! What happened to a message: deliveries, decisions and edits, each as a line with details.

use super::json;
use super::table::text;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt::Write;

/// An edit.
#[derive(Deserialize)]
pub(super) struct Revision {
    #[serde(default, rename = "revision")]
    pub(super) number: Value,
    #[serde(default)]
    pub(super) at: Value,
    #[serde(default)]
    actor: Value,
    #[serde(default)]
    reason: Value,
    /// It took an edit back.
    #[serde(default)]
    undone: bool,
    #[serde(default)]
    diff: Vec<Step>,
    #[serde(default)]
    headers_diff: Vec<Step>,
}

/// One operation of a JSON patch (RFC 6902).
#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    op: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    value: Option<Box<RawValue>>,
}

/// What happened at a time, with lines of detail.
pub(super) struct Event {
    pub(super) at: String,
    pub(super) what: String,
    pub(super) details: Vec<String>,
}

impl Event {
    pub(super) fn new(at: &Value, what: String) -> Self {
        let (at, details) = (text(at), Vec::new());
        Self { at, what, details }
    }
}

pub(super) fn delivery(delivery: &Value) -> Event {
    let mut what = format!(
        "delivery {}, attempt {}, {}: {}",
        text(&delivery["delivery"]),
        text(&delivery["attempt"]),
        match delivery["worker"].as_str() {
            Some(worker) => format!("worker {worker}"),
            None => "no worker named".to_owned(),
        },
        text(&delivery["cause"]),
    );
    if delivery["late"] == true {
        what += " (late)";
    }
    let error = &delivery["error"];
    if error.is_object() {
        let code = error["code"].as_str().unwrap_or_default();
        let detail = error["detail"].as_str().unwrap_or_default();
        let gap = if code.is_empty() || detail.is_empty() {
            ""
        } else {
            ": "
        };
        let _ = write!(what, ", {code}{gap}{detail}");
        if error["truncated"] == true {
            what += " [cut]";
        }
    }
    let mut event = Event::new(&delivery["ended_at"], what);
    let handed_out = format!("handed out {}", text(&delivery["leased_at"]));
    event.details.push(handed_out);
    event
}

pub(super) fn decision(decision: &Value) -> Event {
    let mut what = format!(
        "{} by {}",
        text(&decision["action"]),
        text(&decision["actor"])
    );
    if let Some(id) = decision["redrive_id"].as_str() {
        let _ = write!(what, " in {id}");
    }
    if let Some(code) = decision["after"]["code"].as_str() {
        let _ = write!(what, ": {code}");
    }
    let mut event = Event::new(&decision["at"], what);
    for name in ["reason", "justification"] {
        if let Some(why) = decision[name].as_str() {
            event.details.push(format!("because: {why}"));
        }
    }
    event
}

impl Revision {
    pub(super) fn event(&self) -> Event {
        let what = format!(
            "{} by {}: revision {}",
            if self.undone {
                "edit taken back"
            } else {
                "edited"
            },
            text(&self.actor),
            text(&self.number)
        );
        let mut event = Event::new(&self.at, what);
        if let Some(why) = self.reason.as_str() {
            event.details.push(format!("because: {why}"));
        }
        event
            .details
            .extend(self.diff.iter().map(|step| step.shown("")));
        let headers = self.headers_diff.iter();
        event
            .details
            .extend(headers.map(|step| step.shown("header ")));
        event
    }
}

impl Step {
    fn shown(&self, what: &str) -> String {
        let path = if self.path.is_empty() {
            "(all of it)"
        } else {
            &self.path
        };
        let from = match &self.from {
            Some(from) => format!(" from {from}"),
            None => String::new(),
        };
        let value = match &self.value {
            Some(value) => format!(" {}", json::compact(value.get())),
            None => String::new(),
        };
        format!("{} {what}{path}{from}{value}", self.op)
    }
}
