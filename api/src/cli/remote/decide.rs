//! One decision about each of some messages that were named by their ids.
//!
//! Whether a message is what the decision needs is for the server to say: the repeat of a decision that was taken gets its
//! first answer, although the message is elsewhere by now. What was found is said with the refusal.

use super::Session;
use super::change::{self, ChangeArgs, Meets};
use super::client::Change;
use super::exit::{Exit, Failure, Outcome};
use super::filter::Filter;
use super::output::talk;
use super::path::{self, Pairs};
use super::progress;
use super::story::{Needed, Story};
use super::table::{self, Column, text};
use super::visible::visible;

const DECIDED: &[Column] = &[
    Column::firm("MESSAGE", |m| text(&m["message_id"])),
    Column::firm("STATE", |m| text(&m["state"])),
];

/// A filter beside ids would promise what it does not do.
pub(super) fn no_filter(filter: &Filter) -> Outcome<()> {
    if filter.query()?.is_empty() {
        Ok(())
    } else {
        Err(Failure::usage("a filter goes with --queue, not with ids"))
    }
}

/// What is decided about each of them.
pub(super) struct Each {
    /// The end of the path.
    pub(super) action: &'static str,
    /// What a message has to be.
    pub(super) needs: Needed,
    /// Members of the request.
    pub(super) members: Pairs,
}

/// Problems which say that the message is not what the decision needs.
const ELSEWHERE: &[&str] = &["not_dead", "not_discarded", "message_gone", "not_found"];

/// One decision about each of these messages, one after another. What fails does not stop the others.
pub(super) fn each(
    session: &mut Session,
    ids: &[String],
    args: &ChangeArgs,
    each: &Each,
) -> Outcome {
    if ids.is_empty() {
        return Err(Failure::usage("name messages by ID, or many with --queue"));
    }
    if ids.len() > 1 && args.request_id.is_some() {
        return Err(Failure::usage("one --request-id names one request"));
    }
    let mut failed: Vec<Failure> = Vec::new();
    if args.dry_run {
        return dry_run(session, ids, args, each);
    }
    let mut answers = Vec::new();
    let bar = progress::bar(ids.len() as u64);
    for id in ids {
        let done = prepare(session, id, args, each).and_then(|(_, change)| {
            change::send(&session.client, &change)
                .map_err(|failure| found(session, id, each.needs, failure))
        });
        match done {
            Ok(answer) => answers.push(answer),
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => {
                bar.suspend(|| {
                    talk(&visible(id));
                    failure.print();
                });
                failed.push(failure);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let some = !answers.is_empty();
    if let ([answer], true) = (answers.as_slice(), ids.len() == 1) {
        session.out.one(answer, "message_id", |decided, width| {
            let pairs = [
                ("message", text(&decided["message_id"])),
                ("state", text(&decided["state"])),
            ];
            table::fields(&pairs, width)
        })?;
    } else {
        let mut rows = session.out.rows("message_id", DECIDED);
        for answer in &answers {
            rows.push(answer)?;
        }
        rows.end("Nothing was done.")?;
    }
    Ok(match failed.first() {
        None => Exit::Done,
        Some(_) if some => Exit::Partly,
        Some(first) => first.exit,
    })
}

/// Shows what would be sent about each of them.
fn dry_run(session: &mut Session, ids: &[String], args: &ChangeArgs, each: &Each) -> Outcome {
    let mut ends = Vec::new();
    for id in ids {
        let shown = prepare(session, id, args, each).and_then(|(story, change)| {
            let refusal = story.not_in(each.needs);
            session.show_dry_run(&change, &meets(&story, refusal))
        });
        ends.push(match shown {
            Ok(exit) => exit,
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => {
                failure.print();
                failure.exit
            }
        });
    }
    let refused = ends.iter().find(|exit| **exit != Exit::Done);
    Ok(match refused {
        None => Exit::Done,
        Some(_) if ends.contains(&Exit::Done) => Exit::Partly,
        Some(first) => *first,
    })
}

/// What a change of a message would meet.
pub(super) fn meets(story: &Story, refusal: Option<String>) -> Meets<'static> {
    Meets {
        name: text(&story.get("message_id")),
        fields: story.present(),
        present: story.present_json(),
        refusal,
    }
}

/// A refusal that is about where the message is, with where that is. A message that is elsewhere was found all the same: the
/// exit code of one that is not is for those that nobody knows.
pub(super) fn found(session: &Session, id: &str, needs: Needed, failure: Failure) -> Failure {
    if !failure.is_one_of(ELSEWHERE) {
        return failure;
    }
    let story = session.client.read::<Story>(&path::message(id));
    match story.ok().and_then(|story| story.not_in(needs)) {
        Some(why) => failure.instead(Exit::Refused, &format!("nothing was done: {why}")),
        None => failure,
    }
}

/// The message, and the decision about it. Its queue is part of the path.
fn prepare(
    session: &Session,
    id: &str,
    args: &ChangeArgs,
    each: &Each,
) -> Outcome<(Story, Change)> {
    let story: Story = session.client.read(&path::message(id))?;
    let path = path::dead_letter(&story.queue(), id, each.action);
    let change = Change::post(path, args.body(each.members.clone())?);
    Ok((story, change))
}
