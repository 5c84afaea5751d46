//! Faults in files that operators write: what is wrong, where, and what was probably meant.
//!
//! A reader of such a file does not stop at the first fault; it gathers them in [`Faults`].
//! Nothing here knows what the files mean, and nothing on the path of a call uses it.

mod code;
mod pages;
mod render;
mod sarif;
mod text;

use std::{collections::HashSet, fmt, sync::Arc};

pub use code::FaultCode;
pub use pages::{Example, Page, pages};
pub use render::{Format, Report};
pub use text::{Paint, WIDTH, escape, wrap};

/// How much a fault weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// A file's name and text.
#[derive(PartialEq, Eq)]
pub struct Source {
    pub name: String,
    pub text: String,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may hold what nobody should see.
        f.write_str(&self.name)
    }
}

/// A place in a file. Lines and columns count from 1, columns and lengths in characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Span {
    pub source: Arc<Source>,
    pub line: u32,
    pub column: u32,
    /// 0 where the place is a point.
    pub length: u32,
}

impl Span {
    /// A file as a whole.
    pub fn file(name: impl Into<String>) -> Self {
        let source = Source { name: name.into(), text: String::new() };
        Self { source: Arc::new(source), line: 0, column: 0, length: 0 }
    }

    fn snippet(&self) -> Option<&str> {
        let index = usize::try_from(self.line).ok()?.checked_sub(1)?;
        self.source.text.lines().nth(index)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.source.name)
        } else {
            write!(f, "{}:{}:{}", self.source.name, self.line, self.column)
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Another place that has to do with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Related {
    pub message: String,
    pub at: Span,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub code: FaultCode,
    pub message: String,
    pub at: Span,
    /// A few words beside the place: what was probably meant, or what to write instead.
    pub suggestion: Option<String>,
    pub related: Vec<Related>,
    /// The line may hold a secret: it is not shown.
    pub secret: bool,
}

impl Fault {
    pub fn new(code: FaultCode, at: &Span, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            at: at.clone(),
            suggestion: None,
            related: Vec::new(),
            secret: false,
        }
    }

    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// What to write instead, in a few words.
    pub fn suggest(&mut self, suggestion: impl Into<String>) -> &mut Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Suggests the candidate that was probably meant, if one is near.
    pub fn did_you_mean<'a>(
        &mut self,
        given: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> &mut Self {
        if let Some(near) = nearest(given, candidates) {
            self.suggestion = Some(format!("did you mean `{near}`?"));
        }
        self
    }

    /// Points at another place.
    pub fn relate(&mut self, at: &Span, message: impl Into<String>) -> &mut Self {
        self.related.push(Related { message: message.into(), at: at.clone() });
        self
    }

    /// Keeps the line out of every rendering.
    pub fn secret(&mut self) -> &mut Self {
        self.secret = true;
        self
    }

    /// The line as it stands in the file.
    pub fn snippet(&self) -> Option<&str> {
        if self.secret { None } else { self.at.snippet() }
    }
}

/// The candidate closest to `given`, if it is close enough to have been meant.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = given.to_lowercase();
    let allowed = (given.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&folded, &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What has been found wrong so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a fault; the answer lets the caller add to it.
    pub fn add(&mut self, code: FaultCode, at: &Span, message: impl Into<String>) -> &mut Fault {
        let index = self.0.len();
        self.0.push(Fault::new(code, at, message));
        &mut self.0[index] // pushed on the line above
    }

    pub fn extend(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.0.extend(faults);
    }

    /// The one recorded last, to add to it.
    pub fn last(&mut self) -> Option<&mut Fault> {
        self.0.last_mut()
    }

    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|fault| fault.severity() == Severity::Error)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// In the order of files and places, each once.
    pub fn into_sorted(self) -> Vec<Fault> {
        let mut faults = self.0;
        faults.sort_by(|a, b| {
            let place = |fault: &Fault| (fault.at.line, fault.at.column, fault.code);
            a.at.source.name.cmp(&b.at.source.name).then_with(|| place(a).cmp(&place(b)))
        });
        faults.dedup();
        // A line with a secret is hidden whatever else is wrong with it.
        let hidden: HashSet<(String, u32)> = faults
            .iter()
            .filter(|fault| fault.secret)
            .map(|fault| (fault.at.source.name.clone(), fault.at.line))
            .collect();
        for fault in &mut faults {
            fault.secret |= hidden.contains(&(fault.at.source.name.clone(), fault.at.line));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested_and_a_far_one_is_not() {
        let risks = ["read_low", "read_high", "write_low", "write_high"];
        assert_eq!(nearest("read_lo", risks), Some("read_low"));
        assert_eq!(nearest("Read_High", risks), Some("read_high"));
        assert_eq!(nearest("delete", risks), None);
        assert_eq!(nearest("x", ["y"]), None, "one letter is as far from any other");
    }

    #[test]
    fn faults_come_in_the_order_of_the_file() {
        let at = |line| Span { line, column: 1, ..Span::file("a.yaml") };
        let mut faults = Faults::new();
        faults.add(FaultCode::BadValue, &at(2), "second");
        faults.add(FaultCode::BadValue, &at(1), "first");
        faults.add(FaultCode::BadValue, &at(1), "first");
        let messages: Vec<_> = faults.into_sorted().into_iter().map(|f| f.message).collect();
        assert_eq!(messages, ["first", "second"]);
    }

    #[test]
    fn a_line_with_a_secret_is_hidden_from_every_fault_on_it() {
        let source = Arc::new(Source { name: "a.yaml".into(), text: "a: b\nc: d\n".into() });
        let at = |line, column| Span { source: source.clone(), line, column, length: 1 };
        let mut faults = Faults::new();
        faults.add(FaultCode::UnknownKey, &at(1, 1), "unknown key `a`");
        faults.add(FaultCode::SecretInTheOpen, &at(1, 4), "a secret").secret();
        faults.add(FaultCode::UnknownKey, &at(2, 1), "unknown key `c`");
        let shown: Vec<_> =
            faults.into_sorted().iter().map(|fault| fault.snippet().map(str::to_owned)).collect();
        assert_eq!(shown, [None, None, Some("c: d".to_owned())]);
    }
}
