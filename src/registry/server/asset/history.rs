//! The history of a server's tools in its file, as a store keeps it.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{Asset, AssetPin, AssetVersion, LIMITS};
use crate::{
    json::Doc,
    mcp::Family,
    registry::{
        definition,
        store::{HandedOn, History, Version},
    },
};

// === impl Asset ===

impl Asset {
    /// What is kept of the tools where the file comes from, as far as it has their definitions:
    /// what was approved there is only marked.
    pub fn handed_on(&self) -> Vec<HandedOn> {
        let listed = self.archive.iter().flat_map(|archive| archive.of(Family::Tools));
        let listed: HashMap<[u8; 32], &Bytes> = listed
            .filter_map(|raw| {
                let doc = Doc::parse(raw.clone(), &LIMITS).ok()?;
                Some((definition::digest(doc.root()), raw))
            })
            .collect();
        let handed = self.pins.iter().map(|pin| {
            let mut last = 0;
            let versions = pin.versions.iter().filter_map(|it| {
                last = it.version.unwrap_or(last + 1);
                let known = it.definition.as_ref().or_else(|| listed.get(&it.digest).copied());
                Some(Version {
                    version: last,
                    digest: it.digest,
                    definition: known?.clone(),
                    first_ms: it.seen_ms,
                    last_ms: it.seen_ms,
                    vouched: pin.approved == Some(it.digest),
                })
            });
            HandedOn { tool: pin.tool.clone(), versions: versions.collect() }
        });
        handed.filter(|handed| !handed.versions.is_empty()).collect()
    }
}

impl AssetPin {
    /// All that is kept of a tool. What is listed stands in the file already.
    pub fn of(tool: Arc<str>, history: &History, listed: &[Bytes]) -> Self {
        let versions = history.versions.iter().map(|it| AssetVersion {
            version: Some(it.version),
            digest: it.digest,
            seen_ms: it.first_ms,
            definition: (!listed.contains(&it.definition)).then(|| it.definition.clone()),
        });
        let approved = history.approved().map(|approved| approved.digest);
        Self { tool, versions: versions.collect(), approved }
    }

    /// Also what is listed and not kept yet: nobody has called it since.
    pub fn also(pins: &mut Vec<AssetPin>, tool: Arc<str>, digest: [u8; 32], seen_ms: u64) {
        let version = AssetVersion { version: None, digest, seen_ms, definition: None };
        match pins.iter_mut().find(|pin| pin.tool == tool) {
            Some(pin) if pin.versions.iter().any(|known| known.digest == digest) => {}
            Some(pin) => pin.versions.push(version),
            None => pins.push(AssetPin { tool, versions: vec![version], approved: None }),
        }
    }
}
