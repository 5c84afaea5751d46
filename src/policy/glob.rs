//! Globs over tools, prompts and resources: `upstream/name`, for resources `upstream/URI`.
//!
//! `*` stands for anything, also for `/`; `?`, `[…]` and `{…,…}` are as everywhere. Upper and
//! lower case differ. Most globs know `*` alone, and are compared piece by piece; an expression is
//! compiled for the others only.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock},
};

use globset::{GlobBuilder, GlobMatcher};

use crate::{
    fault::{FaultCode, Faults, Span},
    yaml::{FromNode, Node, parsed},
};

/// A glob where it stands in a file.
#[derive(Debug, Clone)]
pub struct ItemGlob {
    pub at: Span,
    /// Files that say the same share one.
    pub(super) glob: Arc<Glob>,
}

/// A glob as it was written, ready to be asked.
#[derive(Debug)]
pub(super) struct Glob {
    text: Box<str>,
    pattern: Pattern,
    upstream: Pattern,
}

/// A glob over one text, such as an argument.
#[derive(Debug)]
pub struct TextGlob {
    text: Box<str>,
    pattern: Pattern,
}

#[derive(Debug)]
enum Pattern {
    Any,
    Exactly(Box<str>),
    /// What stands before, between and behind the `*`s: at least two pieces.
    Pieces(Box<[Box<str>]>),
    Expression(Box<Expression>),
}

/// Checked when it is read, compiled when it is first asked.
#[derive(Debug)]
struct Expression {
    glob: globset::Glob,
    matcher: OnceLock<GlobMatcher>,
}

impl ItemGlob {
    /// Reads a glob; the error goes on after "`text` ".
    pub fn parse(text: &str, at: &Span) -> Result<Self, String> {
        Ok(Self { at: at.clone(), glob: Arc::new(Glob::parse(text)?) })
    }

    pub fn as_str(&self) -> &str {
        &self.glob.text
    }

    /// `full` is `upstream/name`.
    pub fn matches(&self, full: &str) -> bool {
        self.glob.matches(full)
    }

    /// Whether what stands before the slash matches this upstream.
    pub fn matches_upstream(&self, upstream: &str) -> bool {
        self.glob.upstream.matches(upstream)
    }

    /// Whether it names one thing alone.
    pub fn is_exact(&self) -> bool {
        matches!(self.glob.pattern, Pattern::Exactly(_))
    }

    /// Whether it surely matches all that `other` matches.
    pub fn covers(&self, other: &ItemGlob) -> bool {
        self.glob.covers(&other.glob)
    }

    /// Whether it can be about servers that employees register, whose names no file knows: all
    /// begin with `mcp_`.
    pub fn may_be_of_key(&self) -> bool {
        let beginning = self.glob.plain_beginning();
        // Or something wild stands in the upstream's name itself.
        beginning.starts_with("mcp_") || "mcp_".starts_with(beginning)
    }

    /// The upstream, where the glob names exactly one.
    pub fn only_upstream(&self) -> Option<&str> {
        match &self.glob.upstream {
            Pattern::Exactly(name) => Some(name),
            _ => None,
        }
    }
}

impl Glob {
    fn parse(text: &str) -> Result<Self, String> {
        let Some((upstream, name)) = text.split_once('/') else {
            return Err("names no upstream: a glob is `upstream/name`".to_owned());
        };
        if upstream.is_empty() || name.is_empty() {
            return Err("is no glob: it is `upstream/name`, and `*` stands for any".to_owned());
        }
        // Every full name has a slash in it.
        let everything = matches!(text, "*/*");
        Ok(Self {
            text: text.into(),
            pattern: if everything { Pattern::Any } else { Pattern::new(text)? },
            upstream: Pattern::new(upstream)?,
        })
    }

    /// Also what is spelled like the glob: a resource template has braces in its name.
    pub fn matches(&self, full: &str) -> bool {
        self.pattern.matches(full)
            || (matches!(self.pattern, Pattern::Expression(_)) && *self.text == *full)
    }

    fn covers(&self, other: &Glob) -> bool {
        if self.text == other.text {
            return true;
        }
        match (&self.pattern, &other.pattern) {
            (Pattern::Any, _) => true,
            (_, Pattern::Exactly(name)) => self.matches(name),
            (Pattern::Pieces(wide), _) => match &**wide {
                [beginning, end] if end.is_empty() => {
                    other.plain_beginning().starts_with(&**beginning)
                }
                [beginning, end] if beginning.is_empty() => other.plain_end().ends_with(&**end),
                _ => false,
            },
            _ => false,
        }
    }

    /// What stands before its first wildcard, and so at the beginning of all that it matches.
    pub fn plain_beginning(&self) -> &str {
        self.text.split(WILD).next().unwrap_or_default()
    }

    /// What stands behind its last wildcard. Where that is the end of a class or a choice, the
    /// rest of it is not looked into.
    fn plain_end(&self) -> &str {
        self.text.rsplit(WILD).next().unwrap_or_default()
    }
}

impl TextGlob {
    /// Reads a glob; the error goes on after "`text` ".
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("matches nothing but an empty text".to_owned());
        }
        Ok(Self { text: text.into(), pattern: Pattern::new(text)? })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, text: &str) -> bool {
        self.pattern.matches(text)
    }
}

// Globs are the same if they are written the same.

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl FromNode for ItemGlob {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadGlob, faults, |text| ItemGlob::parse(text, &node.at))
    }
}

/// The longest glob, in bytes: a URI and its upstream. One of this size surely compiles.
const MAX_GLOB: usize = 2_304;

/// What makes a glob more than a name.
const WILD: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        if text.len() > MAX_GLOB {
            return Err(format!("is longer than {MAX_GLOB} bytes"));
        }
        if text == "*" {
            return Ok(Pattern::Any);
        }
        if !text.contains(WILD) {
            return Ok(Pattern::Exactly(text.into()));
        }
        if !text.contains(|c| c != '*' && WILD.contains(&c)) {
            return Ok(Pattern::Pieces(text.split('*').map(Box::from).collect()));
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(false)
            .backslash_escape(true)
            .build()
            .map_err(|error| format!("is no glob: {}", error.kind()))?;
        Ok(Pattern::Expression(Box::new(Expression { glob, matcher: OnceLock::new() })))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Exactly(name) => **name == *text,
            Pattern::Pieces(pieces) => matches_pieces(pieces, text),
            Pattern::Expression(expression) => {
                expression.matcher.get_or_init(|| expression.glob.compile_matcher()).is_match(text)
            }
        }
    }
}

fn matches_pieces(pieces: &[Box<str>], text: &str) -> bool {
    let [beginning, between @ .., end] = pieces else { return false };
    let rest = text.strip_prefix(&**beginning).and_then(|rest| rest.strip_suffix(&**end));
    let Some(mut rest) = rest else { return false };
    // Taking each piece where it comes first leaves the most for those behind it.
    for piece in between {
        match rest.split_once(&**piece) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Result<ItemGlob, String> {
        ItemGlob::parse(text, &Span::file("t"))
    }

    #[test]
    fn a_glob_matches_upstream_and_name() {
        for (text, hits, misses) in [
            (
                "crm/contacts.get",
                &["crm/contacts.get"][..],
                &["crm/contacts.gets", "a/contacts.get"][..],
            ),
            ("crm/*", &["crm/a", "crm/a/b", "crm/"], &["crm2/a", "crm"]),
            ("*/exec*", &["a/exec", "b/execute", "a/b/exec"], &["a/xexec", "exec"]),
            ("*/run", &["a/run", "b/run"], &["a/rerun", "a/run2"]),
            ("*/*", &["a/b"], &[]),
            ("crm/a?c", &["crm/abc"], &["crm/ac", "crm/abbc"]),
            ("crm/[ab]", &["crm/a", "crm/b"], &["crm/c"]),
            ("{crm,hr}/*", &["crm/a", "hr/a"], &["ops/a"]),
            ("*/*[Ss]hell*", &["a/shell", "a/PowerShell.run"], &["a/sell"]),
            ("crm/\\*", &["crm/*"], &["crm/a"]),
            ("crm/A", &["crm/A"], &["crm/a"]),
            ("crm/a*a", &["crm/aa", "crm/aba"], &["crm/a"]),
            ("crm/*ab*ab*", &["crm/abab", "crm/xabyabz"], &["crm/ab", "crm/aab"]),
            ("crm/**b", &["crm/b", "crm/ab"], &["crm/a"]),
            ("crm/x:{id}", &["crm/x:{id}", "crm/x:id"], &["crm/x:1"]),
        ] {
            let glob = glob(text).unwrap();
            for hit in hits {
                assert!(glob.matches(hit), "{text} {hit}");
            }
            for miss in misses {
                assert!(!glob.matches(miss), "{text} {miss}");
            }
        }
    }

    #[test]
    fn what_is_no_glob_is_refused() {
        for text in ["", "crm", "/a", "crm/", "crm/[a", "crm/{a"] {
            assert!(glob(text).is_err(), "{text}");
        }
    }

    #[test]
    fn it_tells_the_upstream_it_is_about() {
        assert_eq!(glob("crm/*").unwrap().only_upstream(), Some("crm"));
        assert_eq!(glob("c*/a").unwrap().only_upstream(), None);
        assert!(glob("c*/a").unwrap().matches_upstream("crm"));
        assert!(!glob("c*/a").unwrap().matches_upstream("hr"));
    }

    #[test]
    fn a_glob_covers_what_it_surely_matches() {
        for (wide, narrow, expected) in [
            ("*/*", "crm/a*", true),
            ("crm/*", "crm/a*", true),
            ("crm/*", "crm/a", true),
            ("crm/*", "crm/a*b", true),
            ("crm/a*", "crm/*", false),
            ("crm/a*", "crm/?b", false),
            ("*/run", "crm/run", true),
            ("*/*run", "*/*[x]run", false),
            ("*/run", "*/{run,xrun}", false),
            ("crm/a*b", "crm/a*b*b", false),
            ("*/run", "*/rerun", false),
            ("*/[ab]", "*/[ab]", true),
            ("*/[ab]", "*/a", false),
            ("*/[ab]", "crm/a", true),
            ("*/*", "crm/[a]", true),
        ] {
            let (wide, narrow) = (glob(wide).unwrap(), glob(narrow).unwrap());
            assert_eq!(wide.covers(&narrow), expected, "{wide:?} {narrow:?}");
        }
    }
}
