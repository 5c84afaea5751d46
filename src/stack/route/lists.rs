//! Lists, and what the gateway says of itself, from what is already known: no upstream is asked.
//!
//! A listing shows exactly what the permit's view lets through. It is rendered once for each
//! view, surface, dialect and page, and kept with the world it is of; only the cursor is sealed
//! anew for whoever asks.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::super::stage::{Page, PageKey, Permitted, World, publishes_key};
use crate::{
    clock::Clock,
    dialect::{SERVER_INFO_MEMBER, downgrade, streamable_http, streamable_http_session},
    error::{Code, Error},
    identity::cursor::{Cursors, List},
    json,
    mcp::{Family, Served, Version, meta, rpc},
    model::{call::Surface, exchange::NorthDialect, trace::to_hex},
    policy::{ItemIndex, View},
    registry::{Catalog, Listing, with_key_argument},
};

/// How long a client may keep a listing, in milliseconds; the same for everybody, and always
/// private, since lists vary by who asks.
const LIST_TTL_MS: u64 = 10_000;
/// The same for `server/discover`.
const DISCOVER_TTL_MS: u64 = 60_000;

/// Whether clients are told of changes, and so may be promised it.
const NOTICES: bool = true;

/// What is carried from an upstream that declares it to a client.
const CARRIED: Served = Served::from_bits(
    Served::TOOLS.bits()
        | Served::PROMPTS.bits()
        | Served::RESOURCES.bits()
        | Served::COMPLETIONS.bits()
        | Served::LOGGING.bits()
        | Served::TASKS.bits(),
);

/// The longest place that a cursor holds in full, in bytes; of a longer one a digest.
const PLACE_MAX: usize = 256;

/// Answers lists.
#[derive(Clone)]
pub(super) struct Lists {
    pub cursors: Arc<Cursors>,
    pub clock: Clock,
    /// Entries of a page.
    pub page_size: usize,
}

/// What a surface declares to a client. A family is there where one upstream of the surface
/// declares it, whoever asks: a list that policy empties is an honest one.
pub(super) fn declared(catalog: &Catalog, surface: &Surface, dialect: NorthDialect) -> Served {
    let mut served = catalog.served(surface);
    let subscribe = served & Served::SUBSCRIBE;
    served = served & CARRIED;
    if dialect == NorthDialect::Modern {
        // A stateless client asks for log messages with each request.
        served = served.without(Served::LOGGING);
    } else {
        // What became of a call is seen through for the others.
        served = served.without(Served::TASKS);
    }
    if NOTICES {
        // Of changes of the rules too, so whatever the upstream says.
        for (family, changed) in [
            (Served::TOOLS, Served::TOOLS_CHANGED),
            (Served::PROMPTS, Served::PROMPTS_CHANGED),
            (Served::RESOURCES, Served::RESOURCES_CHANGED),
        ] {
            if served.contains(family) {
                served = served | changed;
            }
        }
        served = served | subscribe;
    }
    served
}

/// The same, with what an employee's own servers declare.
fn declared_to(permitted: &Permitted) -> Served {
    let Permitted { call, world, beside, .. } = permitted;
    let own = beside.as_ref().map_or(Served::NONE, |beside| {
        // Nobody follows what happens to their resources.
        declared(&beside.world.catalog, &call.surface, call.dialect).without(Served::SUBSCRIBE)
    });
    declared(&world.catalog, &call.surface, call.dialect) | own
}

/// The answer to `initialize`.
pub(super) fn initialize(permitted: &Permitted, version: Version) -> Bytes {
    let served = declared_to(permitted);
    let instructions = instructions(permitted);
    streamable_http_session::initialize_result(version, served, instructions).into()
}

/// The answer to `server/discover`.
pub(super) fn discover(permitted: &Permitted) -> Bytes {
    let served = declared_to(permitted);
    let instructions = instructions(permitted);
    streamable_http::discover_result(served, instructions, DISCOVER_TTL_MS).into()
}

/// What the surface's one server tells those who use it; nothing to who may use nothing of it.
fn instructions(permitted: &Permitted) -> Option<&str> {
    let (catalog, surface) = (&permitted.world.catalog, &permitted.call.surface);
    let text = catalog.instructions(surface)?;
    let seen = permitted.permit.view().visible();
    let mut all = Family::ALL.into_iter().flat_map(|family| entries(catalog, surface, family));
    all.any(|entry| seen.contains(entry.index)).then_some(&**text)
}

impl Lists {
    /// One page.
    pub fn answer(
        &self,
        permitted: &Permitted,
        family: Family,
        cursor: Option<&str>,
    ) -> Result<Bytes, Error> {
        let call = &permitted.call;
        if !declared_to(permitted).contains(family.capability()) {
            return Err(streamable_http::unserved(family.list_method().as_str()));
        }
        let list = List::of(&call.caller, &call.surface, family);
        let from = match cursor {
            None => 0,
            Some(cursor) => {
                let place = self.cursors.open(list, cursor, self.clock.now_ms());
                let place = place.map_err(|_| bad_cursor())?;
                go_on(permitted, family, &place)
            }
        };
        let page = self.page(permitted, family, from);
        let Some(last) = page.last else { return Ok(page.body) };
        let cursor = self.cursors.seal(list, &last, self.clock.now_ms()).map_err(|cause| {
            Error::new(Code::Internal, "there is no cursor for the next page").with_cause(cause)
        })?;
        Ok(with_cursor(&page.body, &cursor))
    }
}

impl Lists {
    fn page(&self, permitted: &Permitted, family: Family, from: usize) -> Page {
        let Permitted { call, permit, world, beside, .. } = permitted;
        let key = PageKey { surface: call.surface.clone(), dialect: call.dialect, family, from };
        let render = || render(permitted, family, from, self.page_size);
        match beside {
            None => world.listing(permit.view(), None, key, render),
            // With the world that is made anew for either of the two.
            Some(own) => own.world.listing(&own.view, Some(permit.view()), key, render),
        }
    }
}

fn bad_cursor() -> Error {
    let message = "the cursor is not one of this list's: start again without one";
    Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
}

/// Puts the cursor into a rendered page, as its last member.
fn with_cursor(page: &Bytes, cursor: &str) -> Bytes {
    let mut out = Vec::with_capacity(page.len() + cursor.len() + 32);
    out.extend_from_slice(page.strip_suffix(b"}").unwrap_or(page));
    out.extend_from_slice(b",\"nextCursor\":");
    json::write_str(&mut out, cursor);
    out.push(b'}');
    out.into()
}

// === Places ===

/// Something on a list.
struct Entry<'a> {
    index: usize,
    upstream: &'a str,
    /// On the surface.
    name: &'a str,
    qualified: &'a str,
    published: &'a Bytes,
}

/// What a surface lists of a family, in catalog order.
fn entries<'a>(
    catalog: &'a Catalog,
    surface: &'a Surface,
    family: Family,
) -> Box<dyn Iterator<Item = Entry<'a>> + 'a> {
    if family == Family::Tools {
        return Box::new(catalog.on(surface).map(|tool| Entry {
            index: tool.index,
            upstream: tool.upstream.as_str(),
            name: tool.name_on(surface),
            qualified: &tool.qualified,
            published: tool.published(surface),
        }));
    }
    Box::new(catalog.items_on(surface, family).map(|item| Entry {
        index: item.index,
        upstream: item.upstream.as_str(),
        name: item.name_on(surface),
        qualified: &item.qualified,
        published: item.published(surface),
    }))
}

/// A place as a cursor holds it: the upstream, and in that what was listed last.
fn place(entry: &Entry<'_>) -> Arc<str> {
    if entry.qualified.len() <= PLACE_MAX {
        return format!("{}\n{}", entry.upstream, entry.qualified).into();
    }
    let digest = Sha256::digest(entry.qualified.as_bytes());
    format!("{}\n#{}", entry.upstream, to_hex(&digest)).into()
}

/// The index from which a list goes on after a place. Where what stood there has left the
/// catalog, its upstream's are listed from their first one: some come twice, and none is lost.
fn after(catalog: &Catalog, surface: &Surface, family: Family, at: &str) -> usize {
    let upstream = at.split_once('\n').map_or("", |(upstream, _)| upstream);
    let mut first = None;
    for entry in entries(catalog, surface, family).filter(|entry| entry.upstream == upstream) {
        first = first.or(Some(entry.index));
        if *place(&entry) == *at {
            return entry.index + 1;
        }
    }
    first.unwrap_or_else(|| following(catalog, surface, family, upstream))
}

/// Where the upstreams begin that follow on one that lists nothing any more.
fn following(catalog: &Catalog, surface: &Surface, family: Family, upstream: &str) -> usize {
    let mut order = catalog.listings(surface).map(|(name, _)| name.as_str());
    if !order.any(|name| name == upstream) {
        // It has left the configuration: everything, rather than not enough.
        return 0;
    }
    let later: Vec<&str> = order.collect();
    entries(catalog, surface, family)
        .find(|entry| later.contains(&entry.upstream))
        .map_or(usize::MAX, |entry| entry.index)
}

/// The same, where an employee's own things follow on everybody's: their places are counted on.
fn go_on(permitted: &Permitted, family: Family, at: &str) -> usize {
    let Permitted { call, world, beside, .. } = permitted;
    let Some(own) = beside else { return after(&world.catalog, &call.surface, family, at) };
    let upstream = at.split_once('\n').map_or("", |(upstream, _)| upstream);
    let mut known = own.world.catalog.listings(&call.surface);
    match known.any(|(name, _)| name.as_str() == upstream) {
        true => {
            let at = after(&own.world.catalog, &call.surface, family, at);
            at.saturating_add(places(&world.catalog))
        }
        false => after(&world.catalog, &call.surface, family, at).min(places(&world.catalog)),
    }
}

fn places(catalog: &Catalog) -> usize {
    catalog.tools().len() + catalog.items().len()
}

// === Rendering ===

/// Something that is listed, and the world and view that it is seen in.
struct Shown<'a> {
    entry: Entry<'a>,
    world: &'a World,
    view: &'a View,
    /// Its place among all that is listed.
    at: usize,
}

/// What a list shows: everybody's, then the employee's own, but for what would have a name twice.
fn shown(permitted: &Permitted, family: Family) -> impl Iterator<Item = Shown<'_>> {
    let Permitted { call, permit, world, beside, .. } = permitted;
    let base = entries(&world.catalog, &call.surface, family).map(|entry| {
        let at = entry.index;
        Shown { entry, world, view: permit.view(), at }
    });
    let own = beside.iter().flat_map(move |own| {
        let new = entries(&own.world.catalog, &call.surface, family)
            .filter(move |entry| !has(&world.catalog, &call.surface, family, entry.name));
        new.map(move |entry| {
            let at = entry.index + places(&world.catalog);
            Shown { entry, world: &own.world, view: &own.view, at }
        })
    });
    base.chain(own).filter(|shown| shown.view.visible().contains(shown.entry.index))
}

fn has(catalog: &Catalog, surface: &Surface, family: Family, name: &str) -> bool {
    match family {
        Family::Tools => catalog.resolve(surface, name).is_some(),
        _ => catalog.item(surface, family, name).is_some(),
    }
}

fn render(permitted: &Permitted, family: Family, from: usize, page_size: usize) -> Page {
    let Permitted { call, .. } = permitted;
    let mut visible = shown(permitted, family).filter(|shown| shown.at >= from);
    let page: Vec<_> = visible.by_ref().take(page_size).collect();
    let more = visible.next().is_some();
    let last = page.last().filter(|_| more).map(|shown| place(&shown.entry));
    let size: usize = page.iter().map(|shown| shown.entry.published.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    out.push(b'{');
    if call.dialect == NorthDialect::Modern {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    out.push(b'"');
    out.extend_from_slice(family.member().as_bytes());
    out.extend_from_slice(b"\":[");
    for (number, shown) in page.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&published(&shown, family, call.dialect));
    }
    out.push(b']');
    finish(&mut out, permitted, family);
    Page { body: out.into(), last }
}

/// An entry as its view is to see it.
fn published(shown: &Shown<'_>, family: Family, dialect: NorthDialect) -> Bytes {
    let Shown { entry, world, view, .. } = shown;
    if family == Family::Tools
        && let Some(tool) = world.catalog.tools().get(entry.index)
        && let Some(policy) = view.item(ItemIndex::new(entry.index))
        && publishes_key(tool, policy)
    {
        let published = with_key_argument(entry.published);
        return downgrade::definition(family, &published, dialect);
    }
    downgrade::definition(family, entry.published, dialect)
}

/// The members after the list.
fn finish(out: &mut Vec<u8>, permitted: &Permitted, family: Family) {
    let Permitted { call, world, beside, .. } = permitted;
    let own = beside.iter().map(|own| &*own.world.catalog);
    let catalogs = [&*world.catalog].into_iter().chain(own);
    let unavailable = unavailable(catalogs, &call.surface, family);
    let dialect = call.dialect;
    if dialect == NorthDialect::Modern {
        // What is missing may be there at any moment.
        let ttl = if unavailable.is_some() { 0 } else { LIST_TTL_MS };
        out.extend_from_slice(b",\"ttlMs\":");
        out.extend_from_slice(itoa::Buffer::new().format(ttl).as_bytes());
        out.extend_from_slice(b",\"cacheScope\":\"private\",\"_meta\":{");
        out.extend_from_slice(SERVER_INFO_MEMBER.as_bytes());
        if let Some(unavailable) = unavailable {
            out.push(b',');
            out.extend_from_slice(&unavailable);
        }
        out.push(b'}');
    } else if let Some(unavailable) = unavailable {
        out.extend_from_slice(b",\"_meta\":{");
        out.extend_from_slice(&unavailable);
        out.push(b'}');
    }
    out.push(b'}');
}

/// The member of `_meta` that tells which upstreams are missing from a list, and why.
fn unavailable<'a>(
    catalogs: impl Iterator<Item = &'a Catalog>,
    surface: &'a Surface,
    family: Family,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (name, listing) in catalogs.flat_map(|catalog| catalog.listings_of(surface, family)) {
        let reason = match listing {
            Listing::Listed => continue,
            Listing::Pending => "it has not answered yet",
            Listing::Never(why) => why,
        };
        out.extend_from_slice(if out.is_empty() { b"[" } else { b"," });
        out.extend_from_slice(b"{\"upstream\":");
        json::write_str(&mut out, name.as_str());
        out.extend_from_slice(b",\"reason\":");
        json::write_str(&mut out, reason);
        out.push(b'}');
    }
    if out.is_empty() {
        return None;
    }
    out.push(b']');
    let mut member = Vec::with_capacity(out.len() + 32);
    json::write_str(&mut member, meta::UNAVAILABLE);
    member.push(b':');
    member.extend_from_slice(&out);
    Some(member)
}

#[cfg(test)]
mod tests;
