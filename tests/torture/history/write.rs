//! Writing: everybody hands lines to one thread, which puts them into the file.

use super::{Event, Fault, Header, Line, Nanos, Op, Sample};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

/// The history that is being written. Clones write the same one.
#[derive(Clone)]
pub(crate) struct History {
    to_writer: Sender<Order>,
    began: Instant,
    operations: Arc<AtomicU64>,
    writer: Arc<Mutex<Option<JoinHandle<io::Result<()>>>>>,
}

enum Order {
    Write(Line),
    /// Answered when everything before it is in the file.
    Flush(Sender<()>),
    End,
}

impl History {
    /// Begins a history; its time 0 is now.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(crate) fn create(path: &Path, header: Header) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 18, File::create(path)?);
        let (to_writer, orders) = mpsc::channel();
        let writer = std::thread::spawn(move || write_all(file, &orders));
        let history = Self {
            to_writer,
            began: Instant::now(),
            operations: Arc::default(),
            writer: Arc::new(Mutex::new(Some(writer))),
        };
        history.write(Line::Header(Box::new(header)));
        Ok(history)
    }

    /// The time now, as every line tells it.
    pub(crate) fn now(&self) -> Nanos {
        self.at(Instant::now())
    }

    /// This moment, as every line tells it.
    pub(crate) fn at(&self, moment: Instant) -> Nanos {
        moment.saturating_duration_since(self.began).as_nanos() as Nanos
    }

    /// Writes an operation that has ended, and numbers it.
    pub(crate) fn record(&self, mut op: Op) {
        op.n = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        self.write(Line::Op(Box::new(op)));
    }

    /// Writes a fault that is over; everything so far is in the file when this returns.
    pub(crate) fn fault(&self, fault: Fault) {
        self.write(Line::Fault(fault));
        self.flush();
    }

    /// Writes something that happened.
    pub(crate) fn event(&self, event: Event) {
        self.write(Line::Event(event));
    }

    /// Writes what a server uses.
    pub(crate) fn sample(&self, sample: Sample) {
        self.write(Line::Sample(sample));
    }

    /// Returns when everything so far is in the file.
    pub(crate) fn flush(&self) {
        let (done, wait) = mpsc::channel();
        if self.to_writer.send(Order::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }

    /// Ends the file; lines that come later are dropped.
    ///
    /// # Errors
    /// When something could not be written.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let Some(writer) = self.writer.lock().take() else {
            return Ok(());
        };
        let _ = self.to_writer.send(Order::End);
        writer
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writer of the history panicked")))
    }

    /// A writer that failed says so at [`History::finish`].
    fn write(&self, line: Line) {
        let _ = self.to_writer.send(Order::Write(line));
    }
}

fn write_all(mut file: BufWriter<File>, orders: &Receiver<Order>) -> io::Result<()> {
    for order in orders {
        match order {
            Order::Write(line) => {
                serde_json::to_writer(&mut file, &line)?;
                file.write_all(b"\n")?;
            }
            Order::Flush(done) => {
                file.flush()?;
                let _ = done.send(());
            }
            Order::End => break,
        }
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Lines, SECOND};

    #[test]
    fn what_was_written_by_many_is_read_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let header = Header {
            seed: 7,
            ..Header::default()
        };
        let history = History::create(&path, header.clone()).unwrap();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..100).for_each(|_| history.record(Op::default())));
            }
        });
        let fault = Fault {
            kind: "kill".into(),
            t_end: SECOND,
            ..Fault::default()
        };
        history.fault(fault.clone());
        let read = |path| -> Vec<Line> { Lines::open(path).unwrap().map(Result::unwrap).collect() };
        let lines = read(&path);
        assert_eq!(lines.len(), 402, "a fault is in the file at once");
        assert_eq!(lines[0], Line::Header(Box::new(header)));
        assert_eq!(lines[401], Line::Fault(fault));
        let mut numbers: Vec<u64> = lines
            .iter()
            .filter_map(|l| match l {
                Line::Op(op) => Some(op.n),
                _ => None,
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=400).collect::<Vec<u64>>());
        history.finish().unwrap();
        history.event(Event::default());
        assert_eq!(
            read(&path).len(),
            402,
            "what comes after the end is dropped"
        );
    }
}
