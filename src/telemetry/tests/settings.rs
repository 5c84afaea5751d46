//! What the environment can ask for.

use super::*;
use crate::telemetry::env::{Export, Sampler};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

#[test]
fn spans_are_exported_only_where_somebody_asks() {
    let endpoint = (ENDPOINT, "http://127.0.0.1:4318");
    for (pairs, expected) in [
        (&[][..], Export::Nowhere),
        (&[endpoint], Export::Otlp),
        (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/v1/traces")], Export::Otlp),
        (&[(ENDPOINT, "")], Export::Nowhere),
        (&[(EXPORTER, "otlp")], Export::Otlp),
        (&[(EXPORTER, "console")], Export::Console),
        (&[endpoint, (EXPORTER, "none")], Export::Nowhere),
        (&[endpoint, ("OTEL_SDK_DISABLED", "True")], Export::Nowhere),
        (&[endpoint, ("OTEL_SDK_DISABLED", "false")], Export::Otlp),
    ] {
        let settings = read(pairs);
        assert_eq!(settings.export, expected, "{pairs:?}");
        assert_eq!(settings.notes, Vec::<String>::new(), "{pairs:?}");
    }
}

#[test]
fn what_is_not_part_of_this_version_is_said() {
    for (name, value, export) in [
        ("OTEL_SDK_DISABLED", "yes", Export::Otlp),
        (EXPORTER, "zipkin", Export::Otlp),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", Export::Otlp),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", Export::Otlp),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", Export::Nowhere),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "HTTPS://collector:4318", Export::Nowhere),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem", Export::Otlp),
        ("OTEL_METRICS_EXPORTER", "otlp", Export::Otlp),
        ("OTEL_LOGS_EXPORTER", "console", Export::Otlp),
        ("OTEL_PROPAGATORS", "tracecontext,b3", Export::Otlp),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "9464", Export::Otlp),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_on", Export::Otlp),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", Export::Otlp),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "many", Export::Otlp),
        ("OTEL_BLRP_MAX_QUEUE_SIZE", "1", Export::Otlp),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c", Export::Otlp),
        ("OTEL_EXPORTER_JAEGER_ENDPOINT", "http://c", Export::Otlp),
    ] {
        let settings = read(&[(name, value), (ENDPOINT, "http://127.0.0.1:4318")]);
        assert_eq!(settings.export, export, "{name}");
        // A variable for one signal may be told of by the general one's name.
        let root = name.replace("_TRACES_", "_");
        let named =
            settings.notes.iter().any(|note| note.replace("_TRACES_", "_").starts_with(&root));
        assert!(named, "{name}: {:?}", settings.notes);
    }
}

#[test]
fn samplers_have_their_usual_names() {
    let sampler = |name: &str, argument: &str| {
        read(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", argument)]).sampler
    };
    let expected = |parent_based, ratio| Sampler { parent_based, ratio };
    assert_eq!(read(&[]).sampler, expected(true, 1.0));
    assert_eq!(sampler("always_on", ""), expected(false, 1.0));
    assert_eq!(sampler("always_off", ""), expected(false, 0.0));
    assert_eq!(sampler("traceidratio", "0.25"), expected(false, 0.25));
    assert_eq!(sampler("parentbased_traceidratio", "0.25"), expected(true, 0.25));
    assert_eq!(sampler("parentbased_always_off", ""), expected(true, 0.0));
    let broken = read(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
    assert_eq!((broken.sampler.ratio, broken.notes.len()), (1.0, 1));
}

#[tokio::test]
async fn exporters_can_be_built_and_ended_within_a_runtime() {
    for export in [Export::Otlp, Export::Console] {
        let settings = Settings { export, ..Settings::default() };
        let telemetry = Telemetry::new(&settings, Trust::default(), "gw-1", new_metrics()).unwrap();
        assert!(telemetry.is_exporting());
        telemetry.shutdown(Duration::from_secs(5));
    }
}
