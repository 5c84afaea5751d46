//! Faults as people and programs read them.
//!
//! Text from a file is shown with its control characters escaped, and a line that may hold a
//! secret is not shown at all.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    Fault, Severity, Span, sarif,
    text::{Paint, WIDTH, escape, wrap},
};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With the line and a pointer at the place; in colour on a terminal that wants it.
    Human { colour: bool },
    /// One line a fault, nothing drawn: for screen readers and `grep`.
    Plain,
    /// One JSON object.
    Json,
    /// SARIF 2.1.0, which code hosts show beside the lines of a change.
    Sarif,
}

/// Everything that a look at some files found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub faults: Vec<Fault>,
    /// How many files were looked at.
    pub files: usize,
}

impl Report {
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.faults.iter().filter(|fault| fault.severity() == severity).count()
    }

    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Human { colour } => self.human(Paint::new(colour)),
            Format::Plain => self.plain(),
            Format::Json => self.json(),
            Format::Sarif => sarif::render(self),
        }
    }

    fn human(&self, paint: Paint) -> String {
        let mut out = String::new();
        for fault in &self.faults {
            human(&mut out, fault, paint);
        }
        let _ = writeln!(out, "{}", self.summary());
        out
    }

    fn plain(&self) -> String {
        let mut out = String::new();
        for fault in &self.faults {
            let severity = fault.severity().as_str();
            let _ = write!(out, "{}: {severity} {}: ", fault.at, fault.code);
            out.push_str(&escape(&fault.message));
            if let Some(suggestion) = &fault.suggestion {
                let _ = write!(out, "; {}", escape(suggestion));
            }
            for related in &fault.related {
                let _ = write!(out, "; {}: {}", related.at, escape(&related.message));
            }
            out.push('\n');
        }
        let _ = writeln!(out, "{}", self.summary());
        out
    }

    fn json(&self) -> String {
        let faults = self.faults.iter().map(JsonFault::from).collect();
        let report = JsonReport {
            errors: self.errors(),
            warnings: self.warnings(),
            files: self.files,
            faults,
        };
        // Strings and numbers only: there is nothing here that JSON could not hold.
        serde_json::to_string(&report).unwrap_or_default() + "\n"
    }

    /// `1 error, 2 warnings in 4 files`.
    pub fn summary(&self) -> String {
        let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}, {} in {}",
            count(self.errors(), "error"),
            count(self.warnings(), "warning"),
            count(self.files, "file")
        )
    }
}

fn human(out: &mut String, fault: &Fault, paint: Paint) {
    let (bold, dim, reset) = (paint.bold(), paint.dim(), paint.reset());
    let severity = fault.severity();
    let tint = match severity {
        Severity::Error => paint.red(),
        Severity::Warning => paint.yellow(),
    };
    let head = format!("{}[{}]", severity.as_str(), fault.code);
    let message = wrap(&escape(&fault.message), head.len() + 2, WIDTH);
    let _ = writeln!(out, "{tint}{head}{reset}{bold}: {message}{reset}");
    let width = fault.at.line.to_string().len();
    let _ = writeln!(out, "{:width$}{dim}-->{reset} {}", "", fault.at);
    // What stands beside the carets goes on a line of its own where it would be too wide.
    let mut suggestion = fault.suggestion.as_deref().map(escape);
    if let Some(line) = fault.snippet() {
        let (line, carets) = excerpt(line, &fault.at, WIDTH - width - 3);
        let _ = writeln!(out, "{dim}{} |{reset} {line}", fault.at.line);
        let _ = write!(out, "{:width$} {dim}|{reset} {tint}{carets}", "");
        let room = WIDTH - width - 4;
        if let Some(fits) =
            suggestion.take_if(|text| carets.chars().count() + text.chars().count() <= room)
        {
            let _ = write!(out, " {fits}");
        }
        let _ = writeln!(out, "{reset}");
    }
    if let Some(text) = suggestion {
        let text = wrap(&text, width + 3, WIDTH);
        let _ = writeln!(out, "{:width$} {dim}={reset} {tint}{text}{reset}", "");
    }
    for related in &fault.related {
        let message = escape(&related.message);
        let _ = writeln!(out, "{:width$} {dim}={reset} {}: {message}", "", related.at);
    }
}

/// A line and the carets under the place, cut to so many columns around it.
fn excerpt(line: &str, at: &Span, room: usize) -> (String, String) {
    let before = usize::try_from(at.column).unwrap_or(usize::MAX).saturating_sub(1);
    let length = usize::try_from(at.length).unwrap_or(usize::MAX);
    // Each character as it is shown, which may be several.
    let shown: Vec<String> = line.chars().map(|c| escape(c.encode_utf8(&mut [0; 4]))).collect();
    let columns = |part: &[String]| part.iter().map(|c| c.chars().count()).sum::<usize>();
    let before = before.min(shown.len());
    let marked = length.clamp(1, (shown.len() - before).max(1));
    let whole = columns(&shown);
    let start = if whole <= room { 0 } else { before.saturating_sub(room / 4) };
    let mut end = shown.len();
    let cut = usize::from(start > 0);
    while end > before && columns(shown.get(start..end).unwrap_or_default()) + cut + 1 > room {
        end -= 1;
    }
    if whole <= room {
        end = shown.len();
    }
    let mut text = if cut > 0 { "…".to_owned() } else { String::new() };
    text.extend(shown.get(start..end).unwrap_or_default().iter().map(String::as_str));
    if end < shown.len() {
        text.push('…');
    }
    let left = columns(shown.get(start..before).unwrap_or_default()) + cut;
    let carets = marked.min(end.saturating_sub(before).max(1));
    (text, format!("{}{}", " ".repeat(left), "^".repeat(carets)))
}

#[derive(Serialize)]
struct JsonReport<'a> {
    errors: usize,
    warnings: usize,
    files: usize,
    faults: Vec<JsonFault<'a>>,
}

#[derive(Serialize)]
struct JsonFault<'a> {
    severity: &'static str,
    code: &'static str,
    message: &'a str,
    file: &'a str,
    line: u32,
    column: u32,
    length: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    snippet: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related: Vec<JsonRelated<'a>>,
}

#[derive(Serialize)]
struct JsonRelated<'a> {
    message: &'a str,
    file: &'a str,
    line: u32,
    column: u32,
}

impl<'a> From<&'a Fault> for JsonFault<'a> {
    fn from(fault: &'a Fault) -> Self {
        Self {
            severity: fault.severity().as_str(),
            code: fault.code.as_str(),
            message: &fault.message,
            file: &fault.at.source.name,
            line: fault.at.line,
            column: fault.at.column,
            length: fault.at.length,
            snippet: fault.snippet(),
            suggestion: fault.suggestion.as_deref(),
            related: fault
                .related
                .iter()
                .map(|related| JsonRelated {
                    message: &related.message,
                    file: &related.at.source.name,
                    line: related.at.line,
                    column: related.at.column,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fault::{FaultCode, Faults, Source};

    fn report() -> Report {
        let source = Arc::new(Source {
            name: "policies/tenants/acme.yaml".into(),
            text: "rules:\n  - id: a\n    risk: [read_lo]\n".into(),
        });
        let at = Span { source, line: 3, column: 12, length: 7 };
        let mut faults = Faults::new();
        faults
            .add(FaultCode::UnknownRisk, &at, "unknown risk level `read_lo`")
            .did_you_mean("read_lo", ["read_low"]);
        faults.add(FaultCode::DeadRule, &Span { line: 2, column: 9, length: 1, ..at }, "dead");
        Report { faults: faults.into_sorted(), files: 4 }
    }

    #[test]
    fn a_fault_points_at_its_place() {
        let expected = "\
warning[P101]: dead
 --> policies/tenants/acme.yaml:2:9
2 |   - id: a
  |         ^
error[P014]: unknown risk level `read_lo`
 --> policies/tenants/acme.yaml:3:12
3 |     risk: [read_lo]
  |            ^^^^^^^ did you mean `read_low`?
1 error, 1 warning in 4 files
";
        assert_eq!(report().render(Format::Human { colour: false }), expected);
    }

    #[test]
    fn plain_is_a_line_a_fault() {
        let expected = "\
policies/tenants/acme.yaml:2:9: warning P101: dead
policies/tenants/acme.yaml:3:12: error P014: unknown risk level `read_lo`; did you mean `read_low`?
1 error, 1 warning in 4 files
";
        assert_eq!(report().render(Format::Plain), expected);
    }

    #[test]
    fn json_holds_the_same() {
        let json: serde_json::Value = serde_json::from_str(&report().render(Format::Json)).unwrap();
        assert_eq!(json["errors"], 1);
        assert_eq!(json["faults"][1]["code"], "P014");
        assert_eq!(json["faults"][1]["line"], 3);
        assert_eq!(json["faults"][1]["snippet"], "    risk: [read_lo]");
    }

    #[test]
    fn a_secret_line_and_a_terminal_escape_are_not_shown() {
        let mut report = report();
        report.faults[1].secret();
        report.faults[0].message = "a \x1b[31m b \u{202e}".into();
        for format in [Format::Human { colour: false }, Format::Plain, Format::Json, Format::Sarif]
        {
            let text = report.render(format);
            assert!(!text.contains("risk: ["), "{text}");
            assert!(!text.contains('\x1b'), "{text}");
        }
    }

    #[test]
    fn no_line_is_wider_than_120_columns_and_the_place_is_always_shown() {
        let value = "x".repeat(300);
        let text = format!("{}: [{value}, read_lo, {value}]\n", "k".repeat(40));
        let source = Arc::new(Source { name: "a.yaml".into(), text });
        let at = Span { source, line: 1, column: 346, length: 7 };
        let mut fault = Fault::new(FaultCode::UnknownRisk, &at, "a word ".repeat(40));
        fault.suggest("known are ".repeat(20));
        let report = Report { faults: vec![fault], files: 1 };
        let shown = report.render(Format::Human { colour: false });
        assert!(shown.lines().all(|line| line.chars().count() <= 120), "{shown}");
        let lines: Vec<_> = shown.lines().collect();
        let snippet = lines.iter().position(|line| line.starts_with("1 | ")).unwrap();
        let column = lines[snippet].chars().collect::<Vec<_>>();
        let carets = lines[snippet + 1].find('^').unwrap();
        assert_eq!(column[carets..carets + 7].iter().collect::<String>(), "read_lo", "{shown}");
    }
}
