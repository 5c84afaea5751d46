//! Guards the house: who may import whom, the shape and length of files, and that
//! ARCHITECTURE.md knows every room. A rule that has to change changes here and there.

mod checks;
mod source;

use std::{collections::BTreeSet, fs, path::Path};

use source::Source;

/// The lowest floor: these import each other alone.
const BASE: &[&str] = &["body", "bus", "clock", "error", "fault", "json", "mcp"];

/// What everybody above it may import.
const GROUND: &[&str] = &["body", "bus", "clock", "error", "fault", "json", "mcp", "model", "yaml"];

/// What the layers decide with. None knows another.
const ENGINES: &[&str] = &[
    "adapt",
    "approval",
    "audit",
    "credential",
    "idempotency",
    "identity",
    "limit",
    "policy",
    "registry",
    "screen",
    "steps",
];

/// What a layer may use of the stack besides itself.
const BETWEEN_LAYERS: &[&str] =
    &["answer", "asked", "challenge", "client_sessions", "notices", "parked", "stage"];

const MAX_LINES: usize = 500;

/// What says that something is left open; in two parts, or this line would be found.
const MARKS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// The rooms a room may import from besides itself; nothing for a room that is not here.
fn doors(room: &str) -> Option<Vec<&'static str>> {
    const CODECS: &[&str] = &["dialect"];
    const TELEMETRY: &[&str] = &["telemetry"];
    const ENDS: &[&str] = &["channel", "edge", "upstream"];
    const STACK: &[&str] = &["stack"];
    const OUTER: &[&str] = &["admin", "api", "config", "discovery", "store"];
    const TOP: &[&str] = &["app", "contract", "demo", "fake"];
    let rooms: &[&[&str]] = match room {
        "model" => &[BASE],
        "yaml" => &[BASE, &["model"]],
        "dialect" | "telemetry" => &[GROUND],
        "edge" | "upstream" => &[GROUND, TELEMETRY],
        "channel" => &[GROUND, CODECS, TELEMETRY, &["upstream"]],
        "stack" => &[GROUND, CODECS, ENGINES, TELEMETRY, &["upstream"]],
        "store" => &[GROUND, ENGINES],
        "discovery" => &[GROUND, CODECS, ENGINES, TELEMETRY, STACK],
        "admin" | "api" => &[GROUND, ENGINES, TELEMETRY, STACK],
        "config" => &[GROUND, CODECS, ENGINES, TELEMETRY, ENDS, STACK],
        "contract" | "fake" => &[GROUND, CODECS],
        "demo" => &[GROUND, CODECS, &["app", "config", "policy"]],
        "app" => &[GROUND, CODECS, ENGINES, TELEMETRY, ENDS, STACK, OUTER],
        "cli" => &[GROUND, CODECS, ENGINES, TELEMETRY, ENDS, STACK, OUTER, TOP],
        room if BASE.contains(&room) => &[BASE],
        room if ENGINES.contains(&room) => &[GROUND],
        _ => return None,
    };
    Some(rooms.concat())
}

/// Every import of the library's files that the house does not allow.
fn imports(files: &[Source]) -> Vec<String> {
    let modules: BTreeSet<Vec<String>> = files.iter().map(Source::module).collect();
    let mut faults = Vec::new();
    for file in files {
        if file.path == "src/main.rs" {
            let used = file.used_of("hangu");
            let strangers = used.iter().filter(|room| *room != "cli");
            faults.extend(strangers.map(|room| format!("src/main.rs uses {room}: only cli")));
            continue;
        }
        let module = file.module();
        let Some(room) = module.first() else { continue };
        let Some(doors) = doors(room) else {
            faults.push(format!("{}: no rule says what `{room}` may import", file.path));
            continue;
        };
        for named in file.named() {
            // What is no module is an item of the library's root.
            let Some(other) =
                named.path.first().filter(|other| modules.contains(&vec![(*other).clone()]))
            else {
                continue;
            };
            let place = format!("{}:{}", file.path, named.line);
            if other != room && !doors.contains(&other.as_str()) {
                faults.push(format!("{place}: {room} may not import {other}"));
            } else if other == "stack" && room == "stack" {
                faults.extend(
                    layers(&module, &named.path, &modules).map(|fault| format!("{place}: {fault}")),
                );
            }
        }
    }
    faults.dedup();
    faults
}

/// Inside the stack: a layer imports what passes between layers, never another layer.
fn layers(from: &[String], to: &[String], modules: &BTreeSet<Vec<String>>) -> Option<String> {
    let (layer, other) = (from.get(1)?, to.get(1)?);
    let is_module = modules.contains(to.get(..2)?);
    let allowed = layer == other || !is_module || BETWEEN_LAYERS.contains(&other.as_str());
    (!allowed).then(|| format!("layer {layer} may not import layer {other}"))
}

/// What is wrong with the shape of files.
fn shapes(files: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for Source { path, text } in files {
        if !text.starts_with("//!") {
            faults.push(format!(
                "{path}: does not begin with `//!`: what it holds, what it does not"
            ));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES {
            faults.push(format!("{path}: {lines} lines, more than {MAX_LINES}"));
        }
        let marks = MARKS.map(|mark| format!("// {mark}"));
        for (number, line) in (1..).zip(text.lines()) {
            if marks.iter().any(|mark| line.contains(mark)) {
                faults.push(format!("{path}:{number}: left open: {}", line.trim()));
            }
        }
    }
    for file in files {
        for stub in ["todo", "unimplemented"] {
            let lines = file.calls_of(stub);
            faults.extend(lines.iter().map(|line| format!("{}:{line}: calls {stub}!", file.path)));
        }
    }
    faults
}

/// The rooms that the text about the architecture does not name.
fn unmapped(library: &Source, architecture: &str) -> Vec<String> {
    let named = |room: &str| {
        [format!("`{room}`"), format!("src/{room}/"), format!("src/{room}.rs")]
            .iter()
            .any(|form| architecture.contains(form.as_str()))
    };
    library.declares().into_iter().filter(|room| !named(room)).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn nobody_imports_whom_it_may_not() {
    let faults = imports(&Source::below(root(), "src"));
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_holds_and_is_short() {
    let mut files = Source::below(root(), "src");
    for folder in ["tests/gateway", "benches", "examples"] {
        files.extend(Source::below(root(), folder));
    }
    assert!(files.len() > 10, "the files were not found");
    let faults = shapes(&files);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn architecture_names_every_room() {
    let library = Source::new("src/lib.rs", &read("src/lib.rs"));
    assert!(!library.declares().is_empty());
    assert_eq!(unmapped(&library, &read("ARCHITECTURE.md")), [""; 0]);
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
