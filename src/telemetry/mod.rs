//! What the gateway tells of itself: metrics, spans, logs.
//!
//! An exchange is told of once, when it has ended, from its facts. No layer records anything
//! here under way but for what has no exchange, and what a stream of notices tells.

mod context;
pub mod env;
mod export;
mod exposition;
mod labels;
pub mod logs;
mod metrics;
pub mod names;
mod series;
mod spans;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::SpanProcessor;
use tokio::time::Instant;

pub use self::{
    context::Trust,
    export::ExportError,
    exposition::Format,
    metrics::{Active, EndedSession, Metrics, NoticeResult, OpenStream, Reload, Retried},
};
use self::{
    context::{Contexts, Invalid},
    env::{Limits, Settings},
    spans::Spans,
};
use crate::{
    mcp::Method,
    model::{
        exchange::{Exchange, Facts, Outcome},
        trace::TraceContext,
    },
};

/// Traces and metrics of this process.
pub struct Telemetry {
    metrics: Arc<Metrics>,
    contexts: Contexts,
    exporter: Option<Exporter>,
}

/// Where spans go, if anywhere.
struct Exporter {
    processor: Box<dyn SpanProcessor>,
    limits: Limits,
    scope: InstrumentationScope,
}

// === impl Telemetry ===

impl Telemetry {
    /// Telemetry as the environment asks for it. `instance` is `service.instance.id`.
    pub fn new(
        settings: &Settings,
        trust: Trust,
        instance: &str,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ExportError> {
        let processor = export::processor(settings, instance)?;
        Ok(Self::with_processor(settings, trust, metrics, processor))
    }

    /// Telemetry whose spans go to the given processor, whatever the settings say of exporters.
    pub fn with_processor(
        settings: &Settings,
        trust: Trust,
        metrics: Arc<Metrics>,
        processor: Option<Box<dyn SpanProcessor>>,
    ) -> Self {
        let exporting = processor.is_some();
        metrics.set_exemplars(exporting && settings.exemplars);
        let contexts = Contexts { trust, sampler: settings.sampler, exporting };
        let exporter = processor.map(|processor| Exporter {
            processor,
            limits: settings.limits,
            scope: spans::scope(),
        });
        Self { metrics, contexts, exporter }
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Whether spans are exported, so that facts which only spans need are worth finding out.
    pub fn is_exporting(&self) -> bool {
        self.exporter.is_some()
    }

    /// The place of a new exchange in a trace, from the headers of its request.
    pub fn begin(&self, headers: &HeaderMap) -> TraceContext {
        let (context, result) = self.contexts.begin(headers);
        self.count(result);
        context
    }

    /// Takes in `traceparent` and `tracestate` of the request's `_meta`.
    pub fn adopt_meta(
        &self,
        context: &mut TraceContext,
        traceparent: Option<&str>,
        tracestate: Option<&str>,
    ) {
        if let Some(traceparent) = traceparent {
            self.count(self.contexts.adopt(context, traceparent, tracestate));
        }
    }

    /// For a caller who turned out to be unknown: starts the trace anew and links his, unless
    /// `trace.trust` is `always`. To be called before the trace id is told to anybody.
    pub fn distrust(&self, context: &mut TraceContext) {
        self.contexts.distrust(context);
    }

    /// Records an exchange that has ended: metrics, and spans where they are exported.
    pub fn finish(&self, facts: &Facts, started: Instant, started_ms: u64, ended: Instant) {
        self.metrics.finish(facts, started, ended);
        if let Some(Exporter { processor, limits, scope }) = &self.exporter
            && (facts.trace.sampled || facts.trace.http_sampled)
        {
            Spans { facts, started, started_ms, ended, limits: *limits, scope }
                .each(|span| processor.on_end(span));
        }
    }

    /// A stream of notices has told its client something: a span of its own, linked to that of
    /// the request that opened the stream.
    pub fn told(&self, stream: &Exchange, method: Method) {
        let Some(Exporter { processor, limits, scope }) = &self.exporter else { return };
        let now = Instant::now();
        let facts = {
            let of = stream.facts();
            if !of.trace.sampled {
                return;
            }
            let opened = of.trace.outgoing(of.trace.span_id);
            Facts {
                trace: TraceContext {
                    trace_id: rand::random(),
                    span_id: rand::random(),
                    link: Some(opened),
                    sampled: true,
                    ..TraceContext::default()
                },
                dialect: of.dialect,
                method: Some(method),
                session_hash: of.session_hash,
                tenant: of.tenant.clone(),
                outcome: Some(Outcome::Ok),
                ..Facts::default()
            }
        };
        let after = now.saturating_duration_since(stream.started).as_millis();
        let started_ms = stream.started_ms + u64::try_from(after).unwrap_or(u64::MAX);
        Spans { facts: &facts, started: now, started_ms, ended: now, limits: *limits, scope }
            .each(|span| processor.on_end(span));
    }

    /// Sends what spans there are and ends the export; blocks, for so long at most.
    pub fn shutdown(&self, timeout: Duration) {
        if let Some(exporter) = &self.exporter
            && let Err(error) = exporter.processor.shutdown_with_timeout(timeout)
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "Some traces could not be exported before the end"
            );
        }
    }

    fn count(&self, result: Result<(), Invalid>) {
        if result.is_err() {
            self.metrics.trace_context_invalid();
        }
    }
}
