//! What policy files say of a tool's face, as the registry puts it on; and what of it cannot be
//! had, with the place in the files.

use crate::{
    fault::{Fault, FaultCode, Faults, Span},
    mcp::Family,
    model::server::UpstreamName,
    policy::{ItemPolicy, Policies, Subject},
    registry::{Catalog, Face, FaceFault, FaceParameter, Listing, Vain},
};

/// The face that a tool is to have; `None` for most tools.
pub fn face(policies: &Policies, upstream: &UpstreamName, tool: &str) -> Option<Face> {
    of(&policies.item(Subject::tool(upstream.as_str(), tool)))
}

/// The same, of how the tool is treated.
pub fn of(policy: &ItemPolicy) -> Option<Face> {
    let (inject, published) = (policy.inject.as_deref(), policy.published.as_deref());
    if inject.is_none() && published.is_none() {
        return None;
    }
    let mut parameters: Vec<FaceParameter> = Vec::new();
    for injected in inject.into_iter().flatten() {
        parameters.push(FaceParameter {
            name: injected.argument.clone(),
            hidden: true,
            value: Some(injected.value.clone()),
            if_known: injected.if_known,
            ..FaceParameter::default()
        });
    }
    for parameter in published.iter().flat_map(|published| &published.parameters) {
        // What is injected is hidden, whatever else is said.
        if !parameters.iter().any(|own| own.name == parameter.name) {
            parameters.push(FaceParameter {
                name: parameter.name.clone(),
                description: parameter.description.clone(),
                allowed: parameter.allowed.clone(),
                hidden: parameter.hidden,
                value: None,
                if_known: parameter.if_known,
            });
        }
    }
    Some(Face {
        name: published.and_then(|p| p.name.as_ref()).map(|name| name.value.clone()),
        description: published.and_then(|published| published.description.clone()),
        parameters,
    })
}

/// What of the faces cannot be had with the tools that are listed.
pub fn check(policies: &Policies, catalog: &Catalog) -> Vec<Fault> {
    let mut faults = Faults::new();
    if !policies.has_faces() {
        return Vec::new();
    }
    for tool in catalog.tools() {
        let Some(face) = &tool.face else { continue };
        let upstream = tool.upstream.as_str();
        let policy = policies.item(Subject::tool(upstream, tool.name()));
        for vain in &face.vain {
            let (Vain::Parameter(name) | Vain::Word(name, _)) = vain;
            if let Some(at) = place(policies, upstream, tool.name(), &policy, Some(name)) {
                let message = format!("{} {vain}", called(&tool.qualified, &policy));
                faults.add(FaultCode::FaceInVain, &at, message);
            }
        }
    }
    for unfit in catalog.unfit() {
        let (upstream, tool) = (unfit.upstream.as_str(), &unfit.tool);
        let policy = policies.item(Subject::tool(upstream, tool));
        let at = place(policies, upstream, tool, &policy, unfit.fault.parameter());
        let at = at.or_else(|| given(policies, upstream, &unfit.fault));
        if let Some(at) = at {
            let own = called(&format!("{upstream}/{tool}"), &policy);
            let message = format!("{own} is not published: {}", unfit.fault);
            faults.add(FaultCode::UnfitFace, &at, message);
        }
    }
    for (upstream, tool, at) in policies.faces() {
        let Ok(name) = UpstreamName::parse(upstream) else { continue };
        let is_there = catalog.tool(&name, tool).is_some()
            || catalog.unfit().iter().any(|unfit| unfit.upstream == name && unfit.tool == *tool);
        let is_listed = catalog.listing_of(&name, Family::Tools) == Some(&Listing::Listed);
        if is_listed && !is_there {
            let message = format!("`{name}` lists no tool `{tool}`");
            let known = catalog.tools().iter().filter(|known| known.upstream == name);
            let fault = faults.add(FaultCode::FaceInVain, at, message);
            fault.did_you_mean(tool, known.map(|known| &**known.name()));
        }
    }
    faults.into_sorted()
}

/// A tool by both its names, where it has two.
fn called(own: &str, policy: &ItemPolicy) -> String {
    let name = policy.published.as_ref().and_then(|published| published.name.as_ref());
    match name {
        Some(name) => format!("`{own}` (to clients `{}`)", name.value),
        None => format!("`{own}`"),
    }
}

/// Where something is said of a tool's argument, or of the tool.
fn place(
    policies: &Policies,
    upstream: &str,
    tool: &str,
    policy: &ItemPolicy,
    argument: Option<&str>,
) -> Option<Span> {
    let injected = policy.inject.iter().flat_map(|all| all.iter());
    let injected = injected.map(|injected| (&*injected.argument, &injected.at));
    let parameters = policy.published.iter().flat_map(|published| &published.parameters);
    let parameters = parameters.map(|parameter| (&*parameter.name, &parameter.at));
    let said = injected.chain(parameters).find(|(name, _)| Some(*name) == argument);
    let own = || {
        let mut own =
            policies.faces().filter(|(of, name, _)| ***of == *upstream && ***name == *tool);
        own.next().map(|(.., at)| at.clone())
    };
    said.map(|(_, at)| at.clone()).or_else(own)
}

/// Where a name is given that another tool has.
fn given(policies: &Policies, upstream: &str, fault: &FaceFault) -> Option<Span> {
    let FaceFault::NameTaken(taken) = fault else { return None };
    policies.faces().filter(|(of, ..)| ***of == *upstream).find_map(|(_, name, at)| {
        let policy = policies.item(Subject::tool(upstream, name));
        let named = policy.published.as_ref().and_then(|published| published.name.as_ref());
        named.filter(|named| named.value == *taken).map(|_| at.clone())
    })
}
