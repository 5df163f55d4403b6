//! The operators' desk at depth: listings, groups, selections and redrives over many dead letters, and an export of the audit.
//!
//! `quita-bench desk` fills one queue with 1,000 dead letters and one with 1,000,000 through the interface, and compares. Every
//! bound is a ratio within the run or a figure that the contract of the desk names; see [`Bounds`].

use crate::Outcome;
use crate::fill::fill;
use crate::fresh::{Ground, Store};
use crate::lifecycle::{self, Requests};
use crate::messages::{self, message};
use crate::meters::Meters;
use crate::process::memory_mib;
use crate::report::Verdict;
use crate::server::Quita;
use crate::stats::median;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Dead letters that a page of the deep queue is compared with.
const SHALLOW: u64 = 1_000;
/// How often each listing is asked for; medians count.
const PAGES: usize = 40;

/// What each row must reach.
struct Bounds {
    redriven_per_second: f64,
}

/// One figure with its bound.
struct Line {
    store: &'static str,
    row: &'static str,
    figure: f64,
    unit: &'static str,
    at_most: Option<f64>,
    at_least: Option<f64>,
}

impl Line {
    fn passes(&self) -> bool {
        self.at_most.is_none_or(|bound| self.figure <= bound)
            && self.at_least.is_none_or(|bound| self.figure >= bound)
    }
}

/// Measures the desk on each store that is there.
pub(crate) async fn run(
    ground: &Ground,
    depth: u64,
    length: Duration,
    stores: &[Store],
) -> Outcome<Verdict> {
    let mut lines = Vec::new();
    for store in stores {
        let bounds = Bounds {
            redriven_per_second: match store {
                Store::Sqlite => 5_000.0,
                Store::Postgres => 3_000.0,
            },
        };
        let fresh = ground.start(*store).await?;
        let desk = Desk {
            quita: &fresh.quita,
            store: store.name(),
        };
        desk.measure(depth, length, &bounds, &mut lines).await?;
        fresh.end().await;
    }
    println!("| store | row | figure | bound | |\n|---|---|---:|---:|---|");
    for line in &lines {
        let bound = match (line.at_most, line.at_least) {
            (Some(most), _) => format!("≤ {most}"),
            (_, Some(least)) => format!("≥ {least}"),
            _ => String::new(),
        };
        let verdict = if line.passes() { "pass" } else { "FAIL" };
        println!(
            "| {} | {} | {:.3} {} | {bound} | {verdict} |",
            line.store, line.row, line.figure, line.unit
        );
    }
    for line in &lines {
        let (store, row, figure, unit) = (line.store, line.row, line.figure, line.unit);
        println!(
            "{}",
            json!({"store": store, "row": row, "figure": figure, "unit": unit, "depth": depth, "pass": line.passes()})
        );
    }
    let passed = lines.iter().all(Line::passes);
    Ok(if passed { Verdict::Pass } else { Verdict::Fail })
}

struct Desk<'a> {
    quita: &'a Quita,
    store: &'static str,
}

impl Desk<'_> {
    async fn measure(
        &self,
        depth: u64,
        length: Duration,
        bounds: &Bounds,
        lines: &mut Vec<Line>,
    ) -> Outcome<()> {
        for queue in ["shallow", "deep", "live"] {
            self.quita.create(queue).await?;
        }
        fill(self.quita, "shallow", SHALLOW).await?;
        let began = Instant::now();
        fill(self.quita, "deep", depth).await?;
        eprintln!(
            "{}: {depth} dead letters in {:?}",
            self.store,
            began.elapsed()
        );
        let mut line = |row, figure, unit, at_most, at_least| {
            lines.push(Line {
                store: self.store,
                row,
                figure,
                unit,
                at_most,
                at_least,
            });
        };
        for (row, query) in [
            (
                "page by a rare error code, deep / shallow",
                "error_code=declined",
            ),
            (
                "page by reason, newest first, deep / shallow",
                "reason=permanent_failure&order=newest",
            ),
            (
                "page by key prefix, deep / shallow",
                "key_prefix=card-00000000000000001",
            ),
        ] {
            let (shallow, deep) = self.pages(query).await?;
            line(row, deep / shallow, "×", Some(2.0), None);
        }
        let groups = self
            .median("GET", "/v1/queues/deep/dead-letters/groups", &Value::Null)
            .await?;
        line("groups", groups, "s", Some(2.0), None);
        let select = json!({"queue": "deep", "filter": {}});
        let selection = self
            .median("POST", "/v1/dead-letters/selections", &select)
            .await?;
        line("selection of all", selection, "s", Some(2.0), None);
        let few = json!({"queue": "deep", "filter": {"error_code": "declined"}});
        let selection = self
            .median("POST", "/v1/dead-letters/selections", &few)
            .await?;
        line(
            "selection by a rare error code",
            selection,
            "s",
            Some(2.0),
            None,
        );

        let alone = self.lifecycle("alone", length).await?;
        let redrive = self.start(depth).await?;
        let (before, began) = (self.moved(&redrive).await?, Instant::now());
        let beside = self.lifecycle("beside", length).await?;
        let moved = self.moved(&redrive).await? - before;
        let rate = moved as f64 / began.elapsed().as_secs_f64();
        self.call(
            "POST",
            &format!("/v1/redrives/{redrive}/cancel"),
            &json!({}),
        )
        .await?;
        line(
            "redriven beside publish, receive, ack",
            rate,
            "messages/s",
            None,
            Some(bounds.redriven_per_second),
        );
        line(
            "publish, receive, ack beside a redrive / alone",
            beside / alone,
            "×",
            None,
            Some(0.7),
        );

        let (rows, growth, seconds) = self.export().await?;
        eprintln!(
            "{}: {rows} audit rows exported in {seconds:.1} s",
            self.store
        );
        line(
            "memory growth while exporting the audit",
            growth,
            "MiB",
            Some(32.0),
            None,
        );
        line("audit export", rows as f64 / seconds, "rows/s", None, None);
        Ok(())
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.quita.call(method, path, &body).await
    }

    async fn seconds(&self, method: &str, path: &str, body: &Value) -> Outcome<f64> {
        let began = Instant::now();
        self.call(method, path, body).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    async fn median(&self, method: &str, path: &str, body: &Value) -> Outcome<f64> {
        let mut seconds = Vec::new();
        for _ in 0..3 {
            seconds.push(self.seconds(method, path, body).await?);
        }
        Ok(median(&seconds))
    }

    /// The same page of the shallow and of the deep queue, turn by turn.
    async fn pages(&self, query: &str) -> Outcome<(f64, f64)> {
        let (mut shallow, mut deep) = (Vec::new(), Vec::new());
        for _ in 0..PAGES {
            for (queue, seconds) in [("shallow", &mut shallow), ("deep", &mut deep)] {
                let path = format!("/v1/queues/{queue}/dead-letters?page_size=10&{query}");
                seconds.push(self.seconds("GET", &path, &Value::Null).await?);
            }
        }
        Ok((median(&shallow), median(&deep)))
    }

    /// Requests per second of whole lives in a queue of their own.
    async fn lifecycle(&self, run: &str, length: Duration) -> Outcome<f64> {
        let key = self.quita.key.as_str();
        self.call("POST", "/v1/queues/live/purge", &json!({"confirm": "live"}))
            .await?;
        let requests = Requests {
            publish: messages::publish_as(run, "live", &message(), Some(key)),
            receive: messages::receive("live", 1, Some(key)),
            key: key.into(),
        };
        let meters = Meters {
            server: self.quita.id(),
            postgres: None,
        };
        let measured = lifecycle::run(self.quita.address, &requests, length, &meters).await?;
        Ok(measured.requests as f64 / measured.seconds)
    }

    /// Begins a redrive of the whole deep queue without a rate limit.
    async fn start(&self, depth: u64) -> Outcome<String> {
        let select = json!({"queue": "deep", "filter": {}});
        let selection = self
            .call("POST", "/v1/dead-letters/selections", &select)
            .await?;
        if selection["count"] != json!(depth) {
            return Err(format!("the selection has not {depth} messages: {selection}").into());
        }
        let plan = json!({
            "selection_id": selection["selection_id"], "expected_count": depth,
            "rate_per_second": null, "canary": null, "abort_if": null,
        });
        let redrive = self.call("POST", "/v1/redrives", &plan).await?;
        let id = redrive["redrive_id"].as_str().ok_or("no redrive_id")?;
        Ok(id.to_owned())
    }

    async fn moved(&self, redrive: &str) -> Outcome<u64> {
        let redrive = self
            .call("GET", &format!("/v1/redrives/{redrive}"), &Value::Null)
            .await?;
        Ok(redrive["moved"].as_u64().ok_or("no count of moved ones")?)
    }

    /// Reads the whole audit trail as lines. Answers how many there were, by how many MiB the server grew, and the time.
    async fn export(&self) -> Outcome<(u64, f64, f64)> {
        let (before, _) = memory_mib(self.quita.id())?;
        let began = Instant::now();
        let mut stream = TcpStream::connect(self.quita.address).await?;
        let request = format!(
            "GET /v1/audit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nAccept: application/x-ndjson\r\nConnection: close\r\n\r\n",
            self.quita.key
        );
        stream.write_all(request.as_bytes()).await?;
        let (mut chunk, mut rows, mut peak, mut reads) = (vec![0; 1 << 16], 0_u64, before, 0_u32);
        loop {
            let read = stream.read(&mut chunk).await?;
            if read == 0 {
                break;
            }
            rows += memchr::memmem::find_iter(&chunk[..read], b"\"audit_id\"").count() as u64;
            reads += 1;
            if reads.is_multiple_of(64) {
                peak = peak.max(memory_mib(self.quita.id())?.0);
            }
        }
        Ok((rows, peak - before, began.elapsed().as_secs_f64()))
    }
}
