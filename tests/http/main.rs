//! Black box over a socket: what a client can see and nothing else. The files mirror `api/src/http`.

mod server;
