//! The catalog: every tool of every upstream as it may be published, immutable and swapped whole.
//!
//! It resolves names by table and never by splitting them. It knows nothing of who may see what.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{param_header::ParamHeader, schema::ArgumentSchema};
use crate::model::{call::Surface, server::UpstreamName, trace::to_hex};

/// The longest name that every client takes.
pub const NAME_MAX: usize = 64;
/// Between an upstream's name and a tool's, on the aggregate.
const SEPARATOR: &str = "__";

/// A tool's definition as its server sent it, read and pinned.
#[derive(Debug)]
pub struct Definition {
    pub name: Arc<str>,
    /// The whole JSON object.
    pub raw: Bytes,
    /// SHA-256 over the canonical definition.
    pub digest: [u8; 32],
    pub arguments: ArgumentSchema,
    /// Arguments that requests of 2026-07-28 repeat in headers.
    pub params: Box<[ParamHeader]>,
    pub has_output_schema: bool,
    /// The tool itself has an argument named as the gateway's for the idempotency key.
    pub has_key_argument: bool,
    /// Where the value of `name` stands in `raw`.
    pub(super) name_span: std::ops::Range<usize>,
}

/// A published tool.
#[derive(Debug)]
pub struct Tool {
    /// Its place in the catalog.
    pub index: usize,
    pub upstream: UpstreamName,
    /// Position of its upstream in the configuration.
    pub upstream_index: usize,
    pub definition: Arc<Definition>,
    /// Its name on the aggregate.
    pub alias: Arc<str>,
    /// `upstream/name`, as records and globs write it.
    pub qualified: Arc<str>,
    /// The definition under the aggregate's name.
    pub alias_raw: Bytes,
}

impl Tool {
    /// The upstream's own name.
    pub fn name(&self) -> &Arc<str> {
        &self.definition.name
    }

    /// The name on a surface.
    pub fn name_on(&self, surface: &Surface) -> &Arc<str> {
        match surface {
            Surface::Aggregate => &self.alias,
            Surface::Upstream(_) => &self.definition.name,
        }
    }

    /// The definition as a surface publishes it.
    pub fn published(&self, surface: &Surface) -> &Bytes {
        match surface {
            Surface::Aggregate => &self.alias_raw,
            Surface::Upstream(_) => &self.definition.raw,
        }
    }
}

/// How far the gateway got with an upstream's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// The first attempt is still under way.
    Pending,
    /// It has been listed at least once; the last good listing is what the catalog holds.
    Listed,
    /// No listing has ever succeeded; the text is for callers and names no address.
    Never(Arc<str>),
}

#[derive(Debug)]
struct Section {
    name: UpstreamName,
    listing: Listing,
    by_name: HashMap<Arc<str>, usize>,
}

/// Every tool, in the order of the upstreams in the configuration and theirs within.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    by_alias: HashMap<Arc<str>, usize>,
    sections: Vec<Section>,
}

impl Catalog {
    /// Builds the catalog from each upstream's definitions, in configuration order.
    pub fn build(
        upstreams: impl IntoIterator<Item = (UpstreamName, Listing, Vec<Arc<Definition>>)>,
    ) -> Self {
        let mut catalog = Catalog::default();
        for (upstream_index, (upstream, listing, definitions)) in upstreams.into_iter().enumerate()
        {
            let mut by_name = HashMap::with_capacity(definitions.len());
            for definition in definitions {
                let index = catalog.tools.len();
                let alias: Arc<str> = alias(&upstream, &definition.name).into();
                let tool = Tool {
                    index,
                    upstream: upstream.clone(),
                    upstream_index,
                    qualified: format!("{upstream}/{}", definition.name).into(),
                    alias_raw: renamed(&definition, &alias),
                    alias: alias.clone(),
                    definition: definition.clone(),
                };
                by_name.insert(definition.name.clone(), index);
                catalog.by_alias.insert(alias, index);
                catalog.tools.push(Arc::new(tool));
            }
            catalog.sections.push(Section { name: upstream, listing, by_name });
        }
        catalog
    }

    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// The tools of a surface, in catalog order.
    pub fn on<'a>(&'a self, surface: &'a Surface) -> impl Iterator<Item = &'a Arc<Tool>> {
        self.tools.iter().filter(move |tool| match surface {
            Surface::Aggregate => true,
            Surface::Upstream(name) => tool.upstream == *name,
        })
    }

    /// The tool that a surface publishes under a name.
    pub fn resolve(&self, surface: &Surface, name: &str) -> Option<&Arc<Tool>> {
        let index = match surface {
            Surface::Aggregate => self.by_alias.get(name),
            Surface::Upstream(upstream) => self.section(upstream)?.by_name.get(name),
        }?;
        self.tools.get(*index)
    }

    /// Whether there is such an upstream.
    pub fn knows(&self, upstream: &UpstreamName) -> bool {
        self.section(upstream).is_some()
    }

    pub fn listing(&self, upstream: &UpstreamName) -> Option<&Listing> {
        self.section(upstream).map(|section| &section.listing)
    }

    /// The upstreams of a surface and how far their listings got.
    pub fn listings<'a>(
        &'a self,
        surface: &'a Surface,
    ) -> impl Iterator<Item = (&'a UpstreamName, &'a Listing)> {
        self.sections
            .iter()
            .filter(move |section| match surface {
                Surface::Aggregate => true,
                Surface::Upstream(name) => section.name == *name,
            })
            .map(|section| (&section.name, &section.listing))
    }

    /// The upstream that a name on the aggregate would belong to, were its tools known. Only for
    /// telling that an upstream has never been listed: a listed tool is found by table.
    pub fn prefix_owner(&self, alias: &str) -> Option<(&UpstreamName, &Listing)> {
        self.sections
            .iter()
            .filter(|section| {
                alias
                    .strip_prefix(section.name.as_str())
                    .is_some_and(|rest| rest.starts_with(SEPARATOR))
            })
            .max_by_key(|section| section.name.as_str().len())
            .map(|section| (&section.name, &section.listing))
    }

    fn section(&self, upstream: &UpstreamName) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == *upstream)
    }
}

/// `upstream__tool`, or where that is no name that every client takes, a name with a stable hash.
///
/// A hash is also given to a name that already ends as such a hash would, and to one that holds
/// the separator where an upstream's name could be read into it, so that no two tools share one.
fn alias(upstream: &UpstreamName, tool: &str) -> String {
    let plain = format!("{upstream}{SEPARATOR}{tool}");
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if plain.len() <= NAME_MAX && !tool.is_empty() && plain.chars().all(legal) && !hashed(tool) {
        return plain;
    }
    let digest = Sha256::digest(tool.as_bytes());
    let hash = to_hex(&digest[..4]);
    let mut name: String = plain.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    name.truncate(NAME_MAX - 1 - hash.len());
    format!("{name}_{hash}")
}

/// Whether a tool's own name ends as a hashed one does: only then could the two meet.
fn hashed(tool: &str) -> bool {
    let Some((_, end)) = tool.rsplit_once('_') else { return false };
    end.len() == 8 && end.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
}

fn renamed(definition: &Definition, alias: &str) -> Bytes {
    let raw = &definition.raw;
    let (head, tail) = (&raw[..definition.name_span.start], &raw[definition.name_span.end..]);
    let mut out = Vec::with_capacity(raw.len() + alias.len());
    out.extend_from_slice(head);
    out.push(b'"');
    out.extend_from_slice(alias.as_bytes());
    out.push(b'"');
    out.extend_from_slice(tail);
    out.into()
}
