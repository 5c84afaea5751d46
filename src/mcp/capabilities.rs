//! What clients and servers declare that they can do, as far as the gateway tells it apart.
//!
//! Both are sets. What the protocol does not name is left out: the gateway could not carry it.

use std::ops::{BitAnd, BitOr};

use super::Version;

/// What a client declared that it can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    pub const ROOTS: Capabilities = Capabilities(1);
    pub const SAMPLING: Capabilities = Capabilities(1 << 1);
    /// Elicitation by a form.
    pub const ELICITATION: Capabilities = Capabilities(1 << 2);
    /// The extension `io.modelcontextprotocol/tasks` of 2026-07-28.
    pub const TASKS: Capabilities = Capabilities(1 << 3);
    pub const ELICITATION_URL: Capabilities = Capabilities(1 << 4);
    pub const SAMPLING_TOOLS: Capabilities = Capabilities(1 << 5);
    pub const SAMPLING_CONTEXT: Capabilities = Capabilities(1 << 6);

    pub const NONE: Capabilities = Capabilities(0);

    /// All that the gateway can carry from servers to clients.
    pub const CARRIED: Capabilities = Capabilities(0b111_1111);

    pub const fn bits(self) -> u16 {
        self.0
    }

    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub const fn contains(self, other: Capabilities) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn without(self, other: Capabilities) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that a revision has.
    pub fn known_to(self, version: Version) -> Self {
        let modes = Self::ELICITATION_URL | Self::SAMPLING_TOOLS | Self::SAMPLING_CONTEXT;
        let mut known = self;
        if !version.is_modern() {
            known = known.without(Self::TASKS);
        }
        if version < Version::V2025_11_25 {
            known = known.without(modes);
        }
        if version < Version::V2025_06_18 {
            known = known.without(Self::ELICITATION);
        }
        known
    }

    /// The JSON object that declares them to a server of this revision: what the revision does
    /// not know is left out.
    pub fn to_json(self, version: Version) -> String {
        let mut members: Vec<&str> = Vec::new();
        if self.contains(Self::ROOTS) {
            members.push("\"roots\":{}");
        }
        let modes = version >= Version::V2025_11_25;
        if self.contains(Self::SAMPLING) {
            let tools = modes && self.contains(Self::SAMPLING_TOOLS);
            let context = modes && self.contains(Self::SAMPLING_CONTEXT);
            members.push(match (tools, context) {
                (true, true) => "\"sampling\":{\"tools\":{},\"context\":{}}",
                (true, false) => "\"sampling\":{\"tools\":{}}",
                (false, true) => "\"sampling\":{\"context\":{}}",
                (false, false) => "\"sampling\":{}",
            });
        }
        let form = self.contains(Self::ELICITATION);
        let url = modes && self.contains(Self::ELICITATION_URL);
        if version >= Version::V2025_06_18 && (form || url) {
            members.push(match (modes, form, url) {
                (true, true, true) => "\"elicitation\":{\"form\":{},\"url\":{}}",
                (true, false, true) => "\"elicitation\":{\"url\":{}}",
                _ => "\"elicitation\":{}",
            });
        }
        if version.is_modern() && self.contains(Self::TASKS) {
            members.push("\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}");
        }
        format!("{{{}}}", members.join(","))
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What a server declared that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Served(u16);

impl Served {
    pub const TOOLS: Served = Served(1);
    pub const TOOLS_CHANGED: Served = Served(1 << 1);
    pub const PROMPTS: Served = Served(1 << 2);
    pub const PROMPTS_CHANGED: Served = Served(1 << 3);
    pub const RESOURCES: Served = Served(1 << 4);
    pub const RESOURCES_CHANGED: Served = Served(1 << 5);
    pub const SUBSCRIBE: Served = Served(1 << 6);
    pub const COMPLETIONS: Served = Served(1 << 7);
    pub const LOGGING: Served = Served(1 << 8);
    /// The extension `io.modelcontextprotocol/tasks` of 2026-07-28.
    pub const TASKS: Served = Served(1 << 9);

    pub const NONE: Served = Served(0);

    pub const fn bits(self) -> u16 {
        self.0
    }

    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub const fn contains(self, other: Served) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn without(self, other: Served) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Served {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Served {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revision_is_told_only_what_it_knows() {
        let all = Capabilities::from_bits(u16::MAX);
        for (version, told) in [
            (Version::V2025_03_26, r#"{"roots":{},"sampling":{}}"#),
            (Version::V2025_06_18, r#"{"roots":{},"sampling":{},"elicitation":{}}"#),
            (
                Version::V2025_11_25,
                r#"{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#,
            ),
            (
                Version::V2026_07_28,
                r#"{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            ),
        ] {
            assert_eq!(all.to_json(version), told, "{version}");
        }
        assert_eq!(Capabilities::NONE.to_json(Version::LATEST), "{}");
    }

    #[test]
    fn a_client_of_links_only_is_not_taken_for_one_of_forms() {
        let links = Capabilities::ELICITATION_URL;
        assert_eq!(links.to_json(Version::V2025_11_25), r#"{"elicitation":{"url":{}}}"#);
        assert_eq!(links.to_json(Version::V2025_06_18), "{}");
    }
}
