//! `GET /v1/tools`: the caller's tools as agent runtimes want them, and the map back.
//!
//! They are those that `tools/list` shows him on `/mcp`, page by page.

use std::{borrow::Cow, collections::HashMap};

use http::Response;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use super::{
    answer,
    calls::ToolCalls,
    input::{self, choices, shown, wrong},
};
use crate::{
    adapt::{Format, Note, runtime_name},
    body::Body,
    error::{Code, Error},
    model::call::Surface,
    registry::Tool,
    stack::{
        stage::Upstreams,
        v1::{ApiRequest, Calls},
    },
};

/// So many tools are rewritten at once: rewriting takes a core's time, and others want theirs.
const AT_ONCE: usize = 16;

/// A page as the stack answers it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tools: &'a RawValue,
    next_cursor: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    format: &'static str,
    tools: Cow<'a, RawValue>,
    /// From each name among the tools to whose tool it is.
    map: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<Cow<'a, str>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

pub(super) async fn tools(
    tools: &ToolCalls,
    request: &ApiRequest,
    calls: Calls,
) -> Result<Response<Body>, Error> {
    let [format, cursor] = input::query(request.parts.uri.query(), ["format", "cursor"])?;
    let format = read_format(format.as_deref())?;
    let (headers, page) = tools.list(calls, request, cursor.map(Into::into)).await?;
    let page: Page<'_> = serde_json::from_slice(&page).map_err(unreadable)?;
    let told = rewritten(tools, format, page).await?;
    let mut response = answer(serde_json::to_vec(&told).map_err(unreadable)?);
    response.headers_mut().extend(headers);
    Ok(response)
}

/// A format by its word; MCP's own where none is named.
pub(super) fn read_format(word: Option<&str>) -> Result<Format, Error> {
    let Some(word) = word else { return Ok(Format::Mcp) };
    Format::parse(word).ok_or_else(|| {
        let known = Format::ALL.map(Format::as_str);
        wrong(format!("unknown format `{}`: {}", shown(word), choices(&known)))
    })
}

async fn rewritten<'a>(
    tools: &ToolCalls,
    format: Format,
    page: Page<'a>,
) -> Result<Told<'a>, Error> {
    let listed: Vec<&RawValue> = serde_json::from_str(page.tools.get()).map_err(unreadable)?;
    let mut declarations = Vec::with_capacity(listed.len());
    let (mut map, mut notes) = (Map::new(), Vec::new());
    for (number, raw) in listed.into_iter().enumerate() {
        if number % AT_ONCE == AT_ONCE - 1 && format != Format::Mcp {
            tokio::task::yield_now().await;
        }
        let Named { name: alias } = serde_json::from_str(raw.get()).map_err(unreadable)?;
        let world = tools.worlds.current();
        // What has gone in between cannot be called any more.
        let Some(tool) = world.catalog.resolve(&Surface::Aggregate, &alias) else { continue };
        let place = place(&tools.upstreams, tool);
        if format == Format::Mcp {
            map.insert(alias.into_owned(), place);
            continue;
        }
        let name = runtime_name(&alias);
        let Some(definition) = read_definition(raw) else {
            let text = "its definition is nested too deeply to be rewritten: it is left out";
            notes.push(told_of(&name, Note { pointer: String::new(), text: text.to_owned() }));
            continue;
        };
        if let Some(declared) = format.declare(&definition, &name) {
            notes.extend(declared.notes.into_iter().map(|note| told_of(&name, note)));
            declarations.push(declared.json);
            map.insert(name.into_owned(), place);
        }
    }
    let told = match format {
        Format::Mcp => Cow::Borrowed(page.tools),
        _ => Cow::Owned(to_raw_value(&format.tools(declarations)).map_err(unreadable)?),
    };
    let Page { next_cursor, meta, .. } = page;
    Ok(Told { format: format.as_str(), tools: told, map, notes, next_cursor, meta })
}

/// What of a definition any runtime has a place for. The rest is not read: a server may have put
/// anything there, and one tool that cannot be told costs only itself.
fn read_definition(raw: &RawValue) -> Option<Value> {
    let all: HashMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let told = ["title", "description", "annotations", "inputSchema"].into_iter();
    let told = told.filter_map(|name| Some((name, all.get(name)?)));
    told.map(|(name, value)| Some((name.to_owned(), serde_json::from_str(value.get()).ok()?)))
        .collect::<Option<Map<_, _>>>()
        .map(Value::Object)
}

/// Where a tool is, in the words of `POST /v1/invoke`.
fn place(upstreams: &Upstreams, tool: &Tool) -> Value {
    let upstream = upstreams.get(tool.upstream_index);
    json!({
        "upstream": tool.upstream.as_str(),
        "serverKey": upstream.map(|upstream| &*upstream.server_key),
        "toolName": &**tool.own_path_name(),
    })
}

fn told_of(name: &str, note: Note) -> Value {
    json!({ "name": name, "pointer": note.pointer, "note": note.text })
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::new(Code::Internal, "the list of tools could not be told").with_cause(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_runtime_reads_of_a_tool_may_be_anything() {
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        let read = |member: &str, depth| {
            let tool = format!(r#"{{"name":"t","description":"D","{member}":{}}}"#, deep(depth));
            let read = read_definition(&RawValue::from_string(tool).unwrap());
            read.map(|tool| tool["description"].clone())
        };
        for (member, depth, expected) in [
            ("_meta", 200, Some("D".into())),
            ("outputSchema", 200, Some("D".into())),
            // As deep as arguments can be held against it.
            ("inputSchema", 127, Some("D".into())),
            ("inputSchema", 200, None),
            ("annotations", 200, None),
        ] {
            assert_eq!(read(member, depth), expected, "{member} {depth}");
        }
    }
}
