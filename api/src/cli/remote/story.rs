//! A message's whole story: what it is, what happened to it in the order of time, and what it says.
//!
//! Payloads and the values of edits are kept as JSON text, because they may hold what no parsed value can.

use super::event::{Event, Revision, decision, delivery};
use super::table::{self, mark, text, time};
use super::visible::visible;
use super::{json, table::fields};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write;

/// `GET /v1/messages/{message_id}`.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Story {
    members: BTreeMap<String, Box<RawValue>>,
}

/// What a decision needs a message to be.
#[derive(Clone, Copy)]
pub(super) enum Needed {
    Dead,
    Discarded,
}

impl Story {
    /// The payload, where it is kept and may be seen.
    pub(super) fn payload(&self) -> Option<&str> {
        self.members.get("message").map(|raw| raw.get())
    }

    /// A member that is not the payload.
    pub(super) fn get(&self, name: &str) -> Value {
        let raw = self.members.get(name);
        raw.map_or(Value::Null, |raw| json::value(raw.get()))
    }

    /// What stands above the story.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let dead = self.get("dead_letter");
        let state = text(&self.get("state"));
        let state = match (state.as_str(), self.get("end"), &dead["reason"]) {
            ("ended", Value::String(end), _) => format!("ended: {end}"),
            ("dead", _, Value::String(reason)) => format!("dead: {reason}"),
            _ => state,
        };
        let discarded = self.get("discarded");
        let completion = self.get("completion");
        let completion = match (&completion["delivery"], self.get("completion_remembered")) {
            (Value::Number(delivery), _) => match &completion["outcome"] {
                Value::Null => format!("reported by delivery {delivery}"),
                outcome => format!("reported by delivery {delivery}: {outcome}"),
            },
            (_, Value::Bool(true)) => "reported".to_owned(),
            _ => "-".to_owned(),
        };
        let object = |name: &str| match self.members.get(name).map(|raw| json::compact(raw.get())) {
            Some(text) if text != "{}" && text != "null" => text,
            _ => "-".to_owned(),
        };
        let revision = self.get("revision");
        let pairs = [
            ("message", text(&self.get("message_id"))),
            ("queue", text(&self.get("queue"))),
            ("state", state),
            ("key", text(&self.get("key"))),
            ("request id", text(&self.get("client_request_id"))),
            ("group", text(&dead["group"])),
            ("priority", text(&self.get("priority"))),
            ("available", time(&self.get("available_at"))),
            ("lease ends", time(&self.get("lease_expires_at"))),
            ("expires", time(&self.get("expires_at"))),
            ("deliveries", text(&self.get("deliveries"))),
            ("attempts", text(&self.get("attempts"))),
            ("redrives", text(&self.get("redrive_count"))),
            (
                "revision",
                revision
                    .as_u64()
                    .filter(|revision| *revision > 0)
                    .map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
            ),
            ("completion", completion),
            ("outcome", object("outcome")),
            ("undo until", time(&discarded["undo_until"])),
            ("own limit", text(&self.get("max_attempts"))),
            ("own backoff", object("backoff")),
            ("headers", object("headers")),
        ];
        let mut pairs: Vec<_> = pairs.into_iter().filter(|(_, v)| v != "-").collect();
        if mark(&dead["edited"]) == "yes" && !pairs.iter().any(|(name, _)| *name == "revision") {
            pairs.push(("edited", "yes".to_owned()));
        }
        pairs
    }

    /// All of it.
    pub(super) fn shown(&self, width: Option<usize>) -> String {
        let mut out = fields(&self.facts(), width);
        let mut events = self.events();
        // Times have one form and one zone: their text has their order.
        events.sort_by(|a, b| a.at.cmp(&b.at));
        out += "\n\nSTORY";
        for event in &events {
            let _ = write!(out, "\n{}  {}", visible(&event.at), visible(&event.what));
            for line in &event.details {
                let _ = write!(out, "\n    {}", visible(line));
            }
        }
        match self.payload() {
            Some(payload) => {
                out += "\n\nPAYLOAD\n";
                out += &json::pretty(payload);
            }
            None => out += "\n\nThe payload is not kept, or not for this key to see.",
        }
        out
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if let at @ Value::String(_) = &self.get("published_at") {
            events.push(Event::new(at, "published".to_owned()));
        }
        let listed = |name: &str| match self.get(name) {
            Value::Array(entries) => entries,
            _ => Vec::new(),
        };
        events.extend(listed("history").iter().map(delivery));
        if let at @ Value::String(_) = &self.get("leased_at") {
            let worker = text(&self.get("worker"));
            events.push(Event::new(
                at,
                format!("handed out to {worker}, not settled yet"),
            ));
        }
        let dead = self.get("dead_letter");
        if dead["died_at"].is_string() {
            let limit = match dead["limit"].as_str() {
                Some(limit) => format!(" (limit {limit})"),
                None => String::new(),
            };
            let what = format!("dead letter: {}{limit}", text(&dead["reason"]));
            events.push(Event::new(&dead["died_at"], what));
        }
        let revisions: Vec<Revision> = self
            .members
            .get("revisions")
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let shown_as_revision = |decision: &Value| {
            let edit = matches!(decision["action"].as_str(), Some("edit" | "undo_edit"));
            edit && revisions.iter().any(|r| r.at == decision["at"])
        };
        let decisions = listed("decisions");
        let others = decisions.iter().filter(|d| !shown_as_revision(d));
        events.extend(others.map(decision));
        events.extend(revisions.iter().map(Revision::event));
        if let at @ Value::String(_) = &self.get("ended_at") {
            let end = self.get("end");
            // A decision that ended it tells more, at the same time.
            if !events.iter().any(|event| event.at == text(at)) || end == "acked" {
                events.push(Event::new(at, format!("ended: {}", text(&end))));
            }
        }
        events
    }
}

impl Story {
    /// What a decision about it meets, as `--dry-run` shows it.
    pub(super) fn present(&self) -> Vec<(&'static str, String)> {
        let wanted = [
            "message",
            "queue",
            "state",
            "key",
            "attempts",
            "redrives",
            "revision",
            "completion",
        ];
        let facts = self.facts().into_iter();
        facts.filter(|(name, _)| wanted.contains(name)).collect()
    }

    /// [`Story::present`], as the interface says it.
    pub(super) fn present_json(&self) -> Value {
        let wanted = [
            "message_id",
            "queue",
            "state",
            "end",
            "ended_at",
            "key",
            "attempts",
            "redrive_count",
            "revision",
            "completion_remembered",
            "dead_letter",
            "discarded",
        ];
        let members = wanted.iter().map(|name| (*name, self.get(name)));
        let members = members.filter(|(_, value)| !value.is_null());
        let members = members.map(|(name, value)| (name.to_owned(), value));
        Value::Object(members.collect())
    }

    /// Where it is now, as a sentence goes on after its id.
    pub(super) fn whereabouts(&self) -> String {
        let state = text(&self.get("state"));
        let at = match self.get("ended_at") {
            Value::Null => String::new(),
            at => format!(" at {}", time(&at)),
        };
        match (state.as_str(), text(&self.get("end")).as_str()) {
            ("dead", _) => "is a dead letter".to_owned(),
            ("leased", _) => "is with a worker".to_owned(),
            ("ended", "dead_letter_expired") => {
                format!("ended as a dead letter that nobody decided about{at}")
            }
            ("ended", "gone") => "is gone".to_owned(),
            ("ended", end) => format!("was {end}{at}"),
            (state, _) => format!("is {state}"),
        }
    }

    /// Why a decision that needs a message in `state` would be refused; nothing when it is there.
    pub(super) fn not_in(&self, needed: Needed) -> Option<String> {
        let state = self.get("state");
        let there = match needed {
            Needed::Dead => state == "dead",
            Needed::Discarded => state == "ended" && self.get("end") == "discarded",
        };
        let what = match needed {
            Needed::Dead => "not a dead letter",
            Needed::Discarded => "not a discarded dead letter",
        };
        let id = text(&self.get("message_id"));
        (!there).then(|| format!("{id} is {what}: it {}", self.whereabouts()))
    }

    /// The queue it is in.
    pub(super) fn queue(&self) -> String {
        table::text(&self.get("queue"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: &str = r#"{"message_id":"msg_1","queue":"charges","state":"dead","key":"cob\u001b-1","priority":4,
        "published_at":"2026-11-30T10:00:00.000Z","deliveries":2,"attempts":2,"redrive_count":0,"revision":1,
        "dead_letter":{"reason":"max_attempts","limit":"max_attempts","died_at":"2026-11-30T10:02:00.000Z","group":"grp_1","edited":true},
        "headers":{"a":"b"},"message":{"n":1e400,"s":"\ud800","t":"x"},
        "history":[{"delivery":1,"attempt":1,"cause":"nack","late":false,"worker":"w\u202e1","leased_at":"2026-11-30T10:00:01.000Z","ended_at":"2026-11-30T10:00:02.000Z","error":{"code":"E1","detail":"no\nluck"}},
          {"delivery":2,"attempt":2,"cause":"lease_expired","late":true,"leased_at":"2026-11-30T10:01:00.000Z","ended_at":"2026-11-30T10:02:00.000Z"}],
        "decisions":[{"at":"2026-11-30T11:00:00.000Z","actor":"key_a","action":"edit","reason":"typo"}],
        "revisions":[{"revision":1,"at":"2026-11-30T11:00:00.000Z","actor":"key_a","reason":"typo","diff":[{"op":"replace","path":"/n","value":1e400},{"op":"test","path":"/s","value":"\ud800"}],"headers_diff":[{"op":"remove","path":"/a"}]}],
        "something_new":{"x":1}}"#;

    #[test]
    fn the_story_is_told_in_order_and_nothing_acts_on_the_terminal() {
        let story: Story = serde_json::from_str(DEAD).unwrap();
        let text = story.shown(None);
        let told = text.split_once("STORY\n").unwrap().1;
        assert_eq!(
            told,
            "2026-11-30T10:00:00.000Z  published\n\
             2026-11-30T10:00:02.000Z  delivery 1, attempt 1, worker w\\u{202e}1: nack, E1: no\\nluck\n    handed out 2026-11-30T10:00:01.000Z\n\
             2026-11-30T10:02:00.000Z  delivery 2, attempt 2, no worker named: lease_expired (late)\n    handed out 2026-11-30T10:01:00.000Z\n\
             2026-11-30T10:02:00.000Z  dead letter: max_attempts (limit max_attempts)\n\
             2026-11-30T11:00:00.000Z  edited by key_a: revision 1\n    because: typo\n    replace /n 1e400\n    test /s \"\\ud800\"\n    remove header /a\n\n\
             PAYLOAD\n{\n  \"n\": 1e400,\n  \"s\": \"\\ud800\",\n  \"t\": \"x\"\n}"
        );
        assert!(text.contains("cob\\x1b-1") && text.contains("dead: max_attempts"));
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }

    #[test]
    fn a_message_that_is_gone_has_a_story_too() {
        let story: Story = serde_json::from_str(
            r#"{"message_id":"msg_1","queue":"q","state":"ended","key":null,"end":"acked","ended_at":"2026-11-30T10:00:02.000Z","outcome":{"ok":true},"history":[],"decisions":[]}"#,
        )
        .unwrap();
        let text = story.shown(None);
        assert!(
            text.contains("ended: acked") && text.contains(r#"{"ok":true}"#),
            "{text}"
        );
        assert!(text.contains("payload is not kept"));
    }
}
