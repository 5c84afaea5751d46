//! Servers and tools as operators see them: the upstreams, the registry and the policies in
//! force, together.

use serde_json::{Value, json};

use super::{admin::Operations, world::Governed};
use crate::{
    admin::Probes,
    mcp::Family,
    model::{ids, quality::Flaw, server::DialectKind},
    policy::{Policies, Subject},
    registry::{Care, Held, Listing, Quality, Tool},
    stack::stage::{Era, Upstream},
};

/// What a tool is held for, in a word.
pub(super) fn held_word(held: Held) -> &'static str {
    match held {
        Held::New => "new",
        Held::Unkept => "unkept",
        Held::Changed => "changed",
        Held::Quality => "quality",
    }
}

pub(super) fn digest_text(digest: [u8; 32]) -> String {
    let digits: [u8; 64] = ids::hex(digest);
    format!("sha256:{}", String::from_utf8_lossy(&digits))
}

/// Every server, in the order of the configuration.
pub(super) fn servers(operations: &Operations) -> Vec<Value> {
    let health = operations.probes.upstreams();
    let upstreams = operations.probes.upstreams.iter().zip(health);
    let told = upstreams.map(|(upstream, health)| {
        let mut told = server(upstream, &operations.governed);
        told["up"] = health.up.into();
        told["state"] = health.state.into();
        told
    });
    told.collect()
}

fn server(upstream: &Upstream, governed: &Governed) -> Value {
    let known = governed.registry().known(&upstream.name);
    let (known, looks) = known.unzip();
    let looks = looks.unwrap_or_default();
    let listing = known.as_ref().and_then(|known| known.listings.get(Family::Tools as usize));
    let introduced = upstream.introduced();
    let dialect = match upstream.dialect {
        DialectKind::Auto => "auto",
        DialectKind::McpLite => "mcp-lite",
        DialectKind::StreamableHttp => "streamable-http",
        DialectKind::HttpSse => "sse",
        DialectKind::Stdio => "stdio",
    };
    let era = upstream.era();
    // What was agreed on says more than the era.
    let revision = match era {
        Some(Era::Modern(version)) => Some(version),
        Some(Era::Legacy) => introduced.as_ref().and_then(|it| it.revision),
        Some(Era::Lite) | None => None,
    };
    json!({
        "upstream": upstream.name.as_str(),
        "serverKey": &*upstream.server_key,
        "name": introduced.as_ref().and_then(|it| it.name.as_deref()),
        "version": introduced.as_ref().and_then(|it| it.version.as_deref()),
        "era": era.map(Era::as_str),
        "revision": revision.map(|version| version.as_str()),
        "dialect": dialect,
        "listing": listing.map(|listing| match listing {
            Listing::Pending => "pending",
            Listing::Listed => "listed",
            Listing::Never(_) => "never",
        }),
        "listedAtMs": looks.listed_ms,
        "stale": looks.is_stale(),
        "lastError": looks.failed.as_ref().map(|(at_ms, why)| json!({
            "atMs": at_ms,
            "message": &**why,
        })),
        "tools": known.as_ref().map_or(0, |known| known.tools.len()),
    })
}

/// Every tool that is listed, in the order of the catalog.
pub(super) fn tools(operations: &Operations) -> Vec<Value> {
    let catalog = operations.governed.worlds.current().catalog.clone();
    let policies = operations.governed.policies();
    catalog.tools().iter().map(|it| tool(it, &policies, operations)).collect()
}

/// The tools of this name, on the aggregate or their server's own, with all that is known.
pub(super) fn named(name: &str, operations: &Operations) -> Vec<Value> {
    let catalog = operations.governed.worlds.current().catalog.clone();
    let policies = operations.governed.policies();
    let by_alias = catalog.tools().iter().filter(|it| it.on_aggregate && *it.alias == *name);
    let mut found: Vec<_> = by_alias.collect();
    if found.is_empty() {
        found = catalog.tools().iter().filter(|it| **it.name() == *name).collect();
    }
    let whole = |it: &&std::sync::Arc<Tool>| {
        let mut told = tool(it, &policies, operations);
        let (definition, quality) = (&it.definition, it.quality());
        told["definition"] = serde_json::from_slice(&definition.raw).unwrap_or_default();
        told["quality"] = quality_value(quality);
        told
    };
    found.iter().map(whole).collect()
}

fn tool(tool: &Tool, policies: &Policies, operations: &Operations) -> Value {
    let policy = policies.item(Subject::tool(tool.upstream.as_str(), tool.name()));
    let quality = tool.quality();
    let server = operations.probes.upstreams.get(tool.upstream_index);
    // Of what is published, which is the one that is listed or the one that is approved.
    let pin = operations.governed.registry().pin(&tool.upstream, tool.name(), Care::USUAL);
    let ordinal = pin.and_then(|(pin, _)| match pin.seen == tool.definition.digest {
        true => pin.version,
        false => pin.approved.map(|approved| approved.version),
    });
    json!({
        "upstream": tool.upstream.as_str(),
        "serverKey": server.map(|upstream| &*upstream.server_key),
        "tool": &**tool.name(),
        "published": tool.on_aggregate.then_some(&*tool.alias),
        "risk": policy.risk.as_str(),
        "classified": policy.classified,
        // Until somebody has said what it may do.
        "new": !policy.classified,
        "cost": policy.cost,
        "schemaVersion": { "ordinal": ordinal, "digest": digest_text(tool.definition.digest) },
        "listed": digest_text(tool.seen),
        "held": tool.held.map(held_word),
        "heldBecause": tool.held.map(|held| match held {
            Held::New => "nobody has approved its definition".to_owned(),
            Held::Unkept => "its definition could not be kept yet".to_owned(),
            Held::Changed => "its definition is not the approved one".to_owned(),
            Held::Quality => quality.falls_short(policy.quality).unwrap_or_default(),
        }),
        "quality": {
            "score": quality.score,
            "found": quality.flaws.iter().map(Flaw::as_str).collect::<Vec<_>>(),
        },
    })
}

fn quality_value(quality: &Quality) -> Value {
    let findings = quality.findings.iter().map(|finding| {
        json!({
            "code": finding.flaw.as_str(),
            "severity": finding.flaw.severity().as_str(),
            "pointer": &*finding.pointer,
            "message": &*finding.message,
        })
    });
    json!({
        "score": quality.score,
        "found": quality.flaws.iter().map(Flaw::as_str).collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
        "omitted": quality.omitted,
    })
}
