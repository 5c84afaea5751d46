//! A server's description as a file without secrets, and registering what a file holds: such a
//! description, or the `mcpServers` of a desktop client.
//!
//! Each entry stands for itself, with a record of its own: one that cannot be registered says
//! why, and the others are. Nobody has vouched for what a description says that the server lists,
//! so it is asked itself. The history of its tools is taken over with its numbers, and approves
//! nothing: what another gateway had approved is marked, and where something was, nothing else is
//! approved here by being seen first.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::{HeaderMap, Response, header};
use serde::Serialize;
use tokio::time::Instant;

use super::{
    Asked, Servers,
    bring::{Brought, faulty},
    told,
};
use crate::{
    api::{answer, input},
    body::Body,
    error::Error,
    json::{Doc, Duplicates, Limits},
    mcp::Family,
    model::exchange::Outcome,
    registry::{
        read_known,
        server::{
            AssetPin, Imported, InputFault, NewServer, OptionLimits, read_asset, read_mcp_servers,
            write_asset,
        },
    },
};

/// How many servers of a file are asked at a time.
const AT_ONCE: usize = 8;

/// Of what servers list.
const LIMITS: Limits = Limits { depth: 520, duplicates: Duplicates::Allow, outline: 2 };

#[derive(Serialize)]
struct Told {
    servers: Vec<Entry>,
}

/// What became of one entry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// As the file calls it.
    name: String,
    /// `registered`, `replaced` or `refused`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_count: Option<usize>,
    /// It is asked once the employee has set one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    needs_credential: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
    /// What the file says of it that means nothing here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

#[derive(Serialize)]
struct Refused {
    code: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
}

impl Servers {
    pub(super) async fn import(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        input::is_json(&asked.headers)?;
        self.may_bring_any(&asked.person)?;
        let entries = self.read(asked).map_err(faulty)?;
        let told = stream::iter(entries).map(|entry| self.import_one(asked, entry));
        let servers = told.buffered(AT_ONCE).collect().await;
        told::written(&Told { servers })
    }

    fn read(&self, asked: &Asked) -> Result<Vec<Imported>, Vec<InputFault>> {
        let (file, registrant) = (asked.body.clone(), self.registrant(&asked.person));
        let is_asset = Doc::parse(file.clone(), &LIMITS).is_ok_and(|doc| {
            doc.root().get("mcpServers").is_none() && doc.root().get("server").is_some()
        });
        if !is_asset {
            return read_mcp_servers(file, &registrant);
        }
        let asset = read_asset(file, &registrant, &OptionLimits::default())?;
        let history = asset.handed_on();
        let registration = asset.registration;
        let name = registration.name.as_ref().unwrap_or(&registration.server_key).to_string();
        let new = NewServer { registration, secrets: None, history };
        Ok(vec![Imported { name, outcome: Ok(new), left_out: Vec::new() }])
    }

    /// The description of a server that the employee sees.
    pub(super) async fn asset(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let kept = self.look(asked).await?;
        let history = self.history(&kept.registration).await?;
        let listed = kept.archive.as_ref().map(|archive| archive.of(Family::Tools));
        let listed = listed.unwrap_or_default();
        let pins = history.into_iter().map(|(tool, of)| AssetPin::of(tool, &of, listed));
        let mut pins: Vec<_> = pins.collect();
        let listed_ms = kept.archive.as_ref().map_or(0, |archive| archive.listed_ms);
        for element in listed {
            let Ok(doc) = Doc::parse(element.clone(), &LIMITS) else { continue };
            if let Ok(read) = read_known(doc.root()) {
                AssetPin::also(&mut pins, read.name, read.digest, listed_ms);
            }
        }
        let file = write_asset(&kept, &pins);
        let mut response = answer(file.into());
        let name = format!("attachment; filename=\"{}.json\"", kept.registration.server_key);
        if let Ok(name) = name.try_into() {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
        }
        Ok(response)
    }

    async fn import_one(&self, asked: &Asked, entry: Imported) -> Entry {
        let Imported { name, outcome, left_out } = entry;
        let brought = match outcome {
            Err(faults) => Err(faulty(faults)),
            Ok(new) => {
                let part = asked.part(self.parts.clock.now_ms());
                let brought = self.bring(&part, new).await;
                let mut facts = part.exchange.facts();
                match &brought {
                    Ok(_) => facts.outcome = Some(Outcome::Ok),
                    Err(error) => facts.failed(error),
                }
                drop(facts);
                brought
            }
        };
        match brought {
            Ok(brought) => Entry::of(name, &brought, left_out),
            Err(error) => Entry {
                name,
                outcome: "refused",
                server_key: None,
                tool_count: None,
                needs_credential: false,
                error: Some(Refused {
                    code: error.code().as_str(),
                    message: error.message().to_owned(),
                    pointer: error.pointer().map(str::to_owned),
                }),
                left_out,
            },
        }
    }
}

impl Asked {
    /// The same for one of several, with a record of its own.
    fn part(&self, now_ms: u64) -> Asked {
        Asked {
            person: self.person.clone(),
            caller: self.caller.clone(),
            exchange: Arc::new(self.exchange.part(Instant::now(), now_ms)),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
            id: self.id.clone(),
        }
    }
}

impl Entry {
    fn of(name: String, brought: &Brought, left_out: Vec<String>) -> Self {
        let archive = brought.kept.archive.as_ref();
        Self {
            name,
            outcome: if brought.is_new { "registered" } else { "replaced" },
            server_key: Some(brought.kept.registration.server_key.to_string()),
            tool_count: archive.map(|archive| archive.of(Family::Tools).len()),
            needs_credential: brought.needs_credential,
            error: None,
            left_out,
        }
    }
}
