//! Globs over tools: `upstream/name`.
//!
//! `*` stands for anything, also for `/`; `?`, `[…]` and `{…,…}` are as everywhere. Upper and
//! lower case differ. Most globs are a name, a beginning or an end, and cost no more than that.

use globset::{GlobBuilder, GlobMatcher};

use crate::{
    fault::{FaultCode, Faults, Span},
    yaml::{FromNode, Node, parsed},
};

/// A glob as it was written, ready to be asked.
#[derive(Debug, Clone)]
pub struct ToolGlob {
    pub at: Span,
    text: Box<str>,
    pattern: Pattern,
    upstream: Pattern,
}

#[derive(Debug, Clone)]
enum Pattern {
    Any,
    Exactly(Box<str>),
    Beginning(Box<str>),
    End(Box<str>),
    Glob(GlobMatcher),
}

impl ToolGlob {
    /// Reads a glob; the error goes on after "`text` ".
    pub fn parse(text: &str, at: &Span) -> Result<Self, String> {
        let Some((upstream, name)) = text.split_once('/') else {
            return Err("names no upstream: a glob is `upstream/name`".to_owned());
        };
        if upstream.is_empty() || name.is_empty() {
            return Err("is no glob: it is `upstream/name`, and `*` stands for any".to_owned());
        }
        Ok(Self {
            at: at.clone(),
            text: text.into(),
            pattern: Pattern::new(text)?,
            upstream: Pattern::new(upstream)?,
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `tool` is `upstream/name`.
    pub fn matches(&self, tool: &str) -> bool {
        self.pattern.matches(tool)
    }

    /// Whether what stands before the slash matches this upstream.
    pub fn matches_upstream(&self, upstream: &str) -> bool {
        self.upstream.matches(upstream)
    }

    /// The upstream, where the glob names exactly one.
    pub fn only_upstream(&self) -> Option<&str> {
        match &self.upstream {
            Pattern::Exactly(name) => Some(name),
            _ => None,
        }
    }
}

impl FromNode for ToolGlob {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadGlob, faults, |text| ToolGlob::parse(text, &node.at))
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        let plain = |text: &str| !text.contains(['*', '?', '[', ']', '{', '}', '\\']);
        Ok(match (text.strip_prefix('*'), text.strip_suffix('*')) {
            // Every tool has a slash in its full name.
            _ if text == "*" || text == "*/*" => Pattern::Any,
            _ if plain(text) => Pattern::Exactly(text.into()),
            (_, Some(beginning)) if plain(beginning) => Pattern::Beginning(beginning.into()),
            (Some(end), _) if plain(end) => Pattern::End(end.into()),
            _ => Pattern::Glob(
                GlobBuilder::new(text)
                    .literal_separator(false)
                    .backslash_escape(true)
                    .build()
                    .map_err(|error| format!("is no glob: {}", error.kind()))?
                    .compile_matcher(),
            ),
        })
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Exactly(name) => **name == *text,
            Pattern::Beginning(beginning) => text.starts_with(&**beginning),
            Pattern::End(end) => text.ends_with(&**end),
            Pattern::Glob(glob) => glob.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Result<ToolGlob, String> {
        ToolGlob::parse(text, &Span::file("t"))
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
}
