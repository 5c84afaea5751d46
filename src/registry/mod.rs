//! The registry: what each upstream has listed, pinned on first use, as one catalog.
//!
//! It keeps the last good listing when one fails, and the first form of a definition when it
//! changes under way. It does no input or output; `discovery` brings it the listings.

mod catalog;
mod definition;
mod key_argument;
mod param_header;
mod schema;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

pub use catalog::{Catalog, Definition, Listing, NAME_MAX, Tool};
pub use definition::{DefinitionFault, read_definition};
pub use key_argument::{KEY_ARGUMENT, take_key_argument, with_key_argument};
pub use param_header::{MarkFault, MarkedArguments, ParamHeader};
pub use schema::{ArgumentSchema, Mismatch, SchemaFault};

use crate::model::server::UpstreamName;

/// A tool whose server now describes it otherwise than when it was pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub tool: Arc<str>,
    pub pinned: [u8; 32],
    pub seen: [u8; 32],
}

/// What a listing changed.
#[derive(Debug, Default)]
pub struct Change {
    /// The catalog differs from the one before.
    pub changed: bool,
    /// Definitions that differ from their pins and were not taken over; only news.
    pub drifted: Vec<Drift>,
}

struct Server {
    name: UpstreamName,
    listing: Listing,
    /// The last good listing, in its order.
    current: Vec<Arc<Definition>>,
    /// The first form of every tool ever seen.
    pins: HashMap<Arc<str>, Arc<Definition>>,
    /// The last digest that was reported as drift, so that it is reported once.
    reported: HashMap<Arc<str>, [u8; 32]>,
}

/// The upstreams' listings, in configuration order.
pub struct Registry(Mutex<Vec<Server>>);

impl Registry {
    pub fn new(upstreams: impl IntoIterator<Item = UpstreamName>) -> Self {
        let servers = upstreams.into_iter().map(|name| Server {
            name,
            listing: Listing::Pending,
            current: Vec::new(),
            pins: HashMap::new(),
            reported: HashMap::new(),
        });
        Self(Mutex::new(servers.collect()))
    }

    /// Takes over a complete listing. A tool that is missing from it leaves at once; one that
    /// differs from its pin keeps its first form.
    pub fn listed(&self, upstream: &UpstreamName, definitions: Vec<Arc<Definition>>) -> Change {
        let mut servers = self.servers();
        let Some(server) = servers.iter_mut().find(|server| server.name == *upstream) else {
            return Change::default();
        };
        let mut change = Change::default();
        let mut current = Vec::with_capacity(definitions.len());
        for seen in definitions {
            let pinned =
                server.pins.entry(seen.name.clone()).or_insert_with(|| seen.clone()).clone();
            if pinned.digest == seen.digest {
                server.reported.remove(&seen.name);
            } else if server.reported.insert(seen.name.clone(), seen.digest) != Some(seen.digest) {
                change.drifted.push(Drift {
                    tool: seen.name.clone(),
                    pinned: pinned.digest,
                    seen: seen.digest,
                });
            }
            current.push(pinned);
        }
        let same = current.len() == server.current.len()
            && current.iter().zip(&server.current).all(|(a, b)| Arc::ptr_eq(a, b));
        change.changed = !same || server.listing != Listing::Listed;
        server.current = current;
        server.listing = Listing::Listed;
        change
    }

    /// A listing failed. Says whether that changes what callers are told: the last good listing
    /// stays as it is, only a server that was never listed has news.
    pub fn failed(&self, upstream: &UpstreamName, why: &str) -> bool {
        let mut servers = self.servers();
        let Some(server) = servers.iter_mut().find(|server| server.name == *upstream) else {
            return false;
        };
        let news = match &server.listing {
            Listing::Listed => false,
            Listing::Pending => true,
            Listing::Never(before) => &**before != why,
        };
        if news {
            server.listing = Listing::Never(why.into());
        }
        news
    }

    /// The catalog of everything listed so far.
    pub fn catalog(&self) -> Catalog {
        let servers = self.servers();
        Catalog::build(
            servers.iter().map(|server| {
                (server.name.clone(), server.listing.clone(), server.current.clone())
            }),
        )
    }

    fn servers(&self) -> std::sync::MutexGuard<'_, Vec<Server>> {
        // The list is replaced field by field with whole values: a panic leaves no half of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
