//! The checks against small houses of their own: a check that cannot fail guards nothing.

use super::{MARKS, MAX_LINES, Source, imports, shapes, unmapped};

/// The faults of a house in which one file has this text and the others are empty.
fn house(path: &str, text: &str) -> Vec<String> {
    const FILES: &[&str] = &[
        "lib",
        "error/mod",
        "model/mod",
        "policy/mod",
        "limit/mod",
        "dialect/mod",
        "telemetry/mod",
        "upstream/mod",
        "edge/mod",
        "config/mod",
        "demo/mod",
        "app",
        "cli/mod",
        "stack/mod",
        "stack/stage",
        "stack/policy",
        "stack/validate",
        "stack/translate/mod",
        "stack/translate/northbound",
    ];
    let mut files = vec![Source::new(path, text)];
    let others = FILES.iter().map(|name| format!("src/{name}.rs")).filter(|name| name != path);
    files.extend(others.map(|name| Source::new(&name, "")));
    imports(&files)
}

#[track_caller]
fn allowed(path: &str, text: &str) {
    assert_eq!(house(path, text), [""; 0]);
}

#[track_caller]
fn refused(path: &str, text: &str, fault: &str) {
    assert_eq!(house(path, text), [format!("{path}:{fault}")]);
}

#[test]
fn an_engine_knows_the_ground_and_no_other_engine() {
    allowed("src/limit/local.rs", "use crate::{error::Error, model::call::Call};");
    allowed("src/limit/local.rs", "use super::Limiter; use crate::limit::spec::Spec;");
    refused("src/limit/local.rs", "use crate::policy::Rule;", "1: limit may not import policy");
    refused(
        "src/limit/local.rs",
        "use crate::telemetry::Meter;",
        "1: limit may not import telemetry",
    );
    refused("src/limit/mod.rs", "use crate::stack::stage::World;", "1: limit may not import stack");
}

#[test]
fn the_ground_knows_nothing_above_it() {
    allowed("src/model/call.rs", "use crate::error::Error;");
    allowed("src/yaml/names.rs", "use crate::model::call::Call;");
    refused("src/error/mod.rs", "use crate::model::call::Call;", "1: error may not import model");
    refused("src/dialect/mod.rs", "use crate::policy::Rule;", "1: dialect may not import policy");
    refused(
        "src/telemetry/mod.rs",
        "use crate::limit::Class;",
        "1: telemetry may not import limit",
    );
}

#[test]
fn the_ends_know_the_ground_and_telemetry() {
    for end in ["src/edge/server.rs", "src/upstream/cluster.rs"] {
        allowed(end, "use crate::{error::Error, telemetry::Meter};");
        assert_eq!(house(end, "use crate::stack::Stack;").len(), 1);
    }
    refused("src/edge/mod.rs", "use crate::upstream::Pool;", "1: edge may not import upstream");
}

#[test]
fn a_layer_knows_what_passes_between_layers_and_no_other_layer() {
    let layer = "src/stack/validate.rs";
    allowed(layer, "use super::stage::Permitted; use crate::{policy::Permit, upstream::Pool};");
    allowed(layer, "use super::BoxError; use crate::stack::Layers;");
    refused(layer, "use super::policy::Gate;", "1: layer validate may not import layer policy");
    refused(
        layer,
        "use crate::stack::policy::Gate;",
        "1: layer validate may not import layer policy",
    );
    refused(layer, "use crate::edge::Server;", "1: stack may not import edge");
    allowed("src/stack/mod.rs", "use self::{policy::Gate, validate::Check};");
    allowed("src/stack/translate/northbound.rs", "use super::{super::stage::Hop, give_up::Guard};");
    refused(
        "src/stack/translate/northbound.rs",
        "use super::{stream::Out,\n super::policy::Gate};",
        "2: layer translate may not import layer policy",
    );
}

#[test]
fn nothing_points_back_up() {
    allowed(
        "src/app.rs",
        "use crate::{config::Config, edge::Server, stack::Stack, upstream::Pool};",
    );
    refused("src/app.rs", "use crate::cli::Arguments;", "1: app may not import cli");
    refused("src/stack/mod.rs", "use crate::app::App;", "1: stack may not import app");
    allowed("src/demo/mod.rs", "use crate::{app::App, dialect::Dialect};");
    refused("src/demo/mod.rs", "use crate::stack::Stack;", "1: demo may not import stack");
    allowed("src/cli/serve.rs", "use crate::{app::App, demo::Demo, policy::Rule};");
}

#[test]
fn the_binary_knows_the_command_line_alone() {
    assert_eq!(house("src/main.rs", "fn main() { hangu::cli::run() }"), [""; 0]);
    let fault = "src/main.rs uses app: only cli";
    assert_eq!(house("src/main.rs", "fn main() { hangu::app::run() }"), [fault]);
}

#[test]
fn a_room_without_a_rule_is_a_fault() {
    let fault = "src/attic/mod.rs: no rule says what `attic` may import";
    assert_eq!(house("src/attic/mod.rs", ""), [fault]);
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let file = "src/limit/mod.rs";
    let fault = |line| format!("{line}: limit may not import policy");
    refused(file, "fn f() {\n    crate::policy::decide(1);\n}", &fault(2));
    refused(file, "fn f(rule: &crate::policy::Rule<'_>) {}", &fault(1));
    refused(file, "pub(crate) use crate::policy as decide;", &fault(1));
    refused(file, "use crate::policy::*;", &fault(1));
    refused(file, "#[cfg(test)]\nmod tests {\n use super::super::policy::Rule;\n}", &fault(3));
    refused(file, "macro_rules! m { () => { $crate::policy::decide() } }", &fault(1));
    refused(
        file,
        "use crate::{\n    error::{Code, Error},\n    policy::{\n        Rule as R, Set},\n};",
        &fault(4),
    );
}

#[test]
fn what_only_looks_like_a_path_is_none() {
    let file = "src/limit/mod.rs";
    allowed(
        file,
        "//! See [`crate::policy`].\n/* use crate::policy; /* nested */ crate::policy::X */",
    );
    allowed(
        file,
        r##"const A: &str = "crate::policy::A"; const B: &str = r#" " crate::policy::B"#;"##,
    );
    allowed(
        file,
        r#"const C: char = '"'; const D: char = '\''; fn f<'a>(a: &'a str) -> &'a str { a }"#,
    );
    allowed(
        file,
        "#[cfg(test)]\nmod policy {\n mod deep { use super::Case; }\n use self::deep::X;\n}",
    );
    // After literals a path still counts.
    let quotes = r##"const A: (char, &str, &[u8]) = ('"', r#"""#, b"\"");"##;
    refused(file, &format!("{quotes} use crate::policy::A;"), "1: limit may not import policy");
}

#[test]
fn the_shape_of_a_file_is_looked_at() {
    let check = |text: &str| shapes(&[Source::new("src/a.rs", text)]);
    assert_eq!(check("//! Holds a.\n"), [""; 0]);
    assert_eq!(check("use std::fmt;\n").len(), 1);
    assert_eq!(check(&"//! A.\n".repeat(MAX_LINES)), [""; 0]);
    assert_eq!(check(&"//! A.\n".repeat(MAX_LINES + 1)), ["src/a.rs: 501 lines, more than 500"]);
    assert_eq!(check("//! A.\nfn f() {\n    todo!()\n}"), ["src/a.rs:3: calls todo!"]);
    assert_eq!(
        check("//! A.\nfn f() { unimplemented!(\"x\") }"),
        ["src/a.rs:2: calls unimplemented!"]
    );
    assert_eq!(check("//! No todo!() in a comment counts.\n"), [""; 0]);
    assert_eq!(check(&format!("//! A.\nfn f() {{}} // {}: later", MARKS[0])).len(), 1);
}

#[test]
fn a_room_that_the_architecture_does_not_name_is_found() {
    let library =
        Source::new("src/lib.rs", "//! L.\npub mod edge;\npub mod policy;\nmod inline {}\n");
    assert_eq!(unmapped(&library, "- `edge` and src/policy/mod.rs"), [""; 0]);
    assert_eq!(unmapped(&library, "- `edge`: policy is elsewhere"), ["policy"]);
}
