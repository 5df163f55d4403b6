//! Black box over a socket: what a client can see and nothing else. The files mirror `api/src/http`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod any_input;
mod audit;
mod bad_input;
mod browsers;
mod canaries;
mod client;
mod dead_letters;
mod discards;
mod edits;
mod forgery;
mod groups;
mod issuer;
mod keys;
mod limits;
mod messages;
mod meta;
mod page_tokens;
mod publish;
mod queue_names;
mod queues;
mod receive;
mod redrives;
mod repeats;
mod rights;
mod selections;
mod server;
mod settle;
mod store_down;
mod tokens;
