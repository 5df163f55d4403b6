//! `quita dead fix`: a dead letter is changed before it gets another round, on the record, and can be changed back.

use super::Session;
use super::change::{self, ChangeArgs};
use super::client::{Body, Change};
use super::exit::{Exit, Failure, Outcome};
use super::output::talk;
use super::story::{Needed, Story};
use super::table::{self, text};
use super::{decide, input, json, path, profile};
use clap::{ArgGroup, Args};
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Command;

pub(super) const EXAMPLES: &str = "EXAMPLES
  quita dead fix msg_02mx3k8s9qv40 --merge-patch '{\"amount\":1250}' --reason 'cents, not euros'
  quita dead fix msg_02mx3k8s9qv40 --edit --reason 'wrong account' --redrive
  quita dead fix msg_02mx3k8s9qv40 --message @fixed.json --header version=2 --reason 'new format'
  quita dead fix msg_02mx3k8s9qv40 --undo";

#[derive(Args)]
#[command(group = ArgGroup::new("what").multiple(true).required(true))]
#[command(group = ArgGroup::new("payload"))]
pub(in crate::cli) struct FixArgs {
    /// The message, by its id
    id: String,

    /// Change these members (RFC 7396): JSON, @FILE or -
    #[arg(long, value_name = "JSON", groups = ["what", "payload"])]
    merge_patch: Option<String>,

    /// The whole new payload: JSON, @FILE or -
    #[arg(long, value_name = "JSON", groups = ["what", "payload"])]
    message: Option<String>,

    /// Change the payload in $VISUAL or $EDITOR; needs a terminal
    #[arg(long, groups = ["what", "payload"])]
    edit: bool,

    /// Set a header; the others stay
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair, group = "what")]
    header: Vec<(String, String)>,

    /// Take a header out
    #[arg(long, value_name = "NAME", group = "what")]
    remove_header: Vec<String>,

    /// All headers: a JSON object, @FILE or -
    #[arg(long, value_name = "JSON", group = "what", conflicts_with_all = ["header", "remove_header"])]
    headers: Option<String>,

    /// Put payload and headers back to what the message died with: takes back all edits since
    #[arg(long, group = "what", conflicts_with_all = ["payload", "header", "remove_header", "headers"])]
    undo: bool,

    /// Why; kept with the edit
    #[arg(long, value_name = "TEXT", required_unless_present = "undo")]
    reason: Option<String>,

    /// Redrive it afterwards
    #[arg(long)]
    redrive: bool,

    /// Redrive it also above `max_redrives`, and although a worker has reported the work as done
    #[arg(long, requires = "redrive", requires = "reason")]
    force: bool,

    #[command(flatten)]
    change: ChangeArgs,
}

pub(super) fn run(session: &mut Session, args: &FixArgs) -> Outcome {
    let FixArgs { id, reason, .. } = args;
    if args.edit && !input::can_edit() {
        return Err(Failure::usage(
            "--edit needs a terminal for the editor\n  hint: --merge-patch or --message say what to change",
        ));
    }
    let story: Story = session.client.read(&path::message(id))?;
    let queue = story.queue();
    let mut body = args.change.body(vec![("reason", json!(reason))])?;
    let change = if args.undo {
        Change::post(path::dead_letter(&queue, id, "/undo-edit"), body)
    } else {
        if !edited(args, &story, &mut body)? {
            talk(if args.redrive {
                "Nothing was changed, nothing was sent, and it was not redriven."
            } else {
                "Nothing was changed, and nothing was sent."
            });
            return Ok(Exit::Done);
        }
        let mut change = Change::post(path::dead_letter(&queue, id, ""), body);
        change.method = Method::PATCH;
        change
    };
    if args.change.dry_run {
        let edited = &story.get("dead_letter")["edited"];
        let refusal = story.not_in(Needed::Dead).or_else(|| {
            let undone = args.undo && *edited == false;
            undone.then(|| "nobody has changed it since it died (not_edited)".to_owned())
        });
        return session.show_dry_run(&change, &decide::meets(&story, refusal));
    }
    let needs = Needed::Dead;
    let mut answer = change::send(&session.client, &change)
        .map_err(|failure| decide::found(session, id, needs, failure))?;
    let fixed: Value = json::value(&answer);
    talk(&format!(
        "Revision {} is there now: payload and headers as {}.",
        text(&fixed["revision"]),
        if args.undo {
            "the message died with them"
        } else {
            "just edited"
        }
    ));
    if args.redrive {
        // The edit's request id names the edit alone.
        let force = if args.force { json!(true) } else { Value::Null };
        let body = ChangeArgs::default().body(vec![("force", force), ("reason", json!(reason))])?;
        let redrive = Change::post(path::dead_letter(&queue, id, "/redrive"), body);
        answer = change::send(&session.client, &redrive)
            .map_err(|failure| failure.and("The message was edited, and not redriven."))?;
    }
    session.out.one(&answer, "message_id", |decided, width| {
        let pairs = [
            ("message", text(&decided["message_id"])),
            ("state", text(&decided["state"])),
            ("revision", text(&decided["revision"])),
        ];
        let pairs: Vec<_> = pairs.into_iter().filter(|(_, v)| v != "-").collect();
        table::fields(&pairs, width)
    })?;
    Ok(Exit::Done)
}

/// Puts what changes into the body; `false` when nothing does.
fn edited(args: &FixArgs, story: &Story, body: &mut Body) -> Outcome<bool> {
    let mut put = |name: &str, value: Box<RawValue>| body.insert(name.to_owned(), value);
    if let Some(patch) = &args.merge_patch {
        put("merge_patch", input::json_from("--merge-patch", patch)?);
    } else if let Some(message) = &args.message {
        put("message", input::json_from("--message", message)?);
    } else if args.edit {
        let Some(payload) = story.payload() else {
            return Err(Failure::new(
                Exit::NotAllowed,
                "the payload is not kept, or not for this key to see",
            ));
        };
        if let Some(message) = in_editor(payload)? {
            put("message", message);
        }
    }
    if let Some(headers) = &args.headers {
        put("headers", input::json_from("--headers", headers)?);
    } else if !args.header.is_empty() || !args.remove_header.is_empty() {
        let headers = changed_headers(args, &story.get("headers"))?;
        put("headers", json::raw(&Value::Object(headers)));
    }
    let changes = ["merge_patch", "message", "headers"];
    Ok(changes.iter().any(|name| body.contains_key(*name)))
}

fn changed_headers(args: &FixArgs, present: &Value) -> Outcome<Map<String, Value>> {
    let mut headers = match present {
        Value::Object(headers) => headers.clone(),
        Value::Null => Map::new(),
        _ => {
            return Err(Failure::failed(
                "the present headers cannot be read; --headers sets all of them",
            ));
        }
    };
    for name in &args.remove_header {
        if headers.remove(name).is_none() {
            return Err(Failure::usage(format!(
                "there is no header {}",
                super::visible::visible(name)
            )));
        }
    }
    let set = args.header.iter().cloned();
    headers.extend(set.map(|(name, value)| (name, value.into())));
    Ok(headers)
}

/// The payload as the user left it; `None` when it is what it was. What is not JSON is kept in a file.
fn in_editor(payload: &str) -> Outcome<Option<Box<RawValue>>> {
    let broken = |error: std::io::Error| Failure::failed(format!("the editor's file: {error}"));
    // For the owner alone, and gone afterwards.
    let mut file = tempfile::Builder::new()
        .prefix("quita-")
        .suffix(".json")
        .tempfile()
        .map_err(broken)?;
    let before = json::pretty(payload);
    writeln!(file, "{before}").map_err(broken)?;
    file.flush().map_err(broken)?;
    open_editor(&profile::editor(), file.path())?;
    // Read by its name: editors put a new file into the place of the old one.
    let after = std::fs::read_to_string(file.path()).map_err(broken)?;
    if json::compact(&after) == json::compact(payload) {
        return Ok(None);
    }
    match json::check(&after) {
        Ok(_) => Ok(json::check(&json::compact(&after)).ok()),
        Err(error) => {
            let kept = match file.keep() {
                Ok((_, path)) => format!("\n  hint: what you wrote is in {}", path.display()),
                Err(_) => String::new(),
            };
            Err(Failure::usage(format!(
                "nothing was changed: this is not JSON: {error}{kept}"
            )))
        }
    }
}

/// The command may have arguments, as in `code --wait`.
fn open_editor(editor: &str, file: &Path) -> Outcome<()> {
    let ended = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file)
        .status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::failed(format!(
            "nothing was changed: the editor ended with {status}"
        ))),
        Err(error) => Err(Failure::failed(format!("the editor: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fix: FixArgs,
    }

    fn parse(line: &str) -> Result<FixArgs, clap::Error> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.fix)
    }

    #[test]
    fn a_fix_says_what_and_why_and_contradicts_itself_not() {
        for good in [
            "msg_1 --merge-patch {} --reason typo",
            "msg_1 --message 1 --header a=b --remove-header c --reason typo",
            "msg_1 --headers {} --reason typo --redrive --force",
            "msg_1 --undo --redrive",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "msg_1 --reason typo",
            "msg_1 --merge-patch {}",
            "msg_1 --merge-patch {} --message 1 --reason typo",
            "msg_1 --edit --message 1 --reason typo",
            "msg_1 --headers {} --header a=b --reason typo",
            "msg_1 --undo --message 1 --reason typo",
            "msg_1 --undo --force",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_that_are_not_named_stay() {
        let args =
            parse("msg_1 --header a=2 --header n=1 --remove-header b --reason typo").unwrap();
        let headers = changed_headers(&args, &json!({"a": "1", "b": "2", "c": "3"})).unwrap();
        assert_eq!(
            Value::Object(headers),
            json!({"a": "2", "c": "3", "n": "1"})
        );
        assert!(changed_headers(&args, &Value::Null).is_err());
    }

    #[test]
    fn an_editor_may_have_arguments() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().display().to_string();
        open_editor("cp /dev/null", file.path()).unwrap();
        assert!(open_editor("false", file.path()).is_err(), "{name}");
    }
}
