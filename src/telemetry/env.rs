//! What `OTEL_…` variables ask for, as far as the SDK does not read them itself.
//!
//! Empty means unset. What is asked for and not part of this version becomes a note that the
//! start prints; nothing is passed over in silence.

use std::{collections::BTreeMap, ffi::OsString};

/// What the environment asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub export: Export,
    pub sampler: Sampler,
    pub limits: Limits,
    /// Whether metrics carry exemplars of sampled spans.
    pub exemplars: bool,
    /// `OTEL_SERVICE_NAME`; the other forms are read with the resource.
    pub service: Option<String>,
    /// What the start should warn of, a sentence each.
    pub notes: Vec<String>,
}

/// Where spans go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    Nowhere,
    /// Over HTTP in protobuf, to the endpoint that the exporter reads from the environment.
    Otlp,
    /// One line each on standard output.
    Console,
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// A caller's own decision counts, where it made one.
    pub parent_based: bool,
    /// The share of traces that begin here.
    pub ratio: f64,
}

/// Bounds on what a span holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub attributes: usize,
    pub links: usize,
    /// Characters of a text attribute.
    pub value: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { attributes: 128, links: 128, value: usize::MAX }
    }
}

impl Default for Settings {
    /// No variable is set.
    fn default() -> Self {
        Settings::read([])
    }
}

/// Variables that are read, here, by the log or by the SDK itself.
const KNOWN: [&str; 21] = [
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_LOGS_EXPORTER",
    "OTEL_LOG_LEVEL",
    "OTEL_METRICS_EXEMPLAR_FILTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_PROPAGATORS",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
];

/// What is known of the OTLP exporter, for all signals or for traces.
const OTLP: [&str; 6] = ["ENDPOINT", "HEADERS", "TIMEOUT", "PROTOCOL", "COMPRESSION", "INSECURE"];

const METRICS_ARE_PULLED: &str =
    "metrics are not exported in this version; they are served on the admin listener's /metrics";
const ADMIN_LISTENER: &str = "/metrics is served where `admin.listen` says";
const LOGS_ON_STDOUT: &str = "logs are not exported in this version; they go to standard output";
const NO_TLS: &str = "TLS towards a collector is not part of this version; use one on this host";

impl Settings {
    /// The settings of this process.
    pub fn from_env() -> Self {
        let text = |value: OsString| value.into_string().ok();
        Self::read(
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))),
        )
    }

    pub fn read(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name, value.trim().to_owned()))
            .filter(|(name, value)| name.starts_with("OTEL_") && !value.is_empty());
        let mut reader = Reader { variables: variables.collect(), notes: Vec::new() };
        let settings = Settings {
            export: reader.export(),
            sampler: reader.sampler(),
            limits: reader.limits(),
            exemplars: reader.exemplars(),
            service: reader.get("OTEL_SERVICE_NAME"),
            notes: Vec::new(),
        };
        reader.other_signals();
        reader.propagators();
        reader.absent();
        Settings { notes: reader.notes, ..settings }
    }
}

/// Why a variable has no effect, if it has none.
fn absent(name: &str) -> Option<&'static str> {
    let otlp = name.strip_prefix("OTEL_EXPORTER_OTLP_");
    let option = otlp.map(|rest| rest.strip_prefix("TRACES_").unwrap_or(rest));
    if KNOWN.contains(&name) || option.is_some_and(|option| OTLP.contains(&option)) {
        None
    } else if name.starts_with("OTEL_METRIC_EXPORT_")
        || otlp.is_some_and(|rest| rest.starts_with("METRICS_"))
    {
        Some(METRICS_ARE_PULLED)
    } else if name.starts_with("OTEL_BLRP_") || otlp.is_some_and(|rest| rest.starts_with("LOGS_")) {
        Some(LOGS_ON_STDOUT)
    } else if name.starts_with("OTEL_EXPORTER_PROMETHEUS_") {
        Some(ADMIN_LISTENER)
    } else if option.is_some_and(|option| option.ends_with("CERTIFICATE") || option == "CLIENT_KEY")
    {
        Some(NO_TLS)
    } else {
        Some("is not part of this version, and has no effect")
    }
}

struct Reader {
    /// Those that are set.
    variables: BTreeMap<String, String>,
    notes: Vec<String>,
}

impl Reader {
    fn get(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// The variable of the signal, else the general one.
    fn signal(&self, name: &str) -> Option<String> {
        self.get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn note(&mut self, name: &str, what: &str) {
        self.notes.push(format!("{name}: {what}"));
    }

    fn export(&mut self) -> Export {
        let disabled = self.get("OTEL_SDK_DISABLED").unwrap_or_default();
        if disabled.eq_ignore_ascii_case("true") {
            return Export::Nowhere;
        }
        if !disabled.is_empty() && !disabled.eq_ignore_ascii_case("false") {
            self.note("OTEL_SDK_DISABLED", "is neither `true` nor `false`, and ignored");
        }
        let endpoint = self.signal("ENDPOINT");
        let default = if endpoint.is_some() { Export::Otlp } else { Export::Nowhere };
        let export = match self.get("OTEL_TRACES_EXPORTER").as_deref() {
            None => default,
            Some("otlp") => Export::Otlp,
            Some("console") => Export::Console,
            Some("none") => Export::Nowhere,
            Some(_) => {
                let what = "knows `otlp`, `console` and `none` in this version; ignored";
                self.note("OTEL_TRACES_EXPORTER", what);
                default
            }
        };
        if export == Export::Otlp { self.otlp(endpoint) } else { export }
    }

    /// What the OTLP exporter can do, and what it is asked.
    fn otlp(&mut self, endpoint: Option<String>) -> Export {
        match self.signal("PROTOCOL").as_deref() {
            None | Some("http/protobuf") => {}
            Some("grpc" | "http/json") => {
                let what = "only `http/protobuf` (port 4318) is part of this version; it is used";
                self.note("OTEL_EXPORTER_OTLP_PROTOCOL", what);
            }
            Some(_) => {
                let what = "knows only `http/protobuf` in this version; it is used";
                self.note("OTEL_EXPORTER_OTLP_PROTOCOL", what);
            }
        }
        if self.signal("COMPRESSION").is_some_and(|compression| compression != "none") {
            let what = "compression is not part of this version; no traces are exported";
            self.note("OTEL_EXPORTER_OTLP_COMPRESSION", what);
            return Export::Nowhere;
        }
        let is_https = |endpoint: String| {
            endpoint.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
        };
        if endpoint.is_some_and(is_https) {
            self.note("OTEL_EXPORTER_OTLP_ENDPOINT", NO_TLS);
            return Export::Nowhere;
        }
        Export::Otlp
    }

    fn sampler(&mut self) -> Sampler {
        let always = Sampler { parent_based: true, ratio: 1.0 };
        let Some(name) = self.get("OTEL_TRACES_SAMPLER") else { return always };
        let (parent_based, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, &*name),
        };
        let ratio = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio(),
            _ => {
                let what = "names no sampler of this version; `parentbased_always_on` is used";
                self.note("OTEL_TRACES_SAMPLER", what);
                return always;
            }
        };
        Sampler { parent_based, ratio }
    }

    fn ratio(&mut self) -> f64 {
        let Some(text) = self.get("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
        match text.parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
            _ => {
                self.note("OTEL_TRACES_SAMPLER_ARG", "is no number from 0 to 1; 1 is used");
                1.0
            }
        }
    }

    fn limits(&mut self) -> Limits {
        let default = Limits::default();
        let mut limit = |names: [&str; 2], default: usize| {
            for name in names {
                match self.get(name).map(|text| text.parse()) {
                    Some(Ok(limit)) => return limit,
                    Some(Err(_)) => self.note(name, "is no number, and ignored"),
                    None => {}
                }
            }
            default
        };
        Limits {
            attributes: limit(
                ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"],
                default.attributes,
            ),
            value: limit(
                ["OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"],
                default.value,
            ),
            links: limit(["OTEL_SPAN_LINK_COUNT_LIMIT"; 2], default.links),
        }
    }

    fn exemplars(&mut self) -> bool {
        match self.get("OTEL_METRICS_EXEMPLAR_FILTER").as_deref() {
            None | Some("trace_based") => true,
            Some("always_off") => false,
            Some(_) => {
                let what =
                    "knows `trace_based` and `always_off` in this version; the former is used";
                self.note("OTEL_METRICS_EXEMPLAR_FILTER", what);
                true
            }
        }
    }

    fn other_signals(&mut self) {
        match self.get("OTEL_METRICS_EXPORTER").as_deref() {
            None | Some("prometheus" | "none") => {}
            Some(_) => self.note("OTEL_METRICS_EXPORTER", METRICS_ARE_PULLED),
        }
        match self.get("OTEL_LOGS_EXPORTER").as_deref() {
            None | Some("none") => {}
            Some(_) => self.note("OTEL_LOGS_EXPORTER", LOGS_ON_STDOUT),
        }
    }

    fn absent(&mut self) {
        let absent = |name: &String| absent(name).map(|note| format!("{name}: {note}"));
        self.notes.extend(self.variables.keys().filter_map(absent));
    }

    fn propagators(&mut self) {
        let Some(names) = self.get("OTEL_PROPAGATORS") else { return };
        // Baggage is in the variable's usual value; that it is dropped is the contract.
        if names.split(',').any(|name| !matches!(name.trim(), "tracecontext" | "baggage")) {
            let what = "only `tracecontext` is part of this version; it is used";
            self.note("OTEL_PROPAGATORS", what);
        }
    }
}
