//! The registry's definitions of tools: what a listing changes of them, what a store is to keep,
//! and what comes back from there.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry as Place},
    sync::Arc,
};

use super::{
    Known, KnownTool, Registry, Server,
    definition::Definition,
    drift,
    pin::{Care, Held, Pin},
    server::declared_risk,
    store::{Approved, Digests, How, Kept, Scope, Seen, StoreFault, Which},
};
use crate::{
    mcp::Family,
    model::{
        change::ChangeClasses,
        server::{Risk, UpstreamName},
    },
};

/// A tool whose server describes it otherwise than before, or than was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub tool: Arc<str>,
    pub seen: [u8; 32],
    /// How it differs from what is approved; where nothing is, from what was listed before.
    pub classes: ChangeClasses,
}

/// What a listing changed.
#[derive(Debug, Default)]
pub struct Change {
    /// The catalog differs from the one before.
    pub changed: bool,
    /// Definitions that are others than those that were approved, or listed before.
    pub drifted: Vec<Drift>,
    /// Tools that a listing before did not have.
    pub added: Vec<Arc<str>>,
    /// Tools that are listed no more.
    pub removed: Vec<Arc<str>>,
}

/// How a tool that is listed stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinState {
    pub upstream: UpstreamName,
    pub tool: Arc<str>,
    pub care: Care,
    /// Digest of what is listed now.
    pub seen: [u8; 32],
    /// Its number among the tool's definitions; `None`: it could not be kept yet.
    pub version: Option<u64>,
    /// When it was seen first.
    pub first_ms: u64,
    pub approved: Option<PinApproval>,
    /// How the one differs from the other.
    pub drift: ChangeClasses,
    pub held: Option<Held>,
}

/// What is approved of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinApproval {
    pub digest: [u8; 32],
    pub version: u64,
    pub how: How,
    pub by: Box<str>,
    pub at_ms: u64,
}

/// Approvals between two listings that are remembered of tools that nobody lists.
const LATE: usize = 1_000;

/// An approval that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinWish {
    pub scope: Scope,
    /// As its upstream names it.
    pub tool: Arc<str>,
    pub which: Which,
    pub how: How,
}

/// Two definitions of a tool that somebody wants compared; where none is said, those that are
/// approved and listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinPair {
    pub scope: Scope,
    pub tool: Arc<str>,
    pub from: Option<Which>,
    pub to: Option<Which>,
}

/// Why nothing is done or told of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinFault {
    /// Nobody has seen such a definition.
    Unknown,
    /// There is nothing that it could be compared with.
    Alone,
    Store(StoreFault),
}

impl Registry {
    /// Takes over a complete listing of tools without a store: what is seen first is what is
    /// approved first. A tool that is missing from it leaves at once.
    pub fn listed(&self, upstream: &UpstreamName, definitions: Vec<Arc<Definition>>) -> Change {
        self.with(upstream, Change::default(), |server| {
            server.listed(definitions, Pin::approve_first)
        })
    }

    /// The same, with what a store keeps of what is new in it. Of what the store does not know
    /// nothing is approved.
    pub fn listed_kept(
        &self,
        upstream: &UpstreamName,
        definitions: Vec<Arc<Definition>>,
        kept: &[Kept],
    ) -> Change {
        let kept: HashMap<&str, &Kept> = kept.iter().map(|kept| (&*kept.tool, kept)).collect();
        self.with(upstream, Change::default(), |server| {
            server.listed(definitions, |pin| {
                kept.get(&*pin.seen.name).is_some_and(|kept| pin.settle(kept))
            })
        })
    }

    /// What a store is to be asked about before these are taken over: most listings bring nothing
    /// new.
    pub fn unsettled_of(
        &self,
        upstream: &UpstreamName,
        definitions: &[Arc<Definition>],
        care: impl Fn(&UpstreamName, &str) -> Care,
    ) -> Vec<Seen> {
        self.with(upstream, Vec::new(), |server| {
            let news = definitions.iter().filter(|definition| {
                let pin = server.pins.get(&definition.name);
                pin.is_none_or(|pin| {
                    pin.seen.digest != definition.digest
                        || pin.is_unsettled(|| care(upstream, &definition.name))
                })
            });
            news.map(|news| seen(news, care(upstream, &news.name))).collect()
        })
    }

    /// What a store is to be asked about of all that is listed.
    pub fn unsettled(
        &self,
        care: impl Fn(&UpstreamName, &str) -> Care,
    ) -> Vec<(UpstreamName, Vec<Seen>)> {
        let servers = self.servers();
        let of = |server: &Server| {
            let name = &server.known.name;
            let news =
                server.pins.iter().filter(|(tool, pin)| pin.is_unsettled(|| care(name, tool)));
            let news = news.map(|(tool, pin)| seen(&pin.seen, care(name, tool)));
            (name.clone(), news.collect::<Vec<_>>())
        };
        servers.iter().map(of).filter(|(_, news)| !news.is_empty()).collect()
    }

    /// Takes over what a store keeps; says whether that changes anything.
    pub fn settle(&self, upstream: &UpstreamName, kept: &[Kept]) -> bool {
        self.with(upstream, false, |server| {
            let mut changed = false;
            for kept in kept {
                if let Some(pin) = server.pins.get_mut(&kept.tool) {
                    changed |= pin.settle(kept);
                }
            }
            changed
        })
    }

    /// Takes over an approval; says whether it changes anything. One of a tool that nobody lists
    /// changes nothing: the store is asked when somebody does.
    pub fn approve(&self, approved: &Approved) -> bool {
        let mut servers = self.servers();
        let mut server = servers.iter_mut().filter(|server| approved.scope.is(&server.known.name));
        let Some(server) = server.next() else { return false };
        match server.pins.get_mut(&approved.tool) {
            Some(pin) => pin.approve(approved),
            None => {
                // Whoever asked the store before it was written is told here.
                if approved.how.is_somebodys() && server.late.len() < LATE {
                    server.late.insert(approved.tool.clone(), approved.clone());
                }
                false
            }
        }
    }

    /// Every upstream's tools with what is listed of them.
    pub fn listed_now(&self) -> Vec<(Scope, Digests)> {
        let listed = |server: &Server| {
            let pins = server.pins.iter().map(|(tool, pin)| (tool.clone(), pin.seen.digest));
            (Scope::upstream(&server.known.name), pins.collect())
        };
        self.servers().iter().map(listed).collect()
    }

    /// The least risk of each tool, by what its server says of it now.
    pub fn said_risks(&self) -> HashMap<UpstreamName, HashMap<Arc<str>, Risk>> {
        let said =
            |(tool, pin): (&Arc<str>, &Pin)| Some((tool.clone(), declared_risk(&pin.seen.raw)?));
        let servers = self.servers();
        let of = |server: &Server| {
            (server.known.name.clone(), server.pins.iter().filter_map(said).collect())
        };
        servers.iter().map(of).collect()
    }

    /// How every tool that is listed stands, by upstream and name.
    pub fn pins(&self, care: impl Fn(&UpstreamName, &str) -> Care) -> Vec<PinState> {
        let mut all = Vec::new();
        for server in self.servers().iter() {
            let care = |tool: &str| care(&server.known.name, tool);
            all.extend(server.pins.iter().map(|(tool, pin)| state(server, pin, care(tool))));
        }
        all.sort_by(|a, b| (&a.upstream, &a.tool).cmp(&(&b.upstream, &b.tool)));
        all
    }

    /// How one tool that is listed stands, and its definition as it is listed.
    pub fn pin(
        &self,
        upstream: &UpstreamName,
        tool: &str,
        care: Care,
    ) -> Option<(PinState, Arc<Definition>)> {
        self.with(upstream, None, |server| {
            let pin = server.pins.get(tool)?;
            Some((state(server, pin, care), pin.seen.clone()))
        })
    }
}

fn seen(definition: &Definition, care: Care) -> Seen {
    Seen {
        tool: definition.name.clone(),
        digest: definition.digest,
        definition: definition.raw.clone(),
        first_use: care.takes_first(),
    }
}

fn state(server: &Server, pin: &Pin, care: Care) -> PinState {
    PinState {
        upstream: server.known.name.clone(),
        tool: pin.seen.name.clone(),
        care,
        seen: pin.seen.digest,
        version: pin.version,
        first_ms: pin.first_ms,
        approved: pin.given(care).map(|given| PinApproval {
            digest: given.definition.digest,
            version: given.version,
            how: given.how,
            by: given.by.clone(),
            at_ms: given.at_ms,
        }),
        drift: pin.drift(),
        held: server.held(pin, care),
    }
}

impl Server {
    /// Takes over a listing; `settle` brings what is kept of a tool, and says whether that is news.
    fn listed(
        &mut self,
        definitions: Vec<Arc<Definition>>,
        settle: impl Fn(&mut Pin) -> bool,
    ) -> Change {
        let mut change = Change::default();
        let is_first = !self.known.is_listed();
        let mut news = definitions.len() != self.known.tools.len();
        let mut current = Vec::with_capacity(definitions.len());
        for (index, seen) in definitions.into_iter().enumerate() {
            let tool = KnownTool::new(seen.clone());
            let before = self.known.tools.get(index);
            news |= before.is_none_or(|before| before.definition.name != seen.name);
            let (digest, name) = (seen.digest, seen.name.clone());
            match self.pins.entry(name.clone()) {
                Place::Vacant(place) => {
                    let pin = place.insert(Pin::new(seen));
                    settle(pin);
                    if let Some(late) = self.late.get(&name) {
                        pin.approve(late);
                    }
                    let classes = pin.drift();
                    if classes != ChangeClasses::NONE {
                        change.drifted.push(Drift { tool: name.clone(), seen: digest, classes });
                    }
                    if !is_first {
                        change.added.push(name);
                    }
                }
                Place::Occupied(mut place) => {
                    let pin = place.get_mut();
                    let before = pin.seen.clone();
                    if pin.see(seen) {
                        news = true;
                        settle(pin);
                        let classes = match pin.drift() {
                            ChangeClasses::NONE => drift::classes(&before, &pin.seen),
                            classes => classes,
                        };
                        change.drifted.push(Drift { tool: name, seen: digest, classes });
                    } else {
                        news |= settle(pin);
                    }
                }
            }
            current.push(tool);
        }
        self.leave(&current, &mut change);
        self.late.clear();
        change.changed = self.known.now_listed(Family::Tools) || news;
        self.known.tools = current;
        change
    }

    /// What is not listed any more is forgotten here; a store remembers it.
    fn leave(&mut self, current: &[KnownTool], change: &mut Change) {
        if self.pins.len() == current.len() {
            return;
        }
        let listed: HashSet<&str> = current.iter().map(|tool| &*tool.definition.name).collect();
        let gone = self.pins.keys().filter(|tool| !listed.contains(&***tool));
        change.removed = gone.cloned().collect();
        for tool in &change.removed {
            self.pins.remove(tool);
        }
    }
}

impl Known {
    fn is_listed(&self) -> bool {
        self.listings[Family::Tools as usize] == super::Listing::Listed
    }
}
