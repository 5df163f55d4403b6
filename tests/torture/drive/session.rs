//! A client whose every operation leaves one line in the history.

use super::answer::{Heard, Held, heard};
use super::caller::{Caller, Outcome};
use crate::history::{Args, Body, Class, History, Kind, Op};
use serde_json::Value;
use std::time::Duration;

/// After this long a client gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// One operation to come.
pub(crate) struct Ask<'a> {
    /// What it is in the history.
    pub(crate) op: Kind,
    /// The queue that it is about.
    pub(crate) queue: &'a str,
    /// What the history keeps of what is asked.
    pub(crate) args: Args,
    /// HTTP method.
    pub(crate) method: &'a str,
    /// Path and query.
    pub(crate) path: String,
    /// JSON text, empty for none.
    pub(crate) body: String,
    /// How long to wait.
    pub(crate) patience: Duration,
}

impl<'a> Ask<'a> {
    /// A POST of JSON.
    pub(crate) fn post(op: Kind, queue: &'a str, path: &str, args: Args, body: String) -> Self {
        Self {
            op,
            queue,
            args,
            method: "POST",
            path: path.to_owned(),
            body,
            patience: PATIENCE,
        }
    }

    /// A GET.
    pub(crate) fn get(op: Kind, queue: &'a str, path: &str, args: Args) -> Self {
        let body = String::new();
        Self {
            method: "GET",
            ..Self::post(op, queue, path, args, body)
        }
    }
}

/// What came of an operation.
pub(crate) struct Done {
    /// Whether it took effect.
    pub(crate) class: Class,
    /// Problem code, or why there was no answer.
    pub(crate) code: String,
    /// The answer, without payloads and receipts.
    pub(crate) body: Body,
    /// What it handed out.
    pub(crate) held: Vec<Held>,
    /// Token of the next page.
    pub(crate) next: Option<String>,
    /// The answer itself, unless it holds payloads.
    pub(crate) json: Value,
}

impl Done {
    /// Whether it succeeded.
    pub(crate) fn ok(&self) -> bool {
        self.class == Class::Ok
    }

    /// Whether nobody knows what it did.
    pub(crate) fn unknown(&self) -> bool {
        self.class == Class::Info
    }
}

/// A client with a name.
pub(crate) struct Session {
    name: String,
    caller: Caller,
    history: History,
}

impl Session {
    /// A client of this name.
    pub(crate) fn new(name: &str, caller: Caller, history: &History) -> Self {
        Self {
            name: name.to_owned(),
            caller,
            history: history.clone(),
        }
    }

    /// Does one operation and writes it down.
    pub(crate) async fn ask(&mut self, server: usize, ask: Ask<'_>) -> Done {
        let t_inv = self.history.now();
        let call = self
            .caller
            .call(server, ask.method, &ask.path, &ask.body, ask.patience);
        let outcome = call.await;
        let t_ret = self.history.now();
        let mut op = Op {
            client: self.name.clone(),
            replica: server as u32,
            t_inv,
            t_ret,
            op: ask.op,
            queue: ask.queue.to_owned(),
            args: ask.args,
            ..Op::default()
        };
        let mut more = Heard::default();
        match outcome {
            Outcome::Lost(why) => {
                let never_made = why == "refused";
                op.class = if never_made { Class::Fail } else { Class::Info };
                why.clone_into(&mut op.code);
            }
            Outcome::Answer { status, head, body } => {
                more = heard(op.op, &op.queue, status, &head, &body);
                op.status = status;
                (op.class, op.code) = (more.class, more.code.clone());
                op.body = more.body.clone();
            }
        }
        let done = Done {
            class: op.class,
            code: op.code.clone(),
            body: more.body,
            held: more.held,
            next: more.next,
            json: more.json,
        };
        self.history.record(op);
        done
    }
}
