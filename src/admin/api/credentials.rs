//! Who has credentials for which server, and taking them away: whoever left the company, or lost
//! his laptop, serves nobody any more. No value is ever told.

use std::sync::Arc;

use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};

use super::{Api, Asked, Failure, Parameter, Route, tokens::Need};
use crate::{
    credential::{Granted, Owner, Surveyed, VaultFault, Whose, oauth::OwnSettings, store::Pick},
    error::Code,
    model::caller::{EmployeeId, TenantId},
};

/// The most that one answer tells of.
const MOST: u32 = 500;
/// Unless something else is said.
const SOME: u32 = 100;

pub(super) const LIST: Route = Route {
    id: "listCredentials",
    method: Method::GET,
    path: "/admin/api/credentials",
    summary: "Who has a credential for which server: its kind, the key that it is sealed under, \
              when it was set and last renewed, and of a grant by OAuth the issuer, the scopes and \
              when its token ends. In the order of tenant, owner and server; `next` is there where \
              there are more. No value is ever told.",
    need: Need::Look,
    action: None,
    query: &[
        Parameter { name: "tenant", what: "Only of this tenant.", required: false },
        Parameter { name: "employee", what: "Only of this employee.", required: false },
        Parameter { name: "serverKey", what: "Only for this server.", required: false },
        Parameter { name: "after", what: "The `next` of the answer before.", required: false },
        Parameter { name: "limit", what: "At most so many, 500 of them at most.", required: false },
    ],
    body: None,
    run: |api, asked| list(api, asked).boxed(),
};

pub(super) const REVOKE: Route = Route {
    id: "revokeCredential",
    method: Method::DELETE,
    path: "/admin/api/credentials/{tenant}/{employee}/{serverKey}",
    summary: "Forgets an employee's credential for one server. This replica uses it no more from \
              then on; others may for as long as `otherReplicasWithinMs` says. The server is not \
              told: a token that somebody has copied stays good there until it ends.",
    need: Need::Secure,
    action: Some("credential_revoke"),
    query: &[],
    body: None,
    run: |api, asked| revoke(api, asked).boxed(),
};

pub(super) const REVOKE_ALL: Route = Route {
    id: "revokeCredentials",
    method: Method::DELETE,
    path: "/admin/api/credentials/{tenant}/{employee}",
    summary: "Forgets every credential of an employee, and what he has said of OAuth clients of \
              servers that he brought. It holds as for one of them.",
    need: Need::Secure,
    action: Some("credential_revoke"),
    query: &[],
    body: None,
    run: |api, asked| revoke_all(api, asked).boxed(),
};

async fn list(api: &Api, asked: Asked<'_>) -> Result<Value, Failure> {
    let most = asked.number("limit", MOST, SOME)?;
    let owner = asked.parameter("employee").map(|text| employee(&text)).transpose()?;
    let server_keys = asked.parameter("serverKey").map(|key| {
        let settings = OwnSettings::key(&key);
        [key.into(), settings]
    });
    let after = asked.parameter("after").map(|text| {
        place_of(&text).ok_or_else(|| wrong("`after` is the `next` of an answer before"))
    });
    let pick = Pick {
        tenant: asked.parameter("tenant").map(TenantId::new),
        owner: owner.map(Owner::Employee),
        server_keys,
        after: after.transpose()?,
        // One more tells whether there are more.
        most: most + 1,
    };
    let mut some = api.gateway.credentials(pick).await.map_err(failed)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let has_more = some.len() > most;
    some.truncate(most);
    let next = some.last().filter(|_| has_more).map(|last| place(&last.whose));
    let told: Vec<Value> = some.iter().map(told).collect();
    Ok(json!({ "credentials": told, "next": next }))
}

async fn revoke(api: &Api, asked: Asked<'_>) -> Result<Value, Failure> {
    let [tenant, who, key] = asked.given.as_slice() else { return Err(nowhere()) };
    let (owner, server_key) = (Owner::Employee(employee(who)?), Arc::<str>::from(key.as_str()));
    let whose =
        Whose { tenant: TenantId::new(tenant.as_str()), owner, server_key: server_key.clone() };
    if !api.gateway.revoke(whose).await.map_err(failed)? {
        return Err(none());
    }
    Ok(revoked(api, &[server_key]))
}

async fn revoke_all(api: &Api, asked: Asked<'_>) -> Result<Value, Failure> {
    let [tenant, who] = asked.given.as_slice() else { return Err(nowhere()) };
    let gone = api.gateway.revoke_all(TenantId::new(tenant.as_str()), employee(who)?).await;
    let gone = gone.map_err(failed)?;
    if gone.is_empty() {
        return Err(none());
    }
    Ok(revoked(api, &gone))
}

fn revoked(api: &Api, servers: &[Arc<str>]) -> Value {
    let lag = api.gateway.revocation_lag().as_millis();
    json!({
        "revoked": servers.iter().map(|server| &**server).collect::<Vec<_>>(),
        "otherReplicasWithinMs": u64::try_from(lag).unwrap_or(u64::MAX),
    })
}

fn told(one: &Surveyed) -> Value {
    let Whose { tenant, owner, server_key } = &one.whose;
    let (secret, settings) = (Whose::secret_name(server_key), OwnSettings::server_of(server_key));
    let employee = match owner {
        Owner::Employee(employee) => Some(employee.as_str()),
        Owner::Gateway => None,
    };
    let kind = if settings.is_some() { "oauth_client" } else { one.kind.as_str() };
    let mut told = json!({
        "credentialRef": one.reference.to_string(),
        "tenant": secret.is_none().then_some(tenant.as_str()),
        "employee": employee,
        "secret": secret,
        "serverKey": secret.is_none().then(|| settings.unwrap_or(server_key)),
        "kind": kind,
        "keyId": one.key,
        "createdMs": one.created_ms,
        "updatedMs": one.updated_ms,
        "renewedMs": one.renewed_ms,
    });
    match &one.grant {
        Some(Ok(grant)) => told["oauth"] = granted(grant),
        Some(Err(fault)) => told["unreadable"] = fault.to_string().into(),
        None => {}
    }
    told
}

fn granted(grant: &Granted) -> Value {
    json!({
        "issuer": grant.issuer,
        "clientId": grant.client_id,
        "scopes": grant.scope.split_ascii_whitespace().collect::<Vec<_>>(),
        "expiresMs": grant.expires_ms,
        "renewable": grant.renewable,
    })
}

/// Where one stands among all; no part of it but the first has a slash.
fn place(whose: &Whose) -> String {
    format!("{}/{}/{}", whose.tenant.as_str(), whose.owner.text(), whose.server_key)
}

fn place_of(text: &str) -> Option<Whose> {
    let mut parts = text.rsplitn(3, '/');
    let (server_key, owner, tenant) = (parts.next()?, parts.next()?, parts.next()?);
    let owner = Owner::parse(owner)?;
    Some(Whose { tenant: TenantId::new(tenant), owner, server_key: server_key.into() })
}

fn employee(text: &str) -> Result<EmployeeId, Failure> {
    let id = EmployeeId::parse(text);
    id.ok_or_else(|| wrong("an employee's id is 1 to 64 of `A-Z a-z 0-9 . _ @ -`"))
}

fn wrong(why: &'static str) -> Failure {
    Failure::new(Code::InvalidArgs, why)
}

fn none() -> Failure {
    Failure::new(Code::NotFound, "no such credential is kept: GET /admin/api/credentials")
}

/// A path of another form is another route's.
fn nowhere() -> Failure {
    Failure::new(Code::NotFound, "there is nothing at this path")
}

fn failed(fault: VaultFault) -> Failure {
    tracing::error!(error = %fault, "Credentials cannot be looked at or taken away");
    Failure::new(Code::Internal, "the store did not answer as it should: ask again what is there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_told() {
        let own = |tenant: &str, owner: &str, key: &str| Whose {
            tenant: TenantId::new(tenant),
            owner: Owner::parse(owner).unwrap(),
            server_key: key.into(),
        };
        for whose in [
            own("acme", "employee:E1", "mcp_a_12345678"),
            own("a/b", "employee:E.1@x", "oauth-settings:mcp_a_12345678"),
            Whose::secret("crm-token"),
        ] {
            assert_eq!(place_of(&place(&whose)), Some(whose));
        }
        for bad in ["", "acme", "acme/E1/mcp_a", "employee:E1/mcp_a"] {
            assert_eq!(place_of(bad), None, "{bad}");
        }
    }
}
