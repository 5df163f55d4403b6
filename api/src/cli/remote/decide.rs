//! One decision about each of some messages that were named by their ids.

use super::Session;
use super::change::{self, ChangeArgs};
use super::client::Change;
use super::exit::{Exit, Failure, Outcome};
use super::filter::Filter;
use super::output::talk;
use super::path::{self, Pairs};
use super::progress;
use super::story::Story;
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

/// One decision about each of these messages, one after another. What fails does not stop the others.
pub(super) fn each(
    session: &mut Session,
    ids: &[String],
    args: &ChangeArgs,
    action: &str,
    members: &Pairs,
) -> Outcome {
    if ids.len() > 1 && args.request_id.is_some() {
        return Err(Failure::usage("one --request-id names one request"));
    }
    let mut failed: Vec<Failure> = Vec::new();
    if args.dry_run {
        for id in ids {
            let (story, change) = prepare(session, id, args, action, members)?;
            session.show_dry_run(&change, &story.present())?;
        }
        return Ok(Exit::Done);
    }
    let mut answers = Vec::new();
    let bar = progress::bar(ids.len() as u64);
    for id in ids {
        let done = prepare(session, id, args, action, members)
            .and_then(|(_, change)| change::send(&session.client, &change));
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

/// The message, and the decision about it. Its queue is part of the path.
fn prepare(
    session: &Session,
    id: &str,
    args: &ChangeArgs,
    action: &str,
    members: &Pairs,
) -> Outcome<(Story, Change)> {
    let story: Story = session.client.read(&path::message(id))?;
    let path = path::dead_letter(&story.queue(), id, action);
    let change = Change::post(path, args.body(members.clone())?);
    Ok((story, change))
}
