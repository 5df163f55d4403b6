//! The audit trail as a stream of lines, each a JSON document: as much at once as the client takes, and never more in memory
//! than a page.

use super::wire::audit::Entry;
use crate::service::audit::Trail;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::try_unfold;
use quita_storage::audit::AuditQuery;

/// Rows that a stream reads at once, and holds at most.
const STREAMED: u32 = 500;

/// How far a stream is.
pub(crate) struct Reading {
    query: AuditQuery,
    /// The youngest row when the stream began; what comes later is not in it.
    last: i64,
    ended: bool,
}

impl Reading {
    /// From the first row that `query` means to `last`.
    pub(crate) fn new(query: AuditQuery, last: i64) -> Self {
        Self {
            query: AuditQuery {
                limit: STREAMED,
                ..query
            },
            last,
            ended: false,
        }
    }

    /// The lines of a page; goes on to the next one.
    fn take(&mut self, trail: &Trail) -> Vec<u8> {
        let mut out = Vec::new();
        let known = |id: i64| id <= self.last;
        for (entry, queue) in trail.entries.iter().filter(|(entry, _)| known(entry.id)) {
            // Our own types always serialise, and writing to a vector cannot fail.
            let _ = serde_json::to_writer(&mut out, &Entry::new(entry, queue.as_deref()));
            out.push(b'\n');
        }
        let beyond = |id: i64| !self.query.newest_first && id >= self.last;
        self.ended = trail.next.is_none_or(beyond);
        self.query.after = trail.next;
        out
    }
}

/// One page per item, read when the one before has been taken. An error ends the connection without the end of the body, so
/// that nobody takes a part for the whole.
pub(crate) fn pages<Read, Page>(
    read: Read,
    reading: Reading,
) -> impl Stream<Item = Result<Bytes, CutOff>> + Send + 'static
where
    Read: Fn(AuditQuery) -> Page + Send + 'static,
    Page: Future<Output = Result<Trail, CutOff>> + Send + 'static,
{
    try_unfold((read, reading), |(read, mut reading)| async move {
        // A page of which nothing is wanted is no item: an empty one would look like the end.
        while !reading.ended {
            let trail = read(reading.query.clone()).await?;
            let out = reading.take(&trail);
            if !out.is_empty() {
                return Ok(Some((Bytes::from(out), (read, reading))));
            }
        }
        Ok(None)
    })
}

/// The store failed in the middle of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the store failed in the middle of the answer")]
pub(crate) struct CutOff;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use quita_storage::audit::AuditEntry;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn row(id: i64) -> (AuditEntry, Option<Arc<quita_storage::model::Queue>>) {
        let entry = AuditEntry {
            id,
            at: id,
            actor: "a".into(),
            action: "pause".into(),
            queue: None,
            message: None,
            redrive: None,
            reason: None,
            before: None,
            after: None,
            http_request: None,
        };
        (entry, None)
    }

    /// A trail of ten rows, two to a page; the page behind `broken` fails.
    fn stream(
        last: i64,
        newest_first: bool,
        broken: i64,
        asked: &Arc<AtomicU32>,
    ) -> impl Stream<Item = Result<Bytes, CutOff>> + use<> {
        let asked = asked.clone();
        let read = move |query: AuditQuery| {
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut ids: Vec<i64> = (1..=10).collect();
                if newest_first {
                    ids.reverse();
                }
                let behind = |id: &i64| match query.after {
                    Some(after) if newest_first => *id < after,
                    Some(after) => *id > after,
                    None => true,
                };
                ids.retain(behind);
                if query.after == Some(broken) {
                    return Err(CutOff);
                }
                let next = ids.get(1).copied().filter(|_| ids.len() > 2);
                let entries = ids.into_iter().take(2).map(row).collect();
                Ok(Trail { entries, next })
            }
        };
        let query = AuditQuery {
            newest_first,
            limit: 2,
            ..AuditQuery::default()
        };
        let reading = Reading {
            query,
            last,
            ended: false,
        };
        pages(read, reading)
    }

    async fn ids(stream: impl Stream<Item = Result<Bytes, CutOff>>) -> Vec<i64> {
        let pages: Vec<_> = stream.collect().await;
        let text: Vec<u8> = pages.into_iter().flat_map(Result::unwrap).collect();
        let lines = serde_json::Deserializer::from_slice(&text).into_iter();
        lines
            .map(|line: Result<serde_json::Value, _>| line.unwrap()["audit_id"].as_i64().unwrap())
            .collect()
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_last_row_that_was_there_when_it_began() {
        let asked = Arc::default();
        assert_eq!(ids(stream(5, false, 0, &asked)).await, [1, 2, 3, 4, 5]);
        assert_eq!(
            asked.load(Ordering::SeqCst),
            3,
            "what comes later is not read"
        );
        assert_eq!(ids(stream(4, true, 0, &asked)).await, [4, 3, 2, 1]);
        let whole: Vec<i64> = (1..=10).collect();
        assert_eq!(ids(stream(10, false, 0, &asked)).await, whole);
    }

    #[tokio::test]
    async fn a_page_is_read_when_the_one_before_was_taken_and_an_error_is_no_end() {
        let asked = Arc::<AtomicU32>::default();
        let mut stream = Box::pin(stream(10, false, 4, &asked));
        assert!(stream.next().await.unwrap().is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(stream.next().await.unwrap().is_ok());
        assert!(stream.next().await.unwrap().is_err());
    }
}
