//! Powers that a tool hands on without a bound: SQL, a shell, code, files, any address.
//!
//! A parameter is one by its name, where the tool's own words say the same. A pattern or a list of
//! words on it is a bound, and then it is none.

use std::collections::HashSet;

use super::{
    Findings,
    schema::{Parameter, Parameters},
    shown, text,
};
use crate::{json::Value, model::quality::Flaw};

/// A power, and what gives it away.
struct Power {
    what: &'static str,
    advice: &'static str,
    /// Words of the parameter's name.
    parameter: &'static [&'static str],
    /// One of them is among the words of the tool's name ...
    tool: &'static [&'static str],
    /// ... and one among those of the descriptions or the name. Empty: that need not be.
    said: &'static [&'static str],
    /// None of them is: it is about something narrower.
    narrower: &'static [&'static str],
}

const POWERS: [Power; 5] = [
    Power {
        what: "any SQL",
        advice: "offer the few queries that are meant, or classify the tool `write_high`",
        parameter: &["sql", "query", "statement", "queries", "cypher"],
        tool: &[],
        said: &["sql", "tsql", "plsql", "psql", "cypher", "soql", "hql", "nosql"],
        narrower: &[],
    },
    Power {
        what: "any command of a shell",
        advice: "offer the few commands that are meant, or classify the tool `write_high`",
        parameter: &["command", "commands", "cmd", "shell", "bash", "argv", "commandline"],
        tool: &[],
        said: &[
            "shell",
            "bash",
            "terminal",
            "exec",
            "execute",
            "executes",
            "run",
            "runs",
            "powershell",
            "ssh",
            "adb",
            "subprocess",
            "console",
            "sh",
        ],
        narrower: &[],
    },
    Power {
        what: "any code",
        advice: "offer what the code is for, or classify the tool `write_high`",
        parameter: &["code", "script", "javascript", "js", "python", "expression", "program"],
        tool: &[
            "execute",
            "exec",
            "eval",
            "evaluate",
            "run",
            "interpret",
            "interpreter",
            "repl",
            "sandbox",
            "python",
            "javascript",
            "script",
        ],
        said: &[
            "code",
            "script",
            "javascript",
            "python",
            "typescript",
            "expression",
            "ruby",
            "lua",
        ],
        narrower: &[],
    },
    Power {
        what: "any path of a file system",
        advice: "bind it to a folder by a pattern, or name files by ids",
        parameter: &["path", "paths", "filepath", "filename", "file", "dir", "directory", "folder"],
        tool: &[
            "read",
            "write",
            "edit",
            "delete",
            "remove",
            "move",
            "copy",
            "list",
            "create",
            "open",
            "save",
            "file",
            "files",
            "directory",
            "dir",
            "folder",
            "tree",
            "upload",
            "rename",
            "append",
            "cat",
            "ls",
            "mkdir",
            "rm",
            "search",
        ],
        said: &["file", "files", "filesystem", "directory", "directories", "folder", "disk"],
        narrower: &["repository", "repo", "gist", "bucket"],
    },
    Power {
        what: "any address",
        advice: "bind it to the hosts that are meant by a pattern",
        parameter: &["url", "urls", "uri", "endpoint", "href"],
        tool: &[
            "fetch", "request", "http", "https", "curl", "wget", "proxy", "download", "browse",
            "browser", "navigate", "scrape", "crawl", "visit", "goto",
        ],
        said: &[],
        narrower: &[],
    },
];

/// Words of a tool's name that say it runs what it is given.
const RAW: [&str; 8] = ["shell", "bash", "exec", "eval", "adb", "sudo", "terminal", "powershell"];

pub fn look(tool: Value<'_>, parameters: &Parameters<'_>, findings: &mut Findings) {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
    let description = tool.get("description").and_then(Value::as_str).unwrap_or_default();
    let named = text::words(&name);
    let words = |words: &[String]| words.iter().cloned().collect::<Words>();
    let (tool_name, told) = (words(&named), words(&text::words(&description)));
    let free: Vec<_> = parameters.all.iter().filter(|one| one.is_free_text()).collect();
    let mut is_raw = false;
    for parameter in &free {
        if let Some(power) = power(parameter, &tool_name, &told) {
            is_raw = true;
            let (own, what, advice) = (shown(&parameter.name), power.what, power.advice);
            let message = format!("`{own}` takes {what}: {advice}");
            findings.add(Flaw::RawPower, &*parameter.pointer, message);
        } else if text::words(&parameter.name).iter().any(|word| word == "command") {
            let message = format!("`{}` takes any text: list the commands", shown(&parameter.name));
            findings.add(Flaw::Broad, &*parameter.pointer, message);
        }
    }
    let raw = named.iter().find(|word| RAW.contains(&word.as_str()));
    if let (Some(word), false, Some(first)) = (raw, is_raw, free.first()) {
        let own = shown(&first.name);
        let message = format!(
            "a tool called `{word}` that takes any text as `{own}`: classify it `write_high`"
        );
        findings.add(Flaw::RawPower, &*first.pointer, message);
    }
}

/// Words of a text, which may be as many as a server likes.
type Words = HashSet<String>;

fn power(parameter: &Parameter<'_>, named: &Words, told: &Words) -> Option<&'static Power> {
    let own: Words = text::words(&parameter.name).into_iter().collect();
    let one_of = |words: &Words, known: &[&str]| known.iter().any(|word| words.contains(*word));
    let may_be = |power: &&Power| {
        let by_tool = power.tool.is_empty() || one_of(named, power.tool);
        by_tool && one_of(&own, power.parameter)
    };
    let mut powers = POWERS.iter().filter(may_be).peekable();
    powers.peek()?;
    let said: Words = text::words(&parameter.description()).into_iter().collect();
    powers.find(|power| {
        let by_words = power.said.is_empty()
            || [named, told, &said, &own].iter().any(|words| one_of(words, power.said));
        let is_narrower = [told, &said].iter().any(|words| one_of(words, power.narrower));
        by_words && !is_narrower
    })
}
