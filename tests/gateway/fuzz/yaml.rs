//! The files of an operator: whatever stands in them is read or told, never more.

use std::{path::Path, sync::Arc};

use hangu::{
    config::Config,
    fault::Source,
    policy::{Policies, PolicyFile},
};

use super::{holds, target};

const WORDS: &[&str] = &[
    "version: hangu/v1\n",
    "kind: Policy\n",
    "kind: Tools\n",
    "kind: Directory\n",
    "scope: platform\n",
    "rules:\n",
    "  - { id: a, effect: allow, roles: [member], risk: [read_low] }\n",
    "listen: ",
    "127.0.0.1:0\n",
    "upstreams:\n",
    "  up: { url: \"http://127.0.0.1:1/mcp\" }\n",
    "callers:\n",
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    "\n",
    "  ",
    "\t",
    "- ",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!str ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "#",
    "${X}",
    "${X:-y}",
    "1s",
    "1MiB",
    "~",
    "null",
    "é",
    "\0",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "? ",
    "\u{85}",
    "\u{2028}",
    "99999999999999999999",
    "0x1",
    ".inf",
];

#[test]
fn any_file_is_read_or_its_faults_are_told() {
    target("yaml", WORDS, |input, _| {
        let text = String::from_utf8_lossy(input).into_owned();
        let loaded = Config::read("any.yaml", text.clone(), Path::new("."), &|_| None);
        holds(loaded.config.is_some() || !loaded.faults.is_empty(), || "nothing is told".into())?;
        let source = Arc::new(Source { name: "any.yaml".into(), text });
        let file = PolicyFile { path: "any.yaml".into(), source };
        let (policies, faults) = Policies::compile(vec![file]);
        holds(policies.is_some() || !faults.is_empty(), || "nothing is told".into())
    });
}
