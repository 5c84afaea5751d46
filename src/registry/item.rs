//! What is published: tools, and prompts, resources and templates, with the names they have on
//! each surface. How names are chosen is not decided here.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    catalog::KnownTool,
    definition::{Definition, Entry},
    face::Faced,
    pin::Held,
    quality::Quality,
};
use crate::{
    mcp::Family,
    model::{call::Surface, server::UpstreamName},
};

/// A published tool.
#[derive(Debug)]
pub struct Tool {
    /// Its place in the catalog, in the one space of indices that all families share.
    pub index: usize,
    pub upstream: UpstreamName,
    /// Position of its upstream in the configuration.
    pub upstream_index: usize,
    pub definition: Arc<Definition>,
    /// Why it may not be called, whatever policy allows.
    pub held: Option<Held>,
    /// Of the definition that its server lists now, which may be another than is published.
    pub seen: [u8; 32],
    /// What is published of it instead, if anything is.
    pub face: Option<Arc<Faced>>,
    /// Its name on the aggregate.
    pub alias: Arc<str>,
    /// Whether the aggregate has it; where plain names collide, one upstream's is left out.
    pub on_aggregate: bool,
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

    /// What is wrong with the definition as it is published.
    pub fn quality(&self) -> &Quality {
        self.face.as_ref().map_or_else(|| self.definition.quality(), |face| face.quality())
    }

    /// The name on a surface.
    pub fn name_on(&self, surface: &Surface) -> &Arc<str> {
        match surface {
            Surface::Aggregate => &self.alias,
            Surface::Upstream(_) => self.own_path_name(),
        }
    }

    /// The name on its upstream's own path.
    pub fn own_path_name(&self) -> &Arc<str> {
        self.face.as_ref().map_or(&self.definition.name, |face| &face.name)
    }

    /// The definition as a surface publishes it.
    pub fn published(&self, surface: &Surface) -> &Bytes {
        match surface {
            Surface::Aggregate => &self.alias_raw,
            Surface::Upstream(_) => self.face.as_ref().map_or(&self.definition.raw, |f| &f.raw),
        }
    }
}

/// A published prompt, resource or resource template.
#[derive(Debug)]
pub struct Item {
    /// Its place in the catalog, in the one space of indices that all families share.
    pub index: usize,
    pub family: Family,
    pub upstream: UpstreamName,
    /// Position of its upstream in the configuration.
    pub upstream_index: usize,
    /// As its upstream names it: the name, the URI, the template.
    pub own: Arc<str>,
    /// The same on the aggregate.
    pub alias: Arc<str>,
    /// Whether the aggregate has it; where plain names collide, one upstream's is left out.
    pub on_aggregate: bool,
    /// `upstream/own`, as records and globs write it.
    pub qualified: Arc<str>,
    /// The whole JSON object, as its server sent it.
    pub raw: Bytes,
    /// The same under the aggregate's name.
    pub alias_raw: Bytes,
}

impl Item {
    /// The name on a surface.
    pub fn name_on(&self, surface: &Surface) -> &Arc<str> {
        match surface {
            Surface::Aggregate => &self.alias,
            Surface::Upstream(_) => &self.own,
        }
    }

    /// The object as a surface publishes it.
    pub fn published(&self, surface: &Surface) -> &Bytes {
        match surface {
            Surface::Aggregate => &self.alias_raw,
            Surface::Upstream(_) => &self.raw,
        }
    }
}

/// Where something stands in a catalog, and under which names.
pub(super) struct Placed<'a> {
    pub index: usize,
    pub upstream: &'a UpstreamName,
    pub upstream_index: usize,
    pub alias: Arc<str>,
    pub on_aggregate: bool,
}

impl Placed<'_> {
    pub fn tool(self, known: &KnownTool, face: Option<Arc<Faced>>) -> Tool {
        let KnownTool { definition, held, seen, .. } = known;
        let alias_raw = match &face {
            Some(face) => face.renamed(&self.alias),
            None => definition.renamed(&self.alias),
        };
        Tool {
            index: self.index,
            upstream: self.upstream.clone(),
            upstream_index: self.upstream_index,
            qualified: format!("{}/{}", self.upstream, definition.name).into(),
            alias_raw,
            alias: self.alias,
            on_aggregate: self.on_aggregate,
            definition: definition.clone(),
            held: *held,
            seen: *seen,
            face,
        }
    }

    pub fn item(self, entry: &Entry) -> Item {
        Item {
            index: self.index,
            family: entry.family,
            upstream: self.upstream.clone(),
            upstream_index: self.upstream_index,
            own: entry.own.clone(),
            qualified: format!("{}/{}", self.upstream, entry.own).into(),
            raw: entry.raw.clone(),
            alias_raw: entry.renamed(&self.alias),
            alias: self.alias,
            on_aggregate: self.on_aggregate,
        }
    }
}
