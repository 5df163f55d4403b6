//! What is counted, for `/metrics`.

use crate::limit::Limit;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLimit {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCode {
    code: &'static str,
}

/// The two text formats that collectors read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

/// What has no count of its own and is looked up when somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Present {
    /// Receives that wait.
    pub waiting_receives: usize,
    /// Requests in flight, receives apart.
    pub requests: usize,
    /// Bytes of the bodies of requests in flight.
    pub body_bytes: usize,
}

/// All counts of one server.
pub struct Metrics {
    registry: Registry,
    limited: Family<OfLimit, Counter>,
    problems: Family<OfCode, Counter>,
    handshakes_failed: Counter,
    waiting_receives: Gauge,
    requests: Gauge,
    body_bytes: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let (limited, problems) = (Family::default(), Family::default());
        let handshakes_failed = Counter::default();
        let (waiting_receives, requests) = (Gauge::default(), Gauge::default());
        let body_bytes = Gauge::default();
        let mut registry = Registry::with_prefix("quita");
        registry.register(
            "limited",
            "Refused or closed because of a limit",
            limited.clone(),
        );
        registry.register(
            "problems",
            "Answers that are no success, by code",
            problems.clone(),
        );
        registry.register(
            "tls_handshakes_failed",
            "TLS handshakes that failed or took too long",
            handshakes_failed.clone(),
        );
        registry.register(
            "waiting_receives",
            "Receives that wait for a message",
            waiting_receives.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests being served, receives apart",
            requests.clone(),
        );
        registry.register(
            "body_bytes_in_flight",
            "Bytes of the bodies of requests being served",
            body_bytes.clone(),
        );
        // A limit that was never met is 0, not absent: an alert can tell the two apart.
        for limit in Limit::ALL {
            let name = limit.name();
            drop(Family::<OfLimit, Counter>::get_or_create(
                &limited,
                &OfLimit { limit: name },
            ));
        }
        Self {
            registry,
            limited,
            problems,
            handshakes_failed,
            waiting_receives,
            requests,
            body_bytes,
        }
    }
}

impl Metrics {
    /// A limit refused a request or closed a connection.
    pub fn limited(&self, limit: Limit) {
        let name = limit.name();
        self.limited.get_or_create(&OfLimit { limit: name }).inc();
    }

    /// An answer was a problem.
    pub fn problem(&self, code: &'static str) {
        self.problems.get_or_create(&OfCode { code }).inc();
    }

    /// A connection that should have begun with a TLS handshake did not get through one.
    pub fn handshake_failed(&self) {
        self.handshakes_failed.inc();
    }

    /// All of it as text.
    pub fn write(&self, present: Present, format: Format) -> Result<String, fmt::Error> {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.waiting_receives.set(gauge(present.waiting_receives));
        self.requests.set(gauge(present.requests));
        self.body_bytes.set(gauge(present.body_bytes));
        let mut out = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut out, &self.registry)?,
            Format::OpenMetrics => text::encode(&mut out, &self.registry)?,
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_the_same() {
        let metrics = Metrics::default();
        metrics.limited(Limit::PublishRate);
        metrics.problem("rate_limited");
        let present = Present {
            waiting_receives: 3,
            requests: 2,
            body_bytes: 77,
        };
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = metrics.write(present, format).unwrap();
            for line in [
                "quita_limited_total{limit=\"publish_rate\"} 1",
                "quita_limited_total{limit=\"write_stall\"} 0",
                "quita_problems_total{code=\"rate_limited\"} 1",
                "quita_tls_handshakes_failed_total 0",
                "quita_waiting_receives 3",
                "quita_requests_in_flight 2",
                "quita_body_bytes_in_flight 77",
            ] {
                assert!(text.lines().any(|l| l == line), "{line} in {text}");
            }
            assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }
}
