//! The client that every file here speaks with.

pub(crate) use quita_tests::served::{Client, checked};
pub(crate) use quita_tests::served_on_every_store as on_every_store;
