//! The log on standard output: for people on a terminal, JSON otherwise.
//!
//! Values that come from outside cannot make lines or move a cursor: control characters are
//! shown, not obeyed.

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal},
    sync::OnceLock,
};

use parking_lot::Mutex;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt,
    fmt::{MakeWriter, format},
    reload,
    util::{SubscriberInitExt, TryInitError},
};

/// What is logged unless the environment says otherwise: our own news, others' worries.
const DEFAULT: &str = "info,pingora=warn,pingora_core=warn,pingora_load_balancing=warn,\
                       hyper=warn,opentelemetry=warn,reqwest=warn,sqlx=warn";

/// How the log is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// In the form of `RUST_LOG`.
    pub filter: String,
    pub json: bool,
    pub color: bool,
    /// What the start should warn of.
    pub notes: Vec<String>,
}

// === impl Settings ===

impl Settings {
    /// The settings of this process: `RUST_LOG`, else `OTEL_LOG_LEVEL`; `NO_COLOR`; whether
    /// standard output is a terminal.
    pub fn from_env() -> Self {
        Self::read(|name| std::env::var(name).ok(), io::stdout().is_terminal())
    }

    fn read(variable: impl Fn(&str) -> Option<String>, is_terminal: bool) -> Self {
        let get = |name| variable(name).filter(|value| !value.trim().is_empty());
        let mut notes = Vec::new();
        let level = match get("OTEL_LOG_LEVEL").map(|level| level.trim().to_ascii_lowercase()) {
            None => None,
            Some(level) => match level.as_str() {
                "none" => Some("off".to_owned()),
                "error" | "warn" | "info" | "debug" | "trace" => Some(level),
                _ => {
                    notes.push("OTEL_LOG_LEVEL: is no level, and ignored".to_owned());
                    None
                }
            },
        };
        let filter = match get("RUST_LOG") {
            Some(filter) if EnvFilter::try_new(&filter).is_ok() => filter,
            Some(_) => {
                notes.push("RUST_LOG: cannot be read as a filter, and is ignored".to_owned());
                level.unwrap_or_else(|| DEFAULT.to_owned())
            }
            None => level.unwrap_or_else(|| DEFAULT.to_owned()),
        };
        Self { filter, json: !is_terminal, color: is_terminal && get("NO_COLOR").is_none(), notes }
    }
}

/// How the filter of this process's log is changed, once there is a log.
static FILTER: OnceLock<Mutex<Filter>> = OnceLock::new();

struct Filter {
    text: String,
    replace: Replace,
}

type Replace = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send>;

/// Starts the log of this process.
pub fn init(settings: &Settings) -> Result<(), TryInitError> {
    let (subscriber, replace) = subscriber(settings, io::stdout);
    subscriber.try_init()?;
    let _ = FILTER.set(Mutex::new(Filter { text: settings.filter.clone(), replace }));
    Ok(())
}

/// The filter that is in effect; nothing where this process has no log of ours.
pub fn filter() -> Option<String> {
    FILTER.get().map(|filter| filter.lock().text.clone())
}

/// Puts another filter in effect, in the form of `RUST_LOG`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn set_filter(text: &str) -> Result<(), String> {
    let parsed = EnvFilter::try_new(text).map_err(|error| format!("is no filter: {error}"))?;
    if text.trim().is_empty() {
        return Err("is empty: `off` silences the log".to_owned());
    }
    let mut filter = FILTER.get().ok_or("this process has another log")?.lock();
    (filter.replace)(parsed).map_err(|error| error.to_string())?;
    text.clone_into(&mut filter.text);
    Ok(())
}

fn subscriber<W>(
    settings: &Settings,
    writer: W,
) -> (Box<dyn tracing::Subscriber + Send + Sync>, Replace)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // The filter was checked when the settings were made.
    let filter = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    if settings.json {
        let builder = builder.json().flatten_event(true).with_current_span(false);
        let builder = builder.with_span_list(false).with_filter_reloading();
        let handle = builder.reload_handle();
        (Box::new(builder.finish()), Box::new(move |filter| handle.reload(filter)))
    } else {
        let fields = format::debug_fn(field).delimited(" ");
        let builder = builder.with_ansi(settings.color).fmt_fields(fields);
        let builder = builder.with_filter_reloading();
        let handle = builder.reload_handle();
        (Box::new(builder.finish()), Box::new(move |filter| handle.reload(filter)))
    }
}

/// Writes a field of a line for people.
fn field(writer: &mut format::Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    write!(Shown(writer), "{value:?}")
}

/// Shows control characters, and those that end or reorder lines, by their number.
struct Shown<W>(W);

impl<W: fmt::Write> fmt::Write for Shown<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(misleads) {
            let (plain, special) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = special.chars();
            if let Some(character) = characters.next() {
                write!(self.0, "{}", character.escape_unicode())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

fn misleads(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(is_terminal: bool, log: impl FnOnce()) -> String {
        let no_color = |name: &str| (name == "NO_COLOR").then(|| "1".to_owned());
        let settings = Settings::read(no_color, is_terminal);
        let captured = Captured::default();
        let writer = captured.clone();
        let (subscriber, _) = subscriber(&settings, move || writer.clone());
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(captured.0.lock().clone()).unwrap()
    }

    const FORGED: &str = "x\nCRITICAL audit ok user=boss\u{1b}[2J\u{2028}";

    fn forged() {
        let name = FORGED;
        tracing::warn!(tool.name = name, other = %name, "Refused {name}");
    }

    #[test]
    fn forged_text_makes_no_line_for_people() {
        let text = logged(true, forged);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{2028}']), "{text}");
        assert!(text.contains("Refused x\\u{a}CRITICAL"), "{text}");
    }

    #[test]
    fn forged_text_makes_no_line_in_json() {
        let text = logged(false, forged);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["tool.name"], FORGED);
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn the_environment_chooses_the_filter() {
        let read = |pairs: &'static [(&str, &str)]| {
            let find = move |name: &str| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            let settings = Settings::read(find, false);
            (settings.filter, settings.notes.len())
        };
        assert_eq!(read(&[]), (DEFAULT.to_owned(), 0));
        assert_eq!(read(&[("RUST_LOG", "")]), (DEFAULT.to_owned(), 0));
        assert_eq!(read(&[("RUST_LOG", "debug"), ("OTEL_LOG_LEVEL", "error")]).0, "debug");
        assert_eq!(read(&[("OTEL_LOG_LEVEL", "ERROR")]), ("error".to_owned(), 0));
        assert_eq!(read(&[("OTEL_LOG_LEVEL", "none")]).0, "off");
        assert_eq!(read(&[("RUST_LOG", "a=b=c")]), (DEFAULT.to_owned(), 1));
        assert_eq!(read(&[("OTEL_LOG_LEVEL", "loud")]), (DEFAULT.to_owned(), 1));
    }

    #[test]
    fn color_is_for_terminals_that_want_it() {
        assert!(Settings::read(|_| None, true).color);
        assert!(!Settings::read(|_| None, false).color);
        assert!(!Settings::read(|_| Some("1".into()), true).color);
    }
}
