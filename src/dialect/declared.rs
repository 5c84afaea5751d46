//! What a server declares of itself: read from its answer to `server/discover` or `initialize`,
//! and written into the gateway's own.
//!
//! What to declare is decided where the catalog is known.

use crate::{
    json::{self, Kind, Value},
    mcp::{Served, meta},
};

/// The longest instructions that are kept, in bytes.
const MAX_INSTRUCTIONS: usize = 16 * 1024;

/// The longest name and version that are kept, in bytes.
const MAX_SAID: usize = 256;

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What an answer says of its server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    pub served: Served,
    pub instructions: Option<String>,
    /// What it is called, and of which version it is, as it says.
    pub name: Option<Box<str>>,
    pub version: Option<Box<str>>,
}

/// Reads a result of `server/discover` or `initialize`.
pub fn read(result: Value<'_>) -> Declared {
    let capabilities = result.get("capabilities").filter(|value| value.kind() == Kind::Object);
    // Every revision demands the member. A server without it lists tools, or nothing.
    let served = capabilities.map_or(Served::TOOLS, read_served);
    let instructions = result.get("instructions").and_then(Value::as_str);
    let instructions = instructions.filter(|text| !text.is_empty()).map(|text| {
        let end = text.floor_char_boundary(MAX_INSTRUCTIONS);
        text.get(..end).unwrap_or_default().to_owned()
    });
    // Of 2026-07-28 on it stands in `_meta`, before that beside it.
    let of_meta = result.get("_meta").and_then(|meta| meta.get(meta::SERVER_INFO));
    let info = of_meta.or_else(|| result.get("serverInfo"));
    let said = |member: &str| {
        let text = info?.get(member)?.as_str()?;
        let end = text.floor_char_boundary(MAX_SAID);
        Some(text.get(..end).unwrap_or_default().into())
    };
    Declared { served, instructions, name: said("name"), version: said("version") }
}

fn read_served(capabilities: Value<'_>) -> Served {
    let mut all = Served::NONE;
    for (name, value) in capabilities.members() {
        // `"prompts": null` and `"prompts": false` declare nothing.
        if matches!(value.kind(), Kind::Null | Kind::False) {
            continue;
        }
        let says = |member: &str| value.get(member).and_then(Value::as_bool) == Some(true);
        let with =
            |of: Served, member: &str, then: Served| if says(member) { of | then } else { of };
        all = all
            | match &*name.unescaped() {
                "tools" => with(Served::TOOLS, "listChanged", Served::TOOLS_CHANGED),
                "prompts" => with(Served::PROMPTS, "listChanged", Served::PROMPTS_CHANGED),
                "resources" => with(
                    with(Served::RESOURCES, "listChanged", Served::RESOURCES_CHANGED),
                    "subscribe",
                    Served::SUBSCRIBE,
                ),
                "completions" => Served::COMPLETIONS,
                "logging" => Served::LOGGING,
                "extensions" if value.get(TASKS).is_some() => Served::TASKS,
                _ => Served::NONE,
            };
    }
    all
}

/// Writes the object of capabilities.
pub(super) fn write_capabilities(out: &mut Vec<u8>, served: Served) {
    let family = |name: &str, of: Served, changed: Served| {
        let mut inner = Vec::new();
        if of == Served::RESOURCES && served.contains(Served::SUBSCRIBE) {
            inner.push("\"subscribe\":true");
        }
        if served.contains(changed) {
            inner.push("\"listChanged\":true");
        }
        served.contains(of).then(|| format!("\"{name}\":{{{}}}", inner.join(",")))
    };
    let single = |text: &str, of: Served| served.contains(of).then(|| text.to_owned());
    let members = [
        family("tools", Served::TOOLS, Served::TOOLS_CHANGED),
        family("prompts", Served::PROMPTS, Served::PROMPTS_CHANGED),
        family("resources", Served::RESOURCES, Served::RESOURCES_CHANGED),
        single("\"completions\":{}", Served::COMPLETIONS),
        single("\"logging\":{}", Served::LOGGING),
        single(&format!("\"extensions\":{{\"{TASKS}\":{{}}}}"), Served::TASKS),
    ];
    let members: Vec<String> = members.into_iter().flatten().collect();
    out.extend_from_slice(format!("{{{}}}", members.join(",")).as_bytes());
}

/// Writes `instructions`, and a comma after it, where there are any.
pub(super) fn write_instructions(out: &mut Vec<u8>, instructions: Option<&str>) {
    if let Some(text) = instructions {
        out.extend_from_slice(b"\"instructions\":");
        json::write_str(out, text);
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn declared(text: &str) -> Declared {
        let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
        read(json::Doc::parse(Bytes::copy_from_slice(text.as_bytes()), &limits).unwrap().root())
    }

    #[test]
    fn what_is_read_is_written_the_same() {
        for capabilities in [
            "{}",
            r#"{"tools":{}}"#,
            r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            r#"{"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#,
            r#"{"resources":{"subscribe":true}}"#,
        ] {
            let read = declared(&format!(r#"{{"capabilities":{capabilities}}}"#));
            let mut written = Vec::new();
            write_capabilities(&mut written, read.served);
            assert_eq!(String::from_utf8(written).unwrap(), capabilities);
        }
    }

    #[test]
    fn a_server_says_who_it_is_in_either_place() {
        let old = declared(r#"{"serverInfo":{"name":"a","version":"1"}}"#);
        assert_eq!((old.name.as_deref(), old.version.as_deref()), (Some("a"), Some("1")));
        let new = declared(
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"b"}},"serverInfo":{"name":"a","version":"1"}}"#,
        );
        assert_eq!((new.name.as_deref(), new.version), (Some("b"), None));
        assert_eq!(declared(r#"{"serverInfo":7}"#).name, None);
    }

    #[test]
    fn only_what_is_said_is_declared() {
        for (result, served) in [
            ("{}", Served::TOOLS),
            (r#"{"capabilities":[]}"#, Served::TOOLS),
            (r#"{"capabilities":{"prompts":null,"tools":false,"x":{}}}"#, Served::NONE),
            (r#"{"capabilities":{"tools":{"listChanged":false}}}"#, Served::TOOLS),
            (r#"{"capabilities":{"resources":{"subscribe":1}}}"#, Served::RESOURCES),
            (r#"{"capabilities":{"extensions":{"x/y":{}}}}"#, Served::NONE),
        ] {
            assert_eq!(declared(result).served, served, "{result}");
        }
    }

    #[test]
    fn instructions_have_a_bound() {
        assert_eq!(declared(r#"{"instructions":""}"#).instructions, None);
        assert_eq!(declared(r#"{"instructions":7}"#).instructions, None);
        let long = format!(r#"{{"instructions":"x{}"}}"#, "\u{e9}".repeat(MAX_INSTRUCTIONS));
        let kept = declared(&long).instructions.unwrap();
        assert_eq!(kept.len(), MAX_INSTRUCTIONS - 1, "cut between two letters");
    }
}
