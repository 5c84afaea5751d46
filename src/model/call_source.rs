//! Where a call comes from, in the words that records, traces and servers get.

/// Which kind of program makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallSource {
    /// Standard MCP, or MCP-Lite.
    Mcp,
    Agent,
    Web,
    Script,
    PostAction,
    Cli,
}

/// Those that a caller may name under `/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallSources(u8);

// === impl CallSource ===

impl CallSource {
    /// What a request under `/v1` can say of itself.
    pub const NAMED: [CallSource; 5] = [
        CallSource::Agent,
        CallSource::Web,
        CallSource::Script,
        CallSource::PostAction,
        CallSource::Cli,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            CallSource::Mcp => "mcp",
            CallSource::Agent => "agent",
            CallSource::Web => "web",
            CallSource::Script => "script",
            CallSource::PostAction => "post_action",
            CallSource::Cli => "cli",
        }
    }

    /// One that a request under `/v1` can say of itself, by its word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|source| source.as_str() == text)
    }
}

// === impl CallSources ===

impl CallSources {
    pub fn contains(self, source: CallSource) -> bool {
        self.0 & (1 << source as u8) != 0
    }

    pub fn iter(self) -> impl Iterator<Item = CallSource> {
        CallSource::NAMED.into_iter().filter(move |source| self.contains(*source))
    }
}

impl FromIterator<CallSource> for CallSources {
    fn from_iter<I: IntoIterator<Item = CallSource>>(sources: I) -> Self {
        Self(sources.into_iter().fold(0, |bits, source| bits | 1 << source as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_by_its_word_and_nobody_says_that_he_is_mcp() {
        for source in CallSource::NAMED {
            assert_eq!(CallSource::parse(source.as_str()), Some(source));
        }
        for none in ["mcp", "Agent", "", "steps", "post-action"] {
            assert_eq!(CallSource::parse(none), None, "{none}");
        }
    }

    #[test]
    fn sources_are_a_set() {
        let some: CallSources =
            [CallSource::Web, CallSource::Cli, CallSource::Web].into_iter().collect();
        assert!(some.contains(CallSource::Web) && !some.contains(CallSource::Agent));
        assert_eq!(some.iter().collect::<Vec<_>>(), [CallSource::Web, CallSource::Cli]);
        assert_eq!(CallSources::default().iter().count(), 0);
    }
}
