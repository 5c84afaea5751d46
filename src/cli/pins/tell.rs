//! Definitions of tools as people read of them. All of a definition is its server's to choose, so
//! nothing of it reaches a terminal as it is.

use std::io::{self, Write};

use serde_json::Value;

use crate::{clock::rfc3339, fault::escape};

/// The longest value that is shown of a difference, in characters.
const SHOWN: usize = 400;

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or("-"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn time(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), rfc3339)
}

/// A number, or a dash for what could not be kept.
fn version(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |version| version.to_string())
}

fn classes(value: &Value) -> String {
    list(value).filter_map(Value::as_str).map(escape).collect::<Vec<_>>().join(", ")
}

/// Every tool, with a line on what is not as it was approved.
pub(super) fn all(answer: &Value, only_held: bool, out: &mut dyn Write) -> io::Result<()> {
    for pin in list(&answer["pins"]) {
        if only_held && pin["held"].is_null() {
            continue;
        }
        let differs = !pin["approved"].is_null() && pin["approved"] != pin["seen"];
        let state = match pin["held"].as_str() {
            Some(held) => escape(held),
            None if differs => "kept".to_owned(),
            None => "in use".to_owned(),
        };
        let name = format!("{}/{}", text(&pin["upstream"]), text(&pin["tool"]));
        let mark = if pin["new"] == true { "  (not classified)" } else { "" };
        let listed = version(&pin["schemaVersion"]["ordinal"]);
        writeln!(out, "{state:<8} {name}  version {listed} listed {}{mark}", text(&pin["seen"]))?;
        if differs {
            let approved = version(&pin["approvedVersion"]);
            writeln!(out, "         version {approved} approved {}", text(&pin["approved"]))?;
            writeln!(out, "         {}", classes(&pin["changes"]))?;
        }
    }
    Ok(())
}

/// Every definition of one tool.
pub(super) fn history(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    for version in list(&answer["versions"]) {
        let marks = [
            ("listed", "listed"),
            ("approved", "approved"),
            ("approvedElsewhere", "approved elsewhere"),
        ];
        let marks = marks.iter().filter(|(key, _)| version[*key] == true).map(|(_, mark)| *mark);
        let marks = marks.collect::<Vec<_>>().join(", ");
        writeln!(
            out,
            "{:>4}  {}  first {}  last {}  {marks}",
            self::version(&version["version"]),
            text(&version["digest"]),
            time(&version["firstSeenMs"]),
            time(&version["lastSeenMs"]),
        )?;
    }
    for approval in list(&answer["approvals"]) {
        let how = match approval["how"].as_str() {
            Some("first_use") => "approved by first use".to_owned(),
            Some("rollback") => format!("gone back to by {}", text(&approval["by"])),
            _ => format!("approved by {}", text(&approval["by"])),
        };
        let (at, version) = (time(&approval["atMs"]), version(&approval["version"]));
        writeln!(out, "{at}  version {version} {how}")?;
    }
    Ok(())
}

/// How two definitions differ.
pub(super) fn diff(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let name = format!("{}/{}", text(&answer["upstream"]), text(&answer["tool"]));
    let side = |side: &Value| {
        let approved = if side["approved"] == true { ", approved" } else { "" };
        format!("version {}{approved} ({})", version(&side["version"]), text(&side["digest"]))
    };
    writeln!(out, "{name}")?;
    writeln!(out, "  from {}", side(&answer["from"]))?;
    writeln!(out, "  to   {}", side(&answer["to"]))?;
    changes(&answer["changes"], out)?;
    let published = &answer["published"];
    if published.is_null() {
        return Ok(());
    }
    writeln!(out, "as it is published, with what policy files say instead:")?;
    for (name, side) in [("from", &published["from"]), ("to", &published["to"])] {
        if let Some(fault) = side["fault"].as_str() {
            writeln!(out, "  {name}: it is not published: {}", escape(fault))?;
        }
    }
    if published["changes"].is_array() {
        changes(&published["changes"], out)?;
    }
    Ok(())
}

fn changes(all: &Value, out: &mut dyn Write) -> io::Result<()> {
    if list(all).next().is_none() {
        return writeln!(out, "  nothing differs");
    }
    for change in list(all) {
        writeln!(out, "  {:<26} {}", text(&change["class"]), text(&change["pointer"]))?;
        for (sign, value) in [('-', &change["old"]), ('+', &change["new"])] {
            if !value.is_null() {
                writeln!(out, "    {sign} {}", shown(value))?;
            }
        }
    }
    Ok(())
}

/// A value as JSON on one line, cut where it is long.
fn shown(value: &Value) -> String {
    let whole = value.to_string();
    let cut: String = whole.chars().take(SHOWN).collect();
    let more = if cut.len() < whole.len() { "…" } else { "" };
    format!("{}{more}", escape(&cut))
}

/// What was approved, and how the tool stands with it.
pub(super) fn approved(
    verb: &str,
    tool: &str,
    answer: &Value,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (version, digest) = (version(&answer["version"]), text(&answer["approved"]));
    writeln!(out, "{verb} {} version {version} ({digest})", escape(tool))?;
    let state = &answer["state"];
    let listed = self::version(&state["schemaVersion"]["ordinal"]);
    match (answer["listed"] == true, answer["held"].as_str()) {
        (false, _) => writeln!(out, "its server does not list the tool"),
        (true, Some(_)) if state["pin"].as_str().is_some_and(|pin| pin.starts_with("sha256:")) => {
            writeln!(out, "held: a policy file pins it to {}", text(&state["pin"]))
        }
        (true, Some(_)) => writeln!(
            out,
            "held: its server lists version {listed} ({}), which differs: {}",
            text(&state["seen"]),
            classes(&state["changes"])
        ),
        (true, None) if state["seen"] != answer["approved"] => writeln!(
            out,
            "in use, though its server lists version {listed} ({})",
            text(&state["seen"])
        ),
        (true, None) => writeln!(out, "in use"),
    }
}
