//! `/metrics`: the instruments as OpenMetrics or as Prometheus text.
//!
//! Names follow from the contract's: dots become underscores, a unit of seconds and a counter's
//! `_total` are added.

use std::fmt::Write;

use super::{
    metrics::Metrics,
    names::{attribute, metric},
    series::{Counter, Exemplar, Family, Gauge, Histogram, Labels},
};
use crate::{mcp::Method, model::trace::push_hex};

/// A form that `/metrics` is served in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With exemplars.
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// What an `Accept` header asks for.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let wants = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            parts.next() == Some("application/openmetrics-text")
                && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0"))
        };
        if accept.is_some_and(|accept| accept.split(',').any(wants)) {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Metrics {
    /// Everything there is to know, in the given form.
    pub fn expose(&self, format: Format) -> String {
        let mut page = Page { out: String::with_capacity(16 << 10), format };
        page.histograms(metric::SERVER_DURATION, "Time to serve an MCP request.", &self.server);
        page.histograms(metric::CLIENT_DURATION, "Time of an attempt upstream.", &self.client);
        page.head(
            metric::OVERHEAD_DURATION,
            Kind::Histogram,
            "Time in the gateway, without upstream and waits.",
        );
        for method in Method::ALL {
            let series = self.overhead.of(method);
            if series.read().any(|(count, _)| count > 0) {
                let label = label(attribute::MCP_METHOD_NAME, method.as_str());
                page.histogram(metric::OVERHEAD_DURATION, &label, series);
            }
        }
        let help = "Time that a client's session lasted.";
        page.histograms(metric::SERVER_SESSION, help, &self.server_session);
        let help = "Time that a session at an upstream lasted.";
        page.histograms(metric::CLIENT_SESSION, help, &self.client_session);
        page.head(metric::REQUESTS_ACTIVE, Kind::Gauge, "Requests being served.");
        for method in Method::ALL {
            let label = label(attribute::MCP_METHOD_NAME, method.as_str());
            page.sample(metric::REQUESTS_ACTIVE, "", &label, self.active.of(method).value());
        }
        page.gauges(metric::STREAMS_ACTIVE, "Event streams of an upstream.", &self.streams);
        page.histograms(metric::HTTP_SERVER_DURATION, "Time to serve an HTTP request.", &self.http);
        page.counters(metric::POLICY_DECISIONS, "Decisions of policy.", &self.decisions);
        page.counters(metric::POLICY_RELOADS, "Attempts to load the policy.", &self.policy_reloads);
        page.head(metric::POLICY_INFO, Kind::Gauge, "The policy in force.");
        if let Some(revision) = &*self.policy_revision.lock() {
            page.sample(metric::POLICY_INFO, "", &label(attribute::POLICY_REVISION, revision), 1);
        }
        page.counters(metric::LIMIT_REJECTIONS, "Calls over a limit.", &self.limit_rejections);
        page.counters(
            metric::LIMIT_FALLBACKS,
            "Calls that a limit decided without its store.",
            &self.limit_fallbacks,
        );
        page.head(metric::QUOTA_UTILIZATION, Kind::Gauge, "Spent of a quota, as parts of one.");
        for (labels, entry) in sorted(&self.quota_utilization) {
            let thousandths = entry.series.value();
            let share = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
            page.sample(metric::QUOTA_UTILIZATION, "", &labels, share);
        }
        page.counters(
            metric::IDEMPOTENCY_REQUESTS,
            "Calls with an idempotency key, by what was known of it.",
            &self.idempotency,
        );
        page.counters(
            metric::APPROVAL_NOTICES,
            "Notices of approvals to the webhook.",
            &self.approval_notices,
        );
        page.counters(
            metric::APPROVAL_REQUESTS,
            "Requests for approval that ended.",
            &self.approvals,
        );
        let help = "Time that a request for approval waited.";
        page.histograms(metric::APPROVAL_WAIT_DURATION, help, &self.approval_wait);
        page.gauges(metric::UPSTREAM_UP, "Whether an upstream answers.", &self.upstream_up);
        let help = "Calls that could be sent again, and what became of that.";
        page.counters(metric::UPSTREAM_RETRIES, help, &self.retries);
        let help = "An upstream's breaker: 0 closed, 1 half open, 2 open.";
        page.gauges(metric::UPSTREAM_BREAKER, help, &self.breaker);
        let help = "Calls that were not made because the upstream keeps failing.";
        page.counters(metric::UPSTREAM_BREAKER_REJECTIONS, help, &self.breaker_rejections);
        page.gauges(metric::CATALOG_TOOLS, "Tools of an upstream.", &self.catalog_tools);
        let help = "Definitions that changed under way, or are not the approved ones.";
        page.counters(metric::PIN_MISMATCHES, help, &self.pin_mismatches);
        page.counters(metric::AUDIT_RECORDS, "Audit records.", &self.audit_records);
        page.head(metric::AUDIT_WRITE_DURATION, Kind::Histogram, "Time to write audit records.");
        page.histogram(metric::AUDIT_WRITE_DURATION, "", &self.audit_write);
        page.head(metric::AUDIT_QUEUE_DEPTH, Kind::Gauge, "Audit records that wait.");
        page.sample(metric::AUDIT_QUEUE_DEPTH, "", "", self.audit_depth.value());
        page.head(
            metric::TRACE_CONTEXT_INVALID,
            Kind::Counter,
            "Requests with a trace context that cannot be read.",
        );
        let invalid = self.trace_context_invalid.value();
        page.sample(metric::TRACE_CONTEXT_INVALID, "_total", "", invalid);
        page.finish()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The page being written. Writing to a string cannot fail, so its results are not looked at.
struct Page {
    out: String,
    format: Format,
}

impl Page {
    fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let (name, suffix) = (exposed(name, kind), self.family_suffix(kind));
        let kind_name = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.out, "# HELP {name}{suffix} {help}");
        let _ = writeln!(self.out, "# TYPE {name}{suffix} {kind_name}");
        if kind == Kind::Histogram && self.format == Format::OpenMetrics {
            let _ = writeln!(self.out, "# UNIT {name} seconds");
        }
    }

    /// OpenMetrics names the family of a counter without its samples' suffix, the older text
    /// with it.
    fn family_suffix(&self, kind: Kind) -> &'static str {
        match (kind, self.format) {
            (Kind::Counter, Format::Prometheus) => "_total",
            _ => "",
        }
    }

    fn counters<L: Labels>(&mut self, name: &str, help: &str, family: &Family<L, Counter>) {
        self.head(name, Kind::Counter, help);
        for (labels, entry) in sorted(family) {
            self.sample(name, "_total", &labels, entry.series.value());
        }
    }

    fn gauges<L: Labels>(&mut self, name: &str, help: &str, family: &Family<L, Gauge>) {
        self.head(name, Kind::Gauge, help);
        for (labels, entry) in sorted(family) {
            self.sample(name, "", &labels, entry.series.value());
        }
    }

    fn histograms<L: Labels>(&mut self, name: &str, help: &str, family: &Family<L, Histogram>) {
        self.head(name, Kind::Histogram, help);
        for (labels, entry) in sorted(family) {
            self.histogram(name, &labels, &entry.series);
        }
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &str, value: impl std::fmt::Display) {
        self.name(&exposed(name, Kind::Counter), suffix, labels);
        let _ = writeln!(self.out, " {value}");
    }

    fn histogram(&mut self, name: &str, labels: &str, series: &Histogram) {
        let name = exposed(name, Kind::Histogram);
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        let bounds = series.bounds.iter().map(|bound| Some(*bound)).chain([None]);
        for ((count, exemplar), bound) in series.read().zip(bounds) {
            total += count;
            let bound = bound.map_or("+Inf".to_owned(), le);
            let _ = write!(self.out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
            if let Some(exemplar) = exemplar.filter(|_| self.format == Format::OpenMetrics) {
                self.exemplar(exemplar);
            }
            self.out.push('\n');
        }
        self.name(&name, "_sum", labels);
        let _ = writeln!(self.out, " {}", seconds(series.nanos()));
        // The sum of the buckets just printed, so that the page agrees with itself.
        self.name(&name, "_count", labels);
        let _ = writeln!(self.out, " {total}");
    }

    fn exemplar(&mut self, exemplar: Exemplar) {
        self.out.push_str(" # {trace_id=\"");
        push_hex(&mut self.out, &exemplar.trace_id);
        self.out.push_str("\",span_id=\"");
        push_hex(&mut self.out, &exemplar.span_id);
        let (time, value) = (exemplar.ms / 1000, seconds(exemplar.nanos));
        let _ = write!(self.out, "\"}} {value} {time}.{:03}", exemplar.ms % 1000);
    }

    fn name(&mut self, name: &str, suffix: &str, labels: &str) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        if !labels.is_empty() {
            let _ = write!(self.out, "{{{labels}}}");
        }
    }

    fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

/// Labels as they are printed, and the series, in a lasting order.
fn sorted<L: Labels, S>(
    family: &Family<L, S>,
) -> Vec<(String, std::sync::Arc<super::series::Entry<L, S>>)> {
    let mut all: Vec<_> = family
        .all()
        .into_iter()
        .map(|entry| {
            let mut text = String::new();
            entry.labels.each(&mut |name, value| {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(&label(name, value));
            });
            (text, entry)
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

fn exposed(name: &str, kind: Kind) -> String {
    let unit = if kind == Kind::Histogram { "_seconds" } else { "" };
    name.replace('.', "_") + unit
}

fn label(name: &str, value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{}=\"{escaped}\"", name.replace('.', "_"))
}

/// A bound as both forms want it: whole numbers with their `.0`.
fn le(nanos: u64) -> String {
    let text = seconds(nanos);
    if text.contains('.') { text } else { text + ".0" }
}

/// Nanoseconds as seconds, exactly.
fn seconds(nanos: u64) -> String {
    let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = format!("{whole}.{part:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
