//! The registry: what each upstream has listed, its tools pinned, as one catalog.
//!
//! It keeps the last good listing when one fails, family by family, and of a tool's definitions
//! the one that was approved. It does no input or output; `discovery` brings it the listings.

mod catalog;
mod definition;
mod face;
mod item;
mod key_argument;
mod names;
mod param_header;
mod pin;
mod schema;
pub mod server;
mod stand_in;
pub mod store;

use std::{
    collections::{HashMap, hash_map::Entry as Place},
    sync::{Arc, Mutex, PoisonError},
};

pub use catalog::{Catalog, Known, KnownTool, Listing, Unfit};
pub use definition::{Definition, DefinitionFault, Entry, read_definition, read_entry};
pub use face::{Face, FaceFault, FaceParameter, Faced, Unfilled, Vain};
pub use item::{Item, Tool};
pub use key_argument::{KEY_ARGUMENT, take_key_argument, with_key_argument};
pub use names::{NAME_MAX, Names};
pub use param_header::{MarkFault, MarkedArguments, ParamHeader, without_marks};
pub use pin::{Care, Held, Pinning};
pub use schema::{ArgumentSchema, Mismatch, SchemaFault};
pub use stand_in::stands_in;

use self::{
    pin::{Given, Pin},
    store::{Approved, StoreFault},
};
use crate::{
    json,
    mcp::{Family, Served},
    model::server::UpstreamName,
};

/// A tool whose server now describes it otherwise than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub tool: Arc<str>,
    pub seen: [u8; 32],
}

/// What a listing changed.
#[derive(Debug, Default)]
pub struct Change {
    /// The catalog differs from the one before.
    pub changed: bool,
    /// Definitions that are others than when they were seen first.
    pub drifted: Vec<Drift>,
}

/// One definition of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinChoice {
    pub upstream: UpstreamName,
    /// As its upstream names it.
    pub tool: Arc<str>,
    pub digest: [u8; 32],
}

/// Why a definition was not approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotApproved {
    /// Nobody has seen such a definition.
    Unknown,
    Store(StoreFault),
}

/// How a tool stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinState {
    pub upstream: UpstreamName,
    pub tool: Arc<str>,
    pub care: Care,
    /// Digest of what is listed now.
    pub seen: [u8; 32],
    /// Digest of what somebody approved.
    pub approved: Option<[u8; 32]>,
    /// Who did, and when.
    pub approval: Option<(Box<str>, u64)>,
    pub held: Option<Held>,
}

struct Server {
    known: Known,
    /// Of every tool ever seen.
    pins: HashMap<Arc<str>, Pin>,
    /// What somebody approved, of whatever tools.
    given: HashMap<Arc<str>, Given>,
    /// Faces as they were put on last: a catalog is built often, and they seldom change.
    faces: HashMap<Arc<str>, Worn>,
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
            given: HashMap::new(),
            faces: HashMap::new(),
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

    /// Takes over a complete listing of tools. A tool that is missing from it leaves at once.
    pub fn listed(&self, upstream: &UpstreamName, definitions: Vec<Arc<Definition>>) -> Change {
        self.with(upstream, Change::default(), |server| server.listed(definitions))
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

    /// Approves a definition of a tool; `false` where there is no such definition.
    pub fn approve(&self, choice: &PinChoice, by: &str, at_ms: u64) -> bool {
        self.with(&choice.upstream, false, |server| {
            let known = server.pins.get(&choice.tool).and_then(|pin| pin.of(choice.digest));
            let Some(definition) = known.cloned() else { return false };
            let given = Given { definition, by: by.into(), at_ms };
            server.given.insert(choice.tool.clone(), given);
            true
        })
    }

    /// What is to be kept of an approval that is about to be given; nothing where there is no such
    /// definition.
    pub fn to_approve(&self, choice: &PinChoice, by: &str, at_ms: u64) -> Option<Approved> {
        self.with(&choice.upstream, None, |server| {
            let definition = server.pins.get(&choice.tool)?.of(choice.digest)?;
            Some(Approved {
                upstream: choice.upstream.clone(),
                tool: choice.tool.clone(),
                definition: definition.raw.clone(),
                by: by.into(),
                at_ms,
            })
        })
    }

    /// Takes over what was approved before the process began. What cannot be read any more is as
    /// good as not approved; its name is given back.
    pub fn restore(&self, approved: Vec<Approved>) -> Vec<String> {
        let mut unread = Vec::new();
        for Approved { upstream, tool, definition, by, at_ms } in approved {
            let limits =
                json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 2 };
            let read = json::Doc::parse(definition, &limits)
                .ok()
                .and_then(|doc| read_definition(doc.root()).ok());
            let Some(definition) = read.filter(|read| read.name == tool) else {
                unread.push(format!("{upstream}/{tool}"));
                continue;
            };
            let given = Given { definition: Arc::new(definition), by, at_ms };
            self.with(&upstream, (), |server| _ = server.given.insert(tool, given));
        }
        unread
    }

    /// How every tool that was ever seen stands, by upstream and name.
    pub fn pins(&self, care: impl Fn(&UpstreamName, &str) -> Care) -> Vec<PinState> {
        let mut all = Vec::new();
        for server in self.servers().iter() {
            let name = &server.known.name;
            for (tool, pin) in &server.pins {
                let (care, given) = (care(name, tool), server.given.get(tool));
                let approval = given.map(|given| (given.by.clone(), given.at_ms));
                all.push(PinState {
                    upstream: name.clone(),
                    tool: tool.clone(),
                    care,
                    seen: pin.seen(),
                    approved: given.map(|given| given.definition.digest),
                    approval,
                    held: pin.standing(care, given).1,
                });
            }
        }
        all.sort_by(|a, b| (&a.upstream, &a.tool).cmp(&(&b.upstream, &b.tool)));
        all
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
                let (definition, held) =
                    pin.standing(care(&known.name, &name), self.given.get(&name));
                (tool.definition, tool.held) = (definition.clone(), held);
            }
            let Some(face) = face(&known.name, &name) else { continue };
            let own = &tool.definition;
            let same = |worn: &Worn| Arc::ptr_eq(&worn.definition, own) && worn.face == face;
            let worn = before.remove(&name).filter(same).unwrap_or_else(|| {
                let outcome = Faced::new(own, &face).map(Arc::new);
                Worn { definition: own.clone(), face, outcome }
            });
            tool.face = Some(worn.outcome.clone());
            self.faces.insert(name, worn);
        }
        known
    }

    fn listed(&mut self, definitions: Vec<Arc<Definition>>) -> Change {
        let mut change = Change::default();
        let mut news = definitions.len() != self.known.tools.len();
        let mut current = Vec::with_capacity(definitions.len());
        for (index, seen) in definitions.into_iter().enumerate() {
            let tool = KnownTool::new(seen.clone());
            news |= self
                .known
                .tools
                .get(index)
                .is_none_or(|before| before.definition.name != seen.name);
            match self.pins.entry(seen.name.clone()) {
                Place::Vacant(place) => _ = place.insert(Pin::new(seen)),
                Place::Occupied(mut pin) => {
                    let digest = seen.digest;
                    if pin.get_mut().see(seen) {
                        news = true;
                        change.drifted.push(Drift { tool: pin.key().clone(), seen: digest });
                    }
                }
            }
            current.push(tool);
        }
        change.changed = self.known.now_listed(Family::Tools) || news;
        self.known.tools = current;
        change
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
