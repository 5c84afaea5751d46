//! The one call that is asked about, and what its rules want.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    approval::{Demand, Subject},
    audit::Keys,
    model::{call::Request, exchange::KeyedDigest},
    policy::Approvers,
    stack::stage::{Permitted, is_brought, said},
};

/// A call that waits.
pub struct Held {
    pub subject: Subject,
    /// Of the rules that want others to decide.
    pub demands: Vec<Demand>,
    /// A rule wants the person to be asked whom the call is made for.
    pub confirm: bool,
    /// What the first rule of either kind says.
    pub say: Option<Arc<str>>,
    pub say_confirm: Option<Arc<str>>,
    /// From the asking on; of the rules the shortest.
    pub expires_ms: u64,
    /// As they came.
    pub arguments: Bytes,
}

// === impl Held ===

impl Held {
    pub fn of(permitted: &Permitted, keys: &Keys) -> Self {
        let asks = permitted.permit.asks();
        let mut held = Self {
            subject: subject(permitted, keys),
            demands: Vec::new(),
            confirm: false,
            say: None,
            say_confirm: None,
            expires_ms: u64::MAX,
            arguments: arguments(&permitted.call.request),
        };
        for rule in asks {
            let Some(approval) = &rule.approval else { continue };
            match &approval.by {
                Approvers::Others { roles, count } => {
                    let (roles, count) = (roles.clone(), *count);
                    held.demands.push(Demand { rule: rule.id.clone(), roles, count });
                    held.expires_ms = held.expires_ms.min(millis(approval.expires));
                    held.say = held.say.or_else(|| rule.say.clone());
                }
                Approvers::Requester => {
                    held.confirm = true;
                    held.say_confirm = held.say_confirm.or_else(|| rule.say.clone());
                }
            }
        }
        held
    }

    /// The call in one text, for what is sealed for it alone. No upstream is called so, and no
    /// state of a server begins so.
    pub fn about(&self) -> String {
        let Subject { tool, arguments, revision, .. } = &self.subject;
        format!("approval of\n{tool}\n{arguments}\n{revision}")
    }
}

fn subject(permitted: &Permitted, keys: &Keys) -> Subject {
    let call = &permitted.call;
    let (args_hash, named, revision) = {
        let facts = call.exchange.facts();
        (facts.args_hash, facts.tool.clone(), facts.policy_revision.clone())
    };
    let named = named.unwrap_or_default();
    let tool = match &call.request {
        Request::CallTool(_) => named,
        // What it is besides a tool is told with its name.
        other => format!("{} {named}", other.method().as_str()).into(),
    };
    let plain = match &call.request {
        Request::CallTool(call) => call.others.iter().all(is_brought),
        _ => false,
    };
    let arguments = args_hash.filter(|_| plain).unwrap_or_else(|| digest(permitted, keys));
    Subject {
        tenant: call.caller.tenant.clone(),
        caller: call.caller.id.clone(),
        requester: call.caller.principal.employee.clone(),
        tool,
        arguments,
        revision: revision.unwrap_or_default(),
    }
}

/// The digest of everything that a server gets to read of the call.
fn digest(permitted: &Permitted, keys: &Keys) -> KeyedDigest {
    keys.args_hash(&permitted.call.caller.tenant, &said(&permitted.call.request))
}

fn arguments(request: &Request) -> Bytes {
    let given = match request {
        Request::CallTool(call) => call.arguments.clone(),
        Request::Ask(ask) => {
            let named = ask.params.iter().find(|member| *member.key == *b"arguments");
            named.map(|member| member.value.clone())
        }
        _ => None,
    };
    given.unwrap_or_else(|| Bytes::from_static(b"{}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
