//! The registry: what each upstream has listed, its tools pinned, as one catalog.
//!
//! It keeps the last good listing when one fails, family by family, and of a tool's definitions
//! the one that was approved. It does no input or output; `discovery` brings it the listings, and
//! whoever asks a store of definitions brings it the answers.

mod catalog;
mod definition;
mod drift;
mod face;
mod item;
mod key_argument;
mod local;
mod look;
mod names;
mod param_header;
mod pin;
mod pins;
mod quality;
mod schema;
pub mod server;
mod stand_in;
pub mod store;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

pub use catalog::{Catalog, Known, KnownTool, Listing, Unfit};
pub use definition::{
    DIGEST_FORM, Definition, DefinitionFault, Entry, MAX_DEFINITION, read_definition, read_entry,
    read_kept, read_known,
};
pub use drift::{Difference, differences};
pub use face::{Face, FaceFault, FaceParameter, Faced, Unfilled, Vain};
pub use item::{Item, Tool};
pub use key_argument::{KEY_ARGUMENT, take_key_argument, with_key_argument};
pub use local::Local;
pub use look::Looks;
pub use names::{NAME_MAX, Names};
pub use param_header::{MarkFault, MarkedArguments, ParamHeader, without_marks};
pub use pin::{Care, Held, Pinning};
pub use pins::{Change, Drift, PinApproval, PinFault, PinPair, PinState, PinWish};
pub use quality::{Finding, Quality};
pub use schema::{ArgumentSchema, Mismatch, SchemaFault};
pub use stand_in::stands_in;

use self::pin::Pin;
use crate::{
    mcp::{Family, Served},
    model::server::UpstreamName,
};

struct Server {
    known: Known,
    /// Of the tools that are listed.
    pins: HashMap<Arc<str>, Pin>,
    /// Approvals of tools that are not listed, which a listing under way may not know of.
    late: HashMap<Arc<str>, store::Approved>,
    /// Faces as they were put on last: a catalog is built often, and they seldom change.
    faces: HashMap<Arc<str>, Worn>,
    looks: Looks,
}

/// A face that was put on a definition, or could not be.
struct Worn {
    definition: Arc<Definition>,
    face: Face,
    outcome: Result<Arc<Faced>, FaceFault>,
}

/// The upstreams' listings, in configuration order.
pub struct Registry {
    names: Names,
    servers: Mutex<Vec<Server>>,
}

impl Registry {
    pub fn new(upstreams: impl IntoIterator<Item = UpstreamName>) -> Self {
        Self::naming(Names::Always, upstreams)
    }

    /// With this way of naming things on the aggregate.
    pub fn naming(names: Names, upstreams: impl IntoIterator<Item = UpstreamName>) -> Self {
        let servers = upstreams.into_iter().map(|name| Server {
            known: Known::new(name),
            pins: HashMap::new(),
            late: HashMap::new(),
            faces: HashMap::new(),
            looks: Looks::default(),
        });
        Self { names, servers: Mutex::new(servers.collect()) }
    }

    /// Takes over what a server declared of itself. What it does not serve counts as listed, and
    /// as empty. Says whether anything changed.
    pub fn declared(
        &self,
        upstream: &UpstreamName,
        served: Served,
        instructions: Option<Arc<str>>,
    ) -> bool {
        self.with(upstream, false, |server| {
            let known = &mut server.known;
            let mut changed = known.served != Some(served) || known.instructions != instructions;
            known.served = Some(served);
            known.instructions = instructions;
            for family in Family::ALL {
                if !served.contains(family.capability()) {
                    changed |= known.empty(family);
                }
            }
            changed
        })
    }

    /// Takes over a complete listing of another family, as it is: there is nothing in it that
    /// could act. Says whether anything changed.
    pub fn listed_items(
        &self,
        upstream: &UpstreamName,
        family: Family,
        entries: Vec<Arc<Entry>>,
    ) -> bool {
        self.with(upstream, false, |server| server.known.listed_items(family, entries))
    }

    /// A listing of one family failed. Says whether that changes what callers are told: the last
    /// good listing stays as it is, only what was never listed has news.
    pub fn failed(&self, upstream: &UpstreamName, family: Family, why: &str) -> bool {
        self.with(upstream, false, |server| server.known.failed(family, why))
    }

    /// The catalog of everything listed so far, every tool in the form that was seen first.
    pub fn catalog(&self) -> Catalog {
        self.catalog_with(|_, _| Care::USUAL, |_, _| None)
    }

    /// The same, with such care for the tools, and with such faces.
    pub fn catalog_with(
        &self,
        care: impl Fn(&UpstreamName, &str) -> Care,
        face: impl Fn(&UpstreamName, &str) -> Option<Face>,
    ) -> Catalog {
        let mut servers = self.servers();
        let known: Vec<_> =
            servers.iter_mut().map(|server| server.published(&care, &face)).collect();
        drop(servers);
        Catalog::build(self.names, &known)
    }

    fn with<T>(
        &self,
        upstream: &UpstreamName,
        unknown: T,
        change: impl FnOnce(&mut Server) -> T,
    ) -> T {
        let mut servers = self.servers();
        match servers.iter_mut().find(|server| server.known.name == *upstream) {
            Some(server) => change(server),
            None => unknown,
        }
    }

    fn servers(&self) -> std::sync::MutexGuard<'_, Vec<Server>> {
        // The list is replaced field by field with whole values: a panic leaves no half of one.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// What is known of it, in the form in which it is published.
    fn published(
        &mut self,
        care: impl Fn(&UpstreamName, &str) -> Care,
        face: impl Fn(&UpstreamName, &str) -> Option<Face>,
    ) -> Known {
        let mut known = self.known.clone();
        let mut before = std::mem::take(&mut self.faces);
        for tool in &mut known.tools {
            let name = tool.definition.name.clone();
            if let Some(pin) = self.pins.get(&name) {
                let (definition, held) = pin.standing(care(&known.name, &name));
                (tool.definition, tool.held) = (definition.clone(), held);
            }
            if let Some(face) = face(&known.name, &name) {
                let own = &tool.definition;
                let same = |worn: &Worn| Arc::ptr_eq(&worn.definition, own) && worn.face == face;
                let worn = before.remove(&name).filter(same).unwrap_or_else(|| {
                    let outcome = Faced::new(own, &face).map(Arc::new);
                    Worn { definition: own.clone(), face, outcome }
                });
                tool.face = Some(worn.outcome.clone());
                self.faces.insert(name.clone(), worn);
            }
            let care = care(&known.name, &name);
            if tool.held.is_none() && self.is_poor(&tool.definition, care) {
                tool.held = Some(Held::Quality);
            }
        }
        known
    }

    /// Why a tool may not be called, if it may not.
    fn held(&self, pin: &Pin, care: Care) -> Option<Held> {
        let (definition, held) = pin.standing(care);
        held.or_else(|| self.is_poor(definition, care).then_some(Held::Quality))
    }

    /// Whether a definition, as it is published, is not as it has to be, and nobody wants it so.
    fn is_poor(&self, definition: &Arc<Definition>, care: Care) -> bool {
        if care.demand.is_nothing() {
            return false;
        }
        let worn = self.faces.get(&definition.name);
        let worn = worn.filter(|worn| Arc::ptr_eq(&worn.definition, definition));
        let faced = worn.and_then(|worn| worn.outcome.as_ref().ok());
        let quality = faced.map_or_else(|| definition.quality(), |faced| faced.quality());
        let is_wanted =
            || self.pins.get(&definition.name).is_some_and(|pin| pin.is_wanted(definition, care));
        quality.falls_short(care.demand).is_some() && !is_wanted()
    }
}

impl Known {
    /// Notes that a family is listed; says whether that is news.
    fn now_listed(&mut self, family: Family) -> bool {
        // What is listed is served, also where nobody said so before.
        self.served.get_or_insert(family.capability());
        std::mem::replace(&mut self.listings[family as usize], Listing::Listed) != Listing::Listed
    }

    fn listed_items(&mut self, family: Family, entries: Vec<Arc<Entry>>) -> bool {
        let news = self.now_listed(family);
        let current = match family {
            Family::Prompts => &mut self.prompts,
            Family::Resources => &mut self.resources,
            Family::Templates => &mut self.templates,
            // Tools are pinned, and come another way.
            Family::Tools => return news,
        };
        let changed = *current != entries;
        *current = entries;
        news || changed
    }

    /// A family that is not served.
    fn empty(&mut self, family: Family) -> bool {
        if family == Family::Tools {
            let had = !std::mem::take(&mut self.tools).is_empty();
            return self.now_listed(family) || had;
        }
        self.listed_items(family, Vec::new())
    }

    fn failed(&mut self, family: Family, why: &str) -> bool {
        let listing = &mut self.listings[family as usize];
        let news = match listing {
            Listing::Listed => false,
            Listing::Pending => true,
            Listing::Never(before) => &**before != why,
        };
        if news {
            *listing = Listing::Never(why.into());
        }
        news
    }
}

#[cfg(test)]
mod tests;
