//! The tools that steps are compiled against: those of the author's own servers, and of the
//! operator's upstreams as far as policy opens them to anybody in the tenant.
//!
//! Of these it does not matter what the author himself may call: whoever runs the steps may be
//! somebody else. A tool that is open to nobody in the tenant is to him like one that does not
//! exist, and so is an upstream of which nothing is: whoever guesses an address does not learn
//! here that the gateway knows it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    json::{Doc, Duplicates, Limits, Value},
    mcp::Family,
    model::{
        call::Surface,
        caller::Caller,
        exchange::DecisionKind,
        server::{IdempotencyMode, UpstreamName},
    },
    policy::ItemIndex,
    registry::{ArgumentSchema, Held, KEY_ARGUMENT, Listing, Tool, with_key_argument},
    stack::stage::{Upstreams, World, publishes_key},
    steps::{Found, Misfit, Tools, Unfound, Validator},
};

/// Definitions were read when they were listed.
const DEFINITIONS: Limits = Limits { depth: 512, duplicates: Duplicates::Allow, outline: 2 };

/// What is known at one moment.
pub(super) struct Known<'a> {
    pub world: Arc<World>,
    /// What the author has of his own.
    pub own: Option<Arc<World>>,
    pub upstreams: &'a Upstreams,
    pub caller: &'a Caller,
}

/// A schema, ready to hold arguments against.
pub(super) struct Schema(ArgumentSchema);

impl Validator for Schema {
    fn check(&self, arguments: &[u8]) -> Result<(), Misfit> {
        let Self(schema) = self;
        schema
            .check(arguments)
            .map_err(|mismatch| Misfit { pointer: mismatch.pointer, message: mismatch.message })
    }

    fn work(&self, length: usize) -> u64 {
        self.0.work(length)
    }
}

impl Tools for Known<'_> {
    type Validator = Schema;

    fn find(&self, server_key: &str, tool: &str) -> Result<Found, Unfound> {
        if let Some(found) = self.find_own(server_key, tool) {
            return found;
        }
        let of_key = || {
            let keyed = self.upstreams.iter().filter(|one| *one.server_key == *server_key);
            keyed.map(|one| &one.name).filter(|name| self.shows(name))
        };
        if of_key().next().is_none() {
            return Err(Unfound::Server);
        }
        match of_key().find_map(|name| self.open(name, tool)) {
            Some((surface, found)) => describe(&self.world, &surface, &found),
            None => Err(missing(&self.world, of_key())),
        }
    }

    fn validator(&self, schema: &[u8]) -> Option<Schema> {
        ArgumentSchema::compile(Some(schema)).ok().map(Schema)
    }
}

impl Known<'_> {
    /// The author's own server of a key comes first; nothing where he has none.
    fn find_own(&self, server_key: &str, tool: &str) -> Option<Result<Found, Unfound>> {
        let own = self.own.as_ref()?;
        let name = UpstreamName::of_key(server_key).filter(|name| own.catalog.knows(name))?;
        let surface = Surface::Upstream(name.clone());
        let view = own.view_by_now(self.caller)?;
        let sees =
            |tool: &&Arc<Tool>| view.decide(ItemIndex::new(tool.index)).kind != DecisionKind::Hide;
        Some(match own.catalog.resolve(&surface, tool).filter(sees) {
            Some(found) => describe(own, &surface, found),
            None => Err(missing(own, [&name].into_iter())),
        })
    }

    /// How long to wait for servers whose tools are being listed for the first time, if there are
    /// any: as long as the slowest may take.
    pub fn pending(&self) -> Option<Duration> {
        let listing = |name| self.world.catalog.listing_of(name, Family::Tools);
        let pending =
            self.upstreams.iter().filter(|one| listing(&one.name) == Some(&Listing::Pending));
        pending.map(|one| one.timeout).max()
    }

    /// Whether something of an upstream is open to somebody of the tenant, or may be once it is
    /// listed.
    fn shows(&self, upstream: &UpstreamName) -> bool {
        let (tenant, World { catalog, rules, .. }) = (&self.caller.tenant, &*self.world);
        if catalog.listing_of(upstream, Family::Tools) != Some(&Listing::Listed) {
            return rules.may_open_to_somebody(tenant, upstream.as_str());
        }
        let mut own = catalog.tools().iter().filter(|tool| tool.upstream == *upstream);
        own.any(|tool| rules.is_open_to_somebody(tenant, ItemIndex::new(tool.index)))
    }

    /// A tool of the operator's that somebody of the tenant may be let use.
    fn open(&self, upstream: &UpstreamName, tool: &str) -> Option<(Surface, Arc<Tool>)> {
        let (tenant, rules) = (&self.caller.tenant, &self.world.rules);
        let surface = Surface::Upstream(upstream.clone());
        let found = self.world.catalog.resolve(&surface, tool)?.clone();
        let open = rules.is_open_to_somebody(tenant, ItemIndex::new(found.index));
        open.then_some((surface, found))
    }
}

/// What is said where none of these servers has the tool.
fn missing<'a>(world: &World, mut servers: impl Iterator<Item = &'a UpstreamName>) -> Unfound {
    let listing = |name| world.catalog.listing_of(name, Family::Tools);
    let is_listed = |name| listing(name) == Some(&Listing::Listed);
    if servers.all(is_listed) { Unfound::Tool } else { Unfound::NotListed }
}

fn describe(world: &World, surface: &Surface, tool: &Tool) -> Result<Found, Unfound> {
    if tool.held == Some(Held::New) {
        return Err(Unfound::NotApproved);
    }
    let policy = world.rules.item(ItemIndex::new(tool.index));
    let mut published = tool.published(surface).clone();
    if policy.is_some_and(|policy| publishes_key(tool, policy)) {
        published = with_key_argument(&published);
    }
    let required = policy.filter(|policy| policy.idempotency == IdempotencyMode::Required);
    let key_input = required
        .map(|policy| policy.idempotency_argument.as_deref().unwrap_or(KEY_ARGUMENT).into());
    Ok(Found {
        digest: tool.definition.digest,
        schema: schema_of(&published),
        key_input,
        withheld: withheld(tool),
    })
}

fn schema_of(definition: &Bytes) -> Option<Bytes> {
    let doc = Doc::parse(definition.clone(), &DEFINITIONS).ok()?;
    doc.root().get("inputSchema").map(Value::bytes)
}

/// Inputs of the server's own that callers neither see nor give.
fn withheld(tool: &Tool) -> Vec<Box<str>> {
    let Some(face) = &tool.face else { return Vec::new() };
    let Some(schema) = schema_of(&tool.definition.raw) else { return Vec::new() };
    let Ok(doc) = Doc::parse(schema, &DEFINITIONS) else { return Vec::new() };
    let properties = doc.root().get("properties");
    let names = properties.into_iter().flat_map(Value::members);
    names
        .map(|(name, _)| name.unescaped())
        .filter(|name| face.withholds(&format!("/{}", name.replace('~', "~0").replace('/', "~1"))))
        .map(|name| name.as_ref().into())
        .collect()
}
