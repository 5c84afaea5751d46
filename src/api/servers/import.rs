//! Registering what a file holds: the `mcpServers` of a desktop client.
//!
//! Each entry stands for itself, with a record of its own: one that cannot be registered says
//! why, and the others are.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::{HeaderMap, Response};
use serde::Serialize;
use tokio::time::Instant;

use super::{
    Asked, Servers,
    bring::{Brought, faulty},
    told,
};
use crate::{
    api::input,
    body::Body,
    error::Error,
    model::exchange::Outcome,
    registry::server::{Imported, read_mcp_servers},
};

/// How many servers of a file are asked at a time.
const AT_ONCE: usize = 8;

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
        let registrant = self.registrant(&asked.person);
        let entries = read_mcp_servers(asked.body.clone(), &registrant).map_err(faulty)?;
        let told = stream::iter(entries).map(|entry| self.import_one(asked, entry));
        let servers = told.buffered(AT_ONCE).collect().await;
        told::written(&Told { servers })
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
            tool_count: archive.map(|archive| archive.of(crate::mcp::Family::Tools).len()),
            error: None,
            left_out,
        }
    }
}
