//! What the gateway knows of a server it stands in front of.

use std::{fmt, sync::Arc};

use super::server_key::is_server_key;

/// An upstream's name: `[a-z][a-z0-9-]{0,30}`, not a reserved one, or of an employee's own server
/// its serverKey. A serverKey has an underscore, so that neither is ever taken for the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamName(Arc<str>);

impl UpstreamName {
    /// Path segments below `/mcp` that are not upstreams.
    pub const RESERVED: [&'static str; 3] = ["http", "tools", "lite"];

    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !first || !rest || text.len() > 31 {
            Err("an upstream's name is 1 to 31 of `a-z`, `0-9` and `-`, beginning with a letter")
        } else if Self::RESERVED.contains(&text) {
            Err("`http`, `tools` and `lite` are paths of the gateway itself")
        } else {
            Ok(Self(text.into()))
        }
    }

    /// The name of an employee's own server; nothing where the text is no serverKey.
    pub fn of_key(text: &str) -> Option<Self> {
        is_server_key(text).then(|| Self(text.into()))
    }

    /// Whether it is a serverKey, and so the name of an employee's own server.
    pub fn is_key(&self) -> bool {
        self.0.contains('_')
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a shared string, for records and labels.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for UpstreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a call may do at worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    ReadLow,
    ReadHigh,
    WriteLow,
    WriteHigh,
}

impl Risk {
    pub const ALL: [Risk; 4] = [Risk::ReadLow, Risk::ReadHigh, Risk::WriteLow, Risk::WriteHigh];

    pub const fn as_str(self) -> &'static str {
        match self {
            Risk::ReadLow => "read_low",
            Risk::ReadHigh => "read_high",
            Risk::WriteLow => "write_low",
            Risk::WriteHigh => "write_high",
        }
    }

    pub fn parse(text: &str) -> Option<Risk> {
        Self::ALL.into_iter().find(|risk| risk.as_str() == text)
    }

    pub fn is_write(self) -> bool {
        self >= Risk::WriteLow
    }
}

/// How an upstream is spoken to, as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialectKind {
    /// Any standard MCP: the era is probed.
    Auto,
    /// Standard MCP over Streamable HTTP: the era is probed, no other transport is tried.
    StreamableHttp,
    /// HTTP+SSE of 2024-11-05.
    HttpSse,
    /// A child process.
    Stdio,
    /// The platform's REST form.
    McpLite,
}

/// Whether a tool's calls carry idempotency keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdempotencyMode {
    None,
    Optional,
    Required,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_names_are_path_segments_of_their_own() {
        for good in ["a", "platform", "platform-mcp", "a1-"] {
            assert!(UpstreamName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "a_b", "http", "tools", "lite", &"a".repeat(32)] {
            assert!(UpstreamName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_key_is_a_name_that_no_upstream_has() {
        for good in ["mcp_order-query_7f3a2c91", "mcp_1_00000000"] {
            let name = UpstreamName::of_key(good).unwrap();
            assert!(name.is_key() && UpstreamName::parse(good).is_err(), "{good}");
        }
        for bad in [
            "mcp__7f3a2c91",
            "mcp_a_7F3A2C91",
            "mcp_a_7f3a2c9",
            "mcp_a_b_7f3a2c91",
            "mcp_A_7f3a2c91",
            "mcp_averyveryverylonglabel_7f3a2c91",
            "orders",
            "",
        ] {
            assert_eq!(UpstreamName::of_key(bad), None, "{bad}");
        }
        assert!(!UpstreamName::parse("orders").unwrap().is_key());
    }
}
