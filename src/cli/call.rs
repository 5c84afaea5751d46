//! `hangu call`: one call of one tool, at a running gateway, as the employee whom the environment
//! names.

use std::{
    io::{self, IsTerminal, Read, Write},
    path::Path,
};

use clap::ValueEnum;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    remote::{DataAddress, Gateway, Refusal},
    tell::{CommandError, Ending},
};
use crate::{fault::escape, mcp::header, model::server_key::is_server_key};

/// How many tools an unknown one may be mistaken for.
const NEAREST: usize = 3;
/// How many pages of tools are looked through for them.
const PAGES: usize = 20;

/// What to call, and with what.
#[derive(Debug, clap::Args)]
#[command(
    help_template = "{about}\n\n{after-help}\n\n{usage-heading} {usage}\n\n{all-args}",
    after_help = "Examples:\n  \
        HANGU_API_KEY=… HANGU_EMP_ID=E1001 hangu call platform/list_test_tasks\n  \
        hangu call platform/get_test_task --args '{\"taskId\": \"T1\"}'\n  \
        hangu call mcp_order-query_7f3a2c91/query_order --args @order.json --format json\n\n\
        The key is read from HANGU_API_KEY, the employee from HANGU_EMP_ID. The key's caller has to\n\
        list `cli` in its `call_sources`. Exit codes: 0 the tool did it, 1 it did not or the gateway\n\
        refused, 2 the command makes no sense, 4 no gateway or no server answered.",
    // A call may take as long as its upstream is given.
    mut_arg("timeout", |timeout| timeout.default_value("150"))
)]
pub struct Call {
    /// The tool: its upstream or serverKey, a slash, and its name there
    #[arg(value_name = "UPSTREAM/TOOL", value_parser = parse_tool)]
    tool: Tool,
    /// The arguments, a JSON object: as it is, in a file (@FILE), or from standard input (-)
    #[arg(long, value_name = "JSON|@FILE|-")]
    args: Option<String>,
    /// The same for every try of one intended effect, so that it happens once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Asks what would happen; nothing is sent to the server
    #[arg(long)]
    dry_run: bool,
    /// How to tell: what the tool says, or its whole result
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    #[command(flatten)]
    at: DataAddress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// A tool and whose it is.
#[derive(Debug, Clone)]
struct Tool {
    server: String,
    name: String,
}

/// Makes the call and writes what came of it.
pub fn run(call: &Call, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let arguments = call.args.as_deref().map(arguments).transpose()?;
    let gateway = call.at.gateway()?.saying(header::CALL_SOURCE, HeaderValue::from_static("cli"));
    let answer = match gateway.post_raw("/v1/invoke", call.body(arguments.as_deref())?)? {
        Ok(answer) => answer,
        Err(refusal) => return Err(refused(refusal, &call.tool, &gateway)),
    };
    let result: Said = serde_json::from_slice(&answer).map_err(strange)?;
    match call.format {
        Form::Json => {
            out.write_all(&answer)?;
            writeln!(out)?;
        }
        Form::Text => told(&result, out)?,
    }
    Ok(if result.is_error { Ending::Findings } else { Ending::Well })
}

impl Call {
    /// The request's body; arguments stay as they were written.
    fn body(&self, arguments: Option<&RawValue>) -> Result<Vec<u8>, CommandError> {
        let server = if is_server_key(&self.tool.server) { "serverKey" } else { "upstream" };
        let mut body = serde_json::Map::new();
        body.insert(server.to_owned(), self.tool.server.as_str().into());
        body.insert("toolName".to_owned(), self.tool.name.as_str().into());
        if let Some(key) = &self.idempotency_key {
            body.insert("idempotencyKey".to_owned(), key.as_str().into());
        }
        if self.dry_run {
            body.insert("dryRun".to_owned(), true.into());
        }
        let mut text = serde_json::to_vec(&body).map_err(strange)?;
        if let Some(arguments) = arguments {
            text.pop();
            text.extend_from_slice(b",\"arguments\":");
            text.extend_from_slice(arguments.get().as_bytes());
            text.push(b'}');
        }
        Ok(text)
    }
}

fn parse_tool(text: &str) -> Result<Tool, String> {
    match text.split_once('/') {
        Some((server, name)) if !server.is_empty() && !name.is_empty() => {
            Ok(Tool { server: server.to_owned(), name: name.to_owned() })
        }
        _ => Err("such as `platform/list_test_tasks`: an upstream or a serverKey, a slash, and \
                  the tool's name there"
            .to_owned()),
    }
}

/// The arguments, wherever they stand.
fn arguments(given: &str) -> Result<Box<RawValue>, CommandError> {
    let usage = |what: String| CommandError::Usage(format!("--args: {what}"));
    let text = match given.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(Path::new(path))
            .map_err(|error| usage(format!("{path} cannot be read: {error}")))?,
        None if given == "-" => {
            let mut text = String::new();
            let mut input = io::stdin().lock();
            input
                .read_to_string(&mut text)
                .map_err(|error| usage(format!("standard input cannot be read: {error}")))?;
            text
        }
        None => given.to_owned(),
    };
    let raw: Box<RawValue> =
        serde_json::from_str(&text).map_err(|error| usage(format!("not JSON: {error}")))?;
    match raw.get().starts_with('{') {
        true => Ok(raw),
        false => Err(usage("arguments are a JSON object, such as {\"taskId\": \"T1\"}".to_owned())),
    }
}

// === What came of it ===

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    #[serde(default)]
    content: Vec<Value>,
    structured_content: Option<Value>,
    #[serde(default)]
    is_error: bool,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

/// What a tool says to people: its texts, or where it has none what is structured.
fn told(result: &Said, out: &mut dyn Write) -> Result<(), CommandError> {
    let mut lines =
        |text: &str| text.lines().try_for_each(|line| writeln!(out, "{}", escape(line)));
    let mut is_said = false;
    for block in &result.content {
        match (block["type"].as_str(), block["text"].as_str()) {
            (Some("text"), Some(text)) => {
                is_said = true;
                lines(text)?;
            }
            (kind, _) => {
                let kind = kind.unwrap_or("something");
                lines(&format!("[{kind}: --format json shows it]"))?;
            }
        }
    }
    if let (false, Some(structured)) = (is_said, &result.structured_content) {
        lines(&serde_json::to_string_pretty(structured).map_err(strange)?)?;
    }
    if result.meta["dev.hangu/replayed"] == true && io::stderr().is_terminal() {
        eprintln!("hangu: this is the first call's result: nothing was done again");
    }
    Ok(())
}

/// Why the gateway refused, and what to do about it.
fn refused(refusal: Refusal, tool: &Tool, gateway: &Gateway) -> CommandError {
    let mut said = refusal.to_string();
    let next = match refusal.code.as_str() {
        "not_found" => nearest(tool, gateway),
        "approval_required" => refusal.approval.as_ref().map(|id| {
            format!("`hangu approvals show {id}` tells how it stands; once approved, call again")
        }),
        "server_not_configured" => Some("configure the server, or name another".to_owned()),
        "rate_limited" | "quota_exhausted" | "conflict" => refusal
            .retry_after_ms
            .map(|ms| format!("the same call can be made again in {} s", ms.div_ceil(1_000))),
        _ => None,
    };
    if let Some(next) = next {
        said = format!("{said}\n  {next}");
    }
    match refusal.status >= 500 {
        true => CommandError::Environment(said),
        false => CommandError::Refused(said),
    }
}

/// The caller's own tools that look most like one that is unknown to him.
fn nearest(tool: &Tool, gateway: &Gateway) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page {
        map: serde_json::Map<String, Value>,
        next_cursor: Option<String>,
    }
    let wanted = format!("{}/{}", tool.server, tool.name);
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let mut path = "/v1/tools".to_owned();
        if let Some(cursor) = &cursor {
            let query = url::form_urlencoded::byte_serialize(cursor.as_bytes());
            path.push_str("?cursor=");
            path.extend(query);
        }
        // It was only to help.
        let page: Page = serde_json::from_slice(&gateway.get(&path).ok()?).ok()?;
        let server = if is_server_key(&tool.server) { "serverKey" } else { "upstream" };
        all.extend(page.map.values().filter_map(|place| {
            let known = format!("{}/{}", place[server].as_str()?, place["toolName"].as_str()?);
            Some((strsim::normalized_damerau_levenshtein(&wanted, &known), known))
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    all.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let names: Vec<String> =
        all.into_iter().take(NEAREST).map(|(_, name)| format!("`{}`", escape(&name))).collect();
    match names.as_slice() {
        [] => Some("you have no tools there".to_owned()),
        [only] => Some(format!("did you mean {only}?")),
        [first @ .., last] => Some(format!("did you mean {} or {last}?", first.join(", "))),
    }
}

fn strange(error: serde_json::Error) -> CommandError {
    CommandError::Environment(format!("the gateway's answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_json_object_and_stay_as_they_were_written() {
        let text = "{\"n\": 1.0, \"big\":123456789012345678901}";
        assert_eq!(arguments(text).unwrap().get(), text);
        for (bad, why) in [
            ("{", "not JSON"),
            ("[]", "are a JSON object"),
            ("@/nowhere/at/all.json", "cannot be read"),
        ] {
            match arguments(bad) {
                Err(CommandError::Usage(message)) => assert!(message.contains(why), "{message}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_tool_is_named_with_its_server() {
        let tool = parse_tool("mcp_a_12345678/x/y").unwrap();
        assert_eq!((&*tool.server, &*tool.name), ("mcp_a_12345678", "x/y"));
        for bad in ["", "x", "/x", "x/"] {
            assert!(parse_tool(bad).is_err(), "{bad}");
        }
    }
}
