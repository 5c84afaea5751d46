//! The tools that steps are compiled against: those of the operator's upstreams, as far as policy
//! opens them to anybody in the tenant.
//!
//! Not what the author may call: whoever runs the steps may be somebody else. A tool that is open
//! to nobody in the tenant is to him like one that does not exist.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    json::{Doc, Duplicates, Limits, Value},
    model::{
        call::Surface,
        caller::TenantId,
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
    pub upstreams: &'a Upstreams,
    pub tenant: &'a TenantId,
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
}

impl Tools for Known<'_> {
    type Validator = Schema;

    fn find(&self, server_key: &str, tool: &str) -> Result<Found, Unfound> {
        let of_key = || {
            let keyed = self.upstreams.iter().filter(|one| *one.server_key == *server_key);
            keyed.map(|one| &one.name)
        };
        if of_key().next().is_none() {
            return Err(Unfound::Server);
        }
        match of_key().find_map(|name| self.open(name, tool)) {
            Some((surface, found)) if found.held != Some(Held::New) => {
                Ok(self.describe(&surface, &found))
            }
            Some(_) => Err(Unfound::NotApproved),
            None => {
                let listed = |name| self.world.catalog.listing(name) == Some(&Listing::Listed);
                Err(if of_key().all(listed) { Unfound::Tool } else { Unfound::NotListed })
            }
        }
    }

    fn validator(&self, schema: &[u8]) -> Option<Schema> {
        ArgumentSchema::compile(Some(schema)).ok().map(Schema)
    }
}

impl Known<'_> {
    /// A tool that somebody of the tenant may be let use.
    fn open(&self, upstream: &UpstreamName, tool: &str) -> Option<(Surface, Arc<Tool>)> {
        let surface = Surface::Upstream(upstream.clone());
        let found = self.world.catalog.resolve(&surface, tool)?.clone();
        let open = self.world.rules.is_open_to_somebody(self.tenant, ItemIndex::new(found.index));
        open.then_some((surface, found))
    }

    fn describe(&self, surface: &Surface, tool: &Tool) -> Found {
        let policy = self.world.rules.item(ItemIndex::new(tool.index));
        let mut published = tool.published(surface).clone();
        if policy.is_some_and(|policy| publishes_key(tool, policy)) {
            published = with_key_argument(&published);
        }
        let required = policy.filter(|policy| policy.idempotency == IdempotencyMode::Required);
        let key_input = required
            .map(|policy| policy.idempotency_argument.as_deref().unwrap_or(KEY_ARGUMENT).into());
        Found {
            digest: tool.definition.digest,
            schema: schema_of(&published),
            key_input,
            withheld: withheld(tool),
        }
    }
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
