//! `quita publish`: one message; many are for [`lines`].

use super::Session;
use super::change::{self, ChangeArgs, Meets};
use super::client::{self, Change};
use super::exit::{Exit, Outcome};
use super::output::talk;
use super::visible::visible;
use super::{input, lines, table};
use clap::Args;
use serde_json::{Value, json};

pub(super) const EXAMPLES: &str = concat!(
    "EXAMPLES
  quita publish charges '{\"amount\":1250}' --key cob-sub_0412-2026-10
  quita publish charges @charge.json --delay 60 --priority 9 --header source=cron
  jq -c '.[]' charges.json | quita publish charges --lines --request-id-prefix import-2026-10

",
    super::surroundings!()
);

#[derive(Args)]
pub(in crate::cli) struct PublishArgs {
    /// The queue
    pub(super) queue: String,

    /// The message: JSON, @FILE or - for standard input
    #[arg(
        required_unless_present = "lines",
        conflicts_with = "lines",
        allow_negative_numbers = true
    )]
    message: Option<String>,

    /// Names the business operation
    #[arg(long, conflicts_with = "lines")]
    key: Option<String>,

    /// The message becomes ready this much later
    #[arg(long, value_name = "SECONDS")]
    delay: Option<f64>,

    /// 0 to 9, higher first
    #[arg(long, value_name = "N")]
    priority: Option<u8>,

    /// It is dead-lettered unless it is done this soon
    #[arg(long, value_name = "SECONDS")]
    expires_in: Option<f64>,

    /// Its own limit instead of the queue's
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// A header; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair)]
    header: Vec<(String, String)>,

    /// One message per line of standard input; with -o json and jsonl the `index` of a result is the number of its line
    #[arg(long, conflicts_with_all = ["dry_run", "request_id"])]
    lines: bool,

    /// With `--lines`: line N has the request id PREFIX-N, so that the same input with the same prefix may be sent again
    /// [default: a new one]
    #[arg(long, requires = "lines", value_name = "PREFIX")]
    pub(super) request_id_prefix: Option<String>,

    #[command(flatten)]
    change: ChangeArgs,
}

pub(super) fn run(session: &mut Session, args: &PublishArgs) -> Outcome {
    if args.lines {
        return lines::publish(session, args);
    }
    let message = args.message.as_deref().unwrap_or("-");
    let message = input::json_from("the message", message)?;
    let mut members = args.members();
    members.push(("queue", args.queue.as_str().into()));
    members.push(("key", json!(args.key)));
    let mut body = args.change.body(members)?;
    body.insert("message".into(), message);
    let change = Change::post("/v1/queue/publish", body);
    if args.change.dry_run {
        let path = super::path::queue(&args.queue, "");
        let present: Vec<(&str, Value)> = match session.client.read::<Value>(&path) {
            Ok(queue) => vec![
                ("exists", true.into()),
                ("paused", queue["paused"].clone()),
                ("ready", queue["counts"]["ready"].clone()),
            ],
            Err(absent) if absent.exit == Exit::NotFound => vec![("exists", false.into())],
            Err(failure) => return Err(failure),
        };
        let fields = present
            .iter()
            .map(|(name, value)| (*name, table::text(value)));
        let meets = Meets {
            name: args.queue.clone(),
            fields: fields.collect(),
            present: json!(std::collections::BTreeMap::from_iter(present.clone())),
            refusal: None,
        };
        return session.show_dry_run(&change, &meets);
    }
    let answer = change::send(&session.client, &change)?;
    let published: Value = client::parse(&change.path, &answer)?;
    if published["deduplicated"] == true {
        let state = table::text(&published["state"]);
        let same = match published["same_body"].as_bool() {
            Some(false) => "with another body, ",
            _ => "",
        };
        talk(&format!(
            "It was published before, {same}and is {} now; nothing was stored.",
            visible(&state)
        ));
    }
    session.out.one(&answer, "message_id", |published, _| {
        visible(&table::text(&published["message_id"])).into_owned()
    })?;
    Ok(Exit::Done)
}

impl PublishArgs {
    /// What all messages of the command have in common.
    pub(super) fn members(&self) -> Vec<(&'static str, Value)> {
        let headers: serde_json::Map<String, Value> = self
            .header
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        vec![
            ("delay_seconds", json!(self.delay)),
            ("priority", json!(self.priority)),
            ("expires_in_seconds", json!(self.expires_in)),
            ("max_attempts", json!(self.max_attempts)),
            (
                "headers",
                if headers.is_empty() {
                    Value::Null
                } else {
                    headers.into()
                },
            ),
        ]
    }
}
