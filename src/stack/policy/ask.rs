//! What is asked of prompts, resources and templates: found in the catalog, and decided.
//!
//! What policy hides answers exactly like what does not exist. A resource need not be listed;
//! then the rules decide on its URI.

use std::sync::Arc;

use bytes::Bytes;

use super::{employee_named, heard, held, never_listed, note_looked, refused};
use crate::{
    dialect::{north, streamable_http},
    error::{Code, Error},
    mcp::{Family, Method, Served, rpc},
    model::{
        argument_facts::ArgumentFacts,
        call::{Ask, Call, Misread, Request, Surface, Target},
        exchange::{DecisionKind, NorthDialect},
    },
    policy::{ItemIndex, Permit, Reason, Refusal, View},
    registry::{Catalog, Item},
    stack::stage::{Asked, Permitted, World},
};

/// The most that an error or a record repeats of what was asked for, in characters.
const SHOWN: usize = 128;

/// Decides a call about a prompt, a resource or a template.
pub(super) fn decide(call: Call, world: Arc<World>, view: &Arc<View>) -> Result<Permitted, Error> {
    let Request::Ask(ask) = &call.request else {
        return Err(Error::new(Code::Internal, "a call was decided as what it is not"));
    };
    let (method, needed) = (ask.method, needed(ask.method));
    if let Surface::Upstream(name) = &call.surface {
        let family = match &ask.target {
            // It need not be listed to be read: that any family is known will do.
            Target::Resource(_) => None,
            other => Some(family(other)),
        };
        heard(&world, name, family)?;
    }
    advertised(world.catalog.served(&call.surface), needed, method)?;
    employee_named(&call)?;
    let Some(asked) = find(&world.catalog, &call.surface, &ask.target) else {
        if let Target::Prompt(name) = &ask.target {
            never_listed(&call, &world, Family::Prompts, name)?;
        }
        call.exchange.facts().tool_asked = Some(shown(ask));
        return Err(unknown(ask, call.dialect).with_reason("unknown_item"));
    };
    let upstream = world.upstreams.get(asked.upstream_index).cloned();
    let upstream = upstream.ok_or_else(|| {
        Error::new(Code::Internal, "the catalog names an upstream that is not configured")
    })?;
    let mut looked = ArgumentFacts::default();
    let (permit, shadow) = match &asked.item {
        Some(item) => {
            // Completing an argument is no use of a prompt yet.
            let arguments = if method == Method::GetPrompt { arguments(ask) } else { None };
            let index = ItemIndex::new(item.index);
            let permit = view.permit_noting(index, arguments, &mut looked);
            let shadow = view.shadow_decision(index, arguments, &mut looked);
            (permit, shadow.map(|shadow| (shadow.kind, shadow.reason)))
        }
        None => {
            let (upstream, uri) = (asked.upstream.as_str(), &asked.own);
            (view.permit_uri(upstream, uri), view.shadow_of_uri(upstream, uri))
        }
    };
    note_looked(&call, looked, shadow);
    {
        let mut facts = call.exchange.facts();
        facts.server_key = Some(upstream.server_key.clone());
        facts.upstream = Some(asked.upstream.shared());
        // The record alone tells a hidden resource from one that does not exist.
        facts.tool = Some(match &asked.item {
            Some(item) => item.qualified.clone(),
            None => format!("{}/{}", asked.upstream, asked.own).into(),
        });
    }
    match held(permit) {
        Ok(permit) => {
            // To be told of, or to be helped with its arguments, is no use of it yet.
            let permit = match method {
                Method::GetPrompt | Method::ReadResource => permit,
                _ => permit.satisfied(),
            };
            note_permit(&call, ask, &permit);
            // The surface has it, this one of its upstreams has not: it is asked nothing that
            // it did not declare.
            advertised(upstream.served(), needed, method)?;
            Ok(Permitted::new(call, permit, world, None, Some(asked)))
        }
        Err(refusal) => {
            note_refusal(&call, view, asked.item.as_deref(), &refusal);
            Err(refused(&refusal, || unknown(ask, call.dialect)))
        }
    }
}

/// The arguments of a `prompts/get`.
fn arguments(ask: &Ask) -> Option<&Bytes> {
    ask.params.iter().find(|member| *member.key == *b"arguments").map(|member| &member.value)
}

/// What is told of a request that is not what it should be.
pub(super) fn misread(surface: &Surface, world: &World, misread: &Misread) -> Error {
    let Misread { method, code, status, message } = misread;
    match advertised(world.catalog.served(surface), needed(*method), *method) {
        Ok(()) => Error::protocol(Code::InvalidArgs, *code, *status, message.to_string()),
        Err(unserved) => unserved,
    }
}

/// What a caller means by a target on its surface; nothing where the name is nobody's.
pub(super) fn find(catalog: &Catalog, surface: &Surface, target: &Target) -> Option<Asked> {
    let listed = |family, name: &str| {
        catalog.item(surface, family, name).map(|item| Asked {
            upstream: item.upstream.clone(),
            upstream_index: item.upstream_index,
            own: (*item.own).into(),
            item: Some(item.clone()),
        })
    };
    match target {
        Target::Prompt(name) => listed(Family::Prompts, name),
        // What has no blanks to fill in can be completed too, if it is listed.
        Target::Template(text) => {
            listed(Family::Templates, text).or_else(|| listed(Family::Resources, text))
        }
        Target::Resource(uri) => {
            let (upstream_index, own, item) = catalog.resource(surface, uri)?;
            let (upstream, _) = catalog.listings(&Surface::Aggregate).nth(upstream_index)?;
            let (item, upstream) = (item.cloned(), upstream.clone());
            Some(Asked { item, upstream, upstream_index, own: own.into() })
        }
        // A task is in no catalog.
        Target::Task(_) => None,
    }
}

/// What a target is listed among; a task is listed nowhere, and made by tools.
pub(super) fn family(target: &Target) -> Family {
    match target {
        Target::Prompt(_) => Family::Prompts,
        Target::Resource(_) => Family::Resources,
        Target::Template(_) => Family::Templates,
        Target::Task(_) => Family::Tools,
    }
}

/// Refuses a method behind a capability that was not declared.
pub(super) fn advertised(served: Served, needed: Served, method: Method) -> Result<(), Error> {
    if served.contains(needed) { Ok(()) } else { Err(streamable_http::unserved(method.as_str())) }
}

/// What a server declares that has the method.
fn needed(method: Method) -> Served {
    match method {
        Method::GetPrompt => Served::PROMPTS,
        Method::ReadResource => Served::RESOURCES,
        Method::Subscribe | Method::Unsubscribe => Served::SUBSCRIBE,
        Method::Complete => Served::COMPLETIONS,
        Method::GetTask | Method::UpdateTask | Method::CancelTask => Served::TASKS,
        _ => Served::NONE,
    }
}

fn note_permit(call: &Call, ask: &Ask, permit: &Permit) {
    let mut facts = call.exchange.facts();
    facts.risk = permit.policy().map(|policy| policy.risk);
    let asks = permit.asks();
    if asks.is_empty() {
        facts.decision = Some(DecisionKind::Allow);
        facts.reason = Some(Reason::RuleAllow.as_str());
        facts.rules.extend(permit.rule().map(|rule| rule.id.clone()));
    } else {
        facts.decision = Some(DecisionKind::RequireApproval);
        facts.reason = Some(Reason::RuleApproval.as_str());
        facts.rules.extend(asks.iter().map(|rule| rule.id.clone()));
    }
    facts.admitted = true;
    facts.tool_alias = Some(ask.target.name().into());
}

fn note_refusal(call: &Call, view: &View, item: Option<&Item>, refusal: &Refusal) {
    let mut facts = call.exchange.facts();
    facts.risk =
        item.and_then(|item| view.item(ItemIndex::new(item.index))).map(|policy| policy.risk);
    facts.decision = Some(refusal.kind);
    facts.reason = Some(refusal.reason.as_str());
    facts.rules.extend(refusal.rule.as_ref().map(|rule| rule.id.clone()));
}

fn shown(ask: &Ask) -> Box<str> {
    ask.target.name().chars().take(SHOWN).collect()
}

/// What both the unknown and the hidden answer. The two must stay alike to the byte.
fn unknown(ask: &Ask, dialect: NorthDialect) -> Error {
    let shown = shown(ask);
    let what = match &ask.target {
        Target::Prompt(_) => "unknown prompt",
        Target::Template(_) => "unknown resource template",
        Target::Task(_) => "unknown task",
        Target::Resource(uri) => {
            let code = north::not_found_code(dialect);
            let message = north::not_found_message(uri);
            return Error::protocol(Code::NotFound, code, 200, message)
                .with_data(north::not_found_data(uri));
        }
    };
    Error::protocol(Code::NotFound, rpc::INVALID_PARAMS, 200, format!("{what}: {shown}"))
}
