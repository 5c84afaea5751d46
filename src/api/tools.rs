//! `GET /v1/tools`: the caller's tools as agent runtimes want them, and the map back.
//!
//! They are those that `tools/list` shows him on `/mcp`, page by page.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use moka::sync::Cache;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use sha2::{Digest, Sha256};

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
    stack::{
        stage::World,
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

/// A list in a runtime's form, but for what stands behind it.
#[derive(Serialize)]
struct Told<'a> {
    format: &'static str,
    tools: Cow<'a, RawValue>,
    /// From each name among the tools to whose tool it is.
    map: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Value>,
}

/// The worlds that a list is of: everybody's, and what its employee has of his own.
struct Sight {
    world: Arc<World>,
    own: Option<Arc<World>>,
}

/// Lists in the forms of runtimes, each until another world is in force: to rewrite a thousand
/// tools takes some twenty times as long as to tell a list that is kept (0.8 s and 0.04 s in a build
/// that is not optimised). Worlds are part of the key by their addresses, which a weak reference
/// keeps from being another's.
#[derive(Clone, Default)]
pub struct Adapted(Arc<OnceLock<Cache<Key, Kept>>>);

/// The worlds, the form, and the digest of the list as it was.
type Key = (usize, usize, Format, [u8; 32]);

type Kept = (Weak<World>, Option<Weak<World>>, Bytes);

/// Bytes of such lists that are kept; the least used are made again.
const ADAPTED_BYTES: u64 = 32 << 20;

/// What nobody asked for in this time is not kept.
const IDLE: Duration = Duration::from_secs(10 * 60);

pub(super) async fn tools(
    tools: &ToolCalls,
    request: &ApiRequest,
    calls: Calls,
) -> Result<Response<Body>, Error> {
    let [format, cursor] = input::query(request.parts.uri.query(), ["format", "cursor"])?;
    let format = read_format(format.as_deref())?;
    let (headers, page) = tools.list(calls, request, cursor.map(Into::into)).await?;
    let page: Page<'_> = serde_json::from_slice(&page).map_err(unreadable)?;
    let world = tools.worlds.current();
    let own = tools.own_world(&world, &request.caller).await?;
    let sight = Sight { world, own };
    let key = sight.key(format, page.tools);
    let head = match tools.adapted.find(&key) {
        Some(kept) => kept,
        None => {
            let told = serde_json::to_vec(&rewritten(&sight, format, page.tools).await?);
            let told = Bytes::from(told.map_err(unreadable)?);
            tools.adapted.keep(key, &sight, told.clone());
            told
        }
    };
    let mut response = answer(page.put_behind(&head).map_err(unreadable)?);
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
    sight: &Sight,
    format: Format,
    tools: &'a RawValue,
) -> Result<Told<'a>, Error> {
    let listed: Vec<&RawValue> = serde_json::from_str(tools.get()).map_err(unreadable)?;
    let mut declarations = Vec::with_capacity(listed.len());
    let (mut map, mut notes) = (Map::new(), Vec::new());
    for (number, raw) in listed.into_iter().enumerate() {
        if number % AT_ONCE == AT_ONCE - 1 && format != Format::Mcp {
            tokio::task::yield_now().await;
        }
        let Named { name: alias } = serde_json::from_str(raw.get()).map_err(unreadable)?;
        // What has gone in between cannot be called any more.
        let Some(place) = sight.place(&alias) else { continue };
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
    let tools = match format {
        Format::Mcp => Cow::Borrowed(tools),
        _ => Cow::Owned(to_raw_value(&format.tools(declarations)).map_err(unreadable)?),
    };
    Ok(Told { format: format.as_str(), tools, map, notes })
}

// === impl Page ===

impl Page<'_> {
    /// Puts what is this page's alone behind the rest.
    fn put_behind(&self, head: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = head.strip_suffix(b"}").unwrap_or(head).to_vec();
        if let Some(cursor) = &self.next_cursor {
            out.extend_from_slice(b",\"nextCursor\":");
            serde_json::to_writer(&mut out, cursor)?;
        }
        if let Some(meta) = self.meta {
            out.extend_from_slice(b",\"_meta\":");
            out.extend_from_slice(meta.get().as_bytes());
        }
        out.push(b'}');
        Ok(out)
    }
}

// === impl Sight ===

impl Sight {
    fn key(&self, format: Format, tools: &RawValue) -> Key {
        let place = |world: &Arc<World>| Arc::as_ptr(world) as usize;
        let digest = Sha256::digest(tools.get().as_bytes()).into();
        (place(&self.world), self.own.as_ref().map_or(0, place), format, digest)
    }

    /// Where a tool is, in the words of `POST /v1/invoke`.
    fn place(&self, alias: &str) -> Option<Value> {
        let (world, tool) = [Some(&self.world), self.own.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|world| Some((world, world.catalog.resolve(&Surface::Aggregate, alias)?)))?;
        let upstream = world.upstreams.get(tool.upstream_index);
        let mut place = Map::new();
        // A server of an employee's own has no name there but its key.
        if !tool.upstream.is_key() {
            place.insert("upstream".to_owned(), tool.upstream.as_str().into());
        }
        let key = upstream.map(|upstream| &*upstream.server_key);
        place.insert("serverKey".to_owned(), key.into());
        place.insert("toolName".to_owned(), (**tool.own_path_name()).into());
        Some(place.into())
    }
}

// === impl Adapted ===

impl Adapted {
    fn find(&self, key: &Key) -> Option<Bytes> {
        Some(self.0.get()?.get(key)?.2)
    }

    fn keep(&self, key: Key, sight: &Sight, told: Bytes) {
        let kept = self.0.get_or_init(|| {
            let weight = |_: &_, (_, _, told): &Kept| u32::try_from(told.len()).unwrap_or(u32::MAX);
            let kept = Cache::builder().max_capacity(ADAPTED_BYTES).time_to_idle(IDLE);
            kept.weigher(weight).build()
        });
        let own = sight.own.as_ref().map(Arc::downgrade);
        kept.insert(key, (Arc::downgrade(&sight.world), own, told));
    }
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
