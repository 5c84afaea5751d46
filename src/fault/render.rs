//! Faults as people and programs read them.
//!
//! Text from a file is shown with its control characters escaped, and a line that may hold a
//! secret is not shown at all.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Fault, Severity, Span};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With the line and a pointer at the place; in colour on a terminal that wants it.
    Human { colour: bool },
    /// One line a fault, nothing drawn: for screen readers and `grep`.
    Plain,
    /// One JSON object.
    Json,
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
            Format::Human { colour } => self.human(Paint(colour)),
            Format::Plain => self.plain(),
            Format::Json => self.json(),
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
            escape(&mut out, &fault.message);
            if let Some(suggestion) = &fault.suggestion {
                out.push_str("; ");
                escape(&mut out, suggestion);
            }
            for related in &fault.related {
                let _ = write!(out, "; {}: ", related.at);
                escape(&mut out, &related.message);
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

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn on(self, code: &'static str) -> &'static str {
        if self.0 { code } else { "" }
    }

    fn severity(self, severity: Severity) -> &'static str {
        self.on(match severity {
            Severity::Error => "\x1b[1;31m",
            Severity::Warning => "\x1b[1;33m",
        })
    }
}

fn human(out: &mut String, fault: &Fault, paint: Paint) {
    let (bold, dim, reset) = (paint.on("\x1b[1m"), paint.on("\x1b[2m"), paint.on("\x1b[0m"));
    let severity = fault.severity();
    let tint = paint.severity(severity);
    let _ = write!(out, "{tint}{}[{}]{reset}{bold}: ", severity.as_str(), fault.code);
    escape(out, &fault.message);
    let _ = writeln!(out, "{reset}");
    let width = fault.at.line.to_string().len();
    let _ = writeln!(out, "{:width$}{dim}-->{reset} {}", "", fault.at);
    match fault.snippet() {
        Some(line) => {
            let _ = write!(out, "{dim}{} |{reset} ", fault.at.line);
            escape(out, line);
            let _ = write!(out, "\n{:width$} {dim}|{reset} {tint}", "");
            underline(out, line, &fault.at);
            if let Some(suggestion) = &fault.suggestion {
                out.push(' ');
                escape(out, suggestion);
            }
            let _ = writeln!(out, "{reset}");
        }
        None => {
            if let Some(suggestion) = &fault.suggestion {
                let _ = write!(out, "{:width$} {dim}={reset} {tint}", "");
                escape(out, suggestion);
                let _ = writeln!(out, "{reset}");
            }
        }
    }
    for related in &fault.related {
        let _ = write!(out, "{:width$} {dim}={reset} {}: ", "", related.at);
        escape(out, &related.message);
        out.push('\n');
    }
}

/// Spaces up to the place, then carets under it.
fn underline(out: &mut String, line: &str, at: &Span) {
    let before = usize::try_from(at.column).unwrap_or(usize::MAX).saturating_sub(1);
    let mut shown = String::new();
    for c in line.chars().take(before) {
        shown.clear();
        escape(&mut shown, c.encode_utf8(&mut [0; 4]));
        out.extend(std::iter::repeat_n(' ', shown.chars().count()));
    }
    let rest = line.chars().count().saturating_sub(before).max(1);
    let length = usize::try_from(at.length).unwrap_or(usize::MAX).clamp(1, rest);
    out.extend(std::iter::repeat_n('^', length));
}

/// A file must not be able to draw on the terminal that shows its faults.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            c if c.is_control() || is_directional(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
}

/// Marks that turn the direction of the text after them.
fn is_directional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
        for format in [Format::Human { colour: false }, Format::Plain, Format::Json] {
            let text = report.render(format);
            assert!(!text.contains("risk: ["), "{text}");
            assert!(!text.contains('\x1b'), "{text}");
        }
    }
}
