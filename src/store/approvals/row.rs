//! A request for approval as it is written down. What was written by a version that is in use is
//! read by every later one: members are added, never changed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    approval::{Approval, ApprovalId, Demand, Request, Subject, Vote, Voter},
    model::{
        caller::{CallerId, EmployeeId, Role, TenantId},
        exchange::KeyedDigest,
        server::Risk,
    },
};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    id: String,
    tenant: String,
    caller: String,
    requester: Option<String>,
    tool: String,
    digest_key: u32,
    digest: [u8; 32],
    revision: String,
    risk: String,
    asked_ms: u64,
    expires_ms: u64,
    demands: Vec<Wanted>,
    votes: Vec<Word>,
    used_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Wanted {
    rule: String,
    roles: Vec<String>,
    count: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Word {
    by: String,
    rules: Vec<String>,
    yes: bool,
    comment: Option<String>,
    at_ms: u64,
    /// `by` is the name of an admin token. Whoever does not know of it reads a no of an employee,
    /// which is the safe side.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    token: bool,
}

/// All of it but the arguments.
pub(super) fn write(approval: &Approval) -> Result<String, sqlx::Error> {
    let Approval { id, request, votes, used_ms } = approval;
    let Subject { tenant, caller, requester, tool, arguments, revision } = &request.subject;
    let demands = request.demands.iter().map(|demand| Wanted {
        rule: demand.rule.to_string(),
        roles: demand.roles.iter().map(|role| role.as_str().to_owned()).collect(),
        count: demand.count,
    });
    let votes = votes.iter().map(|vote| Word {
        by: vote.by.name().to_owned(),
        token: matches!(vote.by, Voter::Token(_)),
        rules: vote.rules.iter().map(ToString::to_string).collect(),
        yes: vote.yes,
        comment: vote.comment.as_deref().map(Into::into),
        at_ms: vote.at_ms,
    });
    let body = Body {
        id: id.to_string(),
        tenant: tenant.as_str().to_owned(),
        caller: caller.as_str().to_owned(),
        requester: requester.as_ref().map(|employee| employee.as_str().to_owned()),
        tool: tool.to_string(),
        digest_key: arguments.key,
        digest: arguments.digest,
        revision: revision.to_string(),
        risk: request.risk.as_str().to_owned(),
        asked_ms: request.asked_ms,
        expires_ms: request.expires_ms,
        demands: demands.collect(),
        votes: votes.collect(),
        used_ms: *used_ms,
    };
    serde_json::to_string(&body).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// A request from its row. One that cannot be read is a fault, not an absent one: it might have
/// been refused.
pub(super) fn read(body: &str, sealed: Option<Vec<u8>>) -> Result<Approval, sqlx::Error> {
    let broken = || sqlx::Error::Decode("a request for approval is none".into());
    let body: Body =
        serde_json::from_str(body).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let employee = |id: &str| EmployeeId::parse(id).ok_or_else(broken);
    let votes = body.votes.into_iter().map(|word| {
        Ok(Vote {
            by: match word.token {
                true => Voter::Token(word.by.into()),
                false => Voter::Employee(employee(&word.by)?),
            },
            rules: word.rules.into_iter().map(Into::into).collect(),
            yes: word.yes,
            comment: word.comment.map(Into::into),
            at_ms: word.at_ms,
        })
    });
    let demands = body.demands.into_iter().map(|wanted| Demand {
        rule: wanted.rule.into(),
        roles: wanted.roles.iter().map(|role| Role::new(role.as_str())).collect(),
        count: wanted.count,
    });
    Ok(Approval {
        id: ApprovalId::parse(&body.id).ok_or_else(broken)?,
        votes: votes.collect::<Result<_, sqlx::Error>>()?,
        used_ms: body.used_ms,
        request: Request {
            subject: Subject {
                tenant: TenantId::new(body.tenant),
                caller: CallerId::new(body.caller),
                requester: body.requester.as_deref().map(employee).transpose()?,
                tool: body.tool.into(),
                arguments: KeyedDigest { key: body.digest_key, digest: body.digest },
                revision: body.revision.into(),
            },
            demands: demands.collect(),
            risk: Risk::parse(&body.risk).ok_or_else(broken)?,
            sealed: sealed.map(Bytes::from),
            asked_ms: body.asked_ms,
            expires_ms: body.expires_ms,
        },
    })
}
