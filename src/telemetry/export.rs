//! How spans leave the process: the SDK's exporters, and what is said when they fail.
//!
//! Nothing here runs on the path of a call; the SDK's processor has a thread of its own.

use std::{
    fmt::{Debug, Write},
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor},
};

use super::{
    env::{Export, Settings},
    names::{SERVICE, attribute},
};

/// Spans cannot be exported as the environment asks.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the export of traces")]
pub struct ExportError(#[from] opentelemetry_otlp::ExporterBuildError);

/// The processor that the settings ask for.
pub(super) fn processor(
    settings: &Settings,
    instance: &str,
) -> Result<Option<Box<dyn SpanProcessor>>, ExportError> {
    let resource = resource(settings, instance);
    Ok(match settings.export {
        Export::Nowhere => None,
        Export::Otlp => {
            let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build()?;
            Some(batch(exporter, &resource))
        }
        Export::Console => Some(batch(Console, &resource)),
    })
}

fn batch(exporter: impl SpanExporter + 'static, resource: &Resource) -> Box<dyn SpanProcessor> {
    let watched = Watched { exporter, failing: AtomicBool::new(false) };
    let mut processor = BatchSpanProcessor::builder(watched).build();
    processor.set_resource(resource);
    Box::new(processor)
}

/// Who emits: our own words first, so that those of the environment replace them.
fn resource(settings: &Settings, instance: &str) -> Resource {
    let service = settings.service.clone();
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new(attribute::SERVICE_NAME, SERVICE),
            KeyValue::new(attribute::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
            KeyValue::new(attribute::SERVICE_INSTANCE_ID, instance.to_owned()),
        ])
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(service.map(|name| KeyValue::new(attribute::SERVICE_NAME, name)))
        .build()
}

/// Says once that an exporter fails, and once that it works again.
#[derive(Debug)]
struct Watched<E> {
    exporter: E,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        let was_failing = self.failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_failing => {
                let error: &dyn std::error::Error = error;
                tracing::warn!(
                    error,
                    "Traces cannot be exported; those that wait too long are lost"
                );
            }
            Ok(()) if was_failing => tracing::info!("Traces are exported again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// One line for each span on standard output.
#[derive(Debug)]
struct Console;

impl SpanExporter for Console {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let text: String = batch.iter().map(line).collect();
        // There is nobody to tell that standard output is closed.
        let _ = io::Write::write_all(&mut io::stdout().lock(), text.as_bytes());
        Ok(())
    }
}

fn line(span: &SpanData) -> String {
    let took = span.end_time.duration_since(span.start_time).unwrap_or_default();
    let (trace, id) = (span.span_context.trace_id(), span.span_context.span_id());
    let mut line = format!(
        "span trace_id={trace} span_id={id} parent_id={} kind={:?} name={:?} duration={took:?}",
        span.parent_span_id, span.span_kind, span.name
    );
    for attribute in &span.attributes {
        // `Debug` of text escapes what could look like another line.
        let _ = write!(line, " {}={:?}", attribute.key, attribute.value.as_str());
    }
    line.push('\n');
    line
}
