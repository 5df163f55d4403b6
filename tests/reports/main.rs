//! What went wrong in other queues, tried here. docs/REPORTS.md names the reports and the test that answers each of them; a
//! case here names the rows of that page that it is for.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batches;
mod clocks;
mod files;
mod hand_outs;
mod lives;
mod outages;
mod page;
mod request_ids;
mod sizes;
mod standby;
mod stops;
mod waiting;
