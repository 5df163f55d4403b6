//! Black box over a socket: what a client can see and nothing else. The files mirror `api/src/http`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod client;
mod dead_letters;
mod messages;
mod meta;
mod publish;
mod queues;
mod receive;
mod server;
mod settle;
