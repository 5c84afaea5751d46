//! `/v1/servers`: servers that employees bring, their credentials, and whom they share them with.
//!
//! Always as a named employee. What is unknown, another's, or shared with a team that he is not in
//! answers alike. What is posted is read by the registry, secrets go to the vault and are in no
//! answer, and no server is spoken to but through [`Reach`]. Here is who may do what, what is
//! noted of it, and what is told (`servers/told.rs`); `servers/bring.rs` registers,
//! `servers/import.rs` does so with many, `servers/own.rs` does the rest; `servers/allowed.rs` asks
//! policy, `servers/keep.rs` the stores.

mod allowed;
mod bring;
mod import;
mod keep;
mod own;
mod told;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};

use self::{
    keep::{Busy, Place},
    told::{Standing, Standings, Told},
};
use super::{Person, calls::never_tried, in_scope, input, recordable};
use crate::{
    audit::Audit,
    body::Body,
    clock::Clock,
    credential::{Owner, Vault, VaultFault, Whose},
    error::{Code, Error},
    model::{
        caller::{Caller, EmployeeId, TenantId},
        exchange::{Exchange, ServerChange},
        server::{Risk, UpstreamName},
        server_key::normalised,
    },
    policy::{ItemIndex, SelfService},
    registry::{
        Tool,
        server::{Archive, AuthKind, Kept, Registration, ServerStore},
        store::{Bounds, PinStore},
    },
    stack::{
        stage::{BoxFuture, Own, Personal, UpstreamAuth, Worlds},
        v1::ApiRequest,
    },
};

/// What a change of one's own servers counts as, for the audit log and for a token's scopes.
const RISK: Risk = Risk::WriteLow;

/// Asks servers what they have, and is told of what has changed. `app` implements it.
pub trait Reach: Send + Sync {
    /// Initializes and lists everything that the server declares, with the caller's own
    /// credential. That the server failed is in the archive; an error is the gateway's own.
    fn ask(&self, caller: Arc<Caller>, registration: Registration) -> BoxFuture<Archive>;

    /// How many servers one employee may have asked at once.
    fn at_once(&self) -> usize {
        1
    }

    /// Whether a server that is not asked yet may be reached at all, by what its address stands
    /// for at the moment.
    fn admit(&self, registration: &Registration) -> BoxFuture<()>;

    /// Where the caller grants a token for a server that is opened by OAuth; nothing where nobody
    /// can.
    fn connect(&self, caller: &Caller, registration: &Registration) -> Option<String>;

    /// What an employee of a tenant has, or shares, has changed.
    fn changed(&self, tenant: &TenantId, owner: &EmployeeId);
}

/// What the employees of a tenant may bring, by the policies that are in force by now; `None`:
/// nothing.
pub type SelfServiceOf = Arc<dyn Fn(&TenantId) -> Option<SelfService> + Send + Sync>;

/// Servers of employees' own, for those who bring them.
#[derive(Clone)]
pub struct ServersApi(Arc<Servers>);

/// What the resource consists of.
pub struct ServerParts {
    pub worlds: Arc<Worlds>,
    pub store: Arc<dyn ServerStore>,
    pub vault: Arc<Vault>,
    /// What is kept of the definitions of their tools.
    pub pins: Arc<dyn PinStore>,
    pub pin_bounds: Bounds,
    pub self_service: SelfServiceOf,
    pub reach: Arc<dyn Reach>,
    /// What becomes of servers once policy is asked.
    pub personal: Arc<dyn Personal>,
    pub audit: Arc<Audit>,
    pub clock: Clock,
}

struct Servers {
    parts: ServerParts,
    busy: Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    List,
    Show,
    Asset,
    Change(Change),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Register,
    Import,
    Delete,
    Refresh,
    SetCredential,
    DeleteCredential,
    Share,
    Unshare,
}

/// A request about servers, of somebody who is known.
struct Asked {
    person: Person,
    caller: Arc<Caller>,
    exchange: Arc<Exchange>,
    headers: HeaderMap,
    body: Bytes,
    /// What stands in the path.
    id: Arc<str>,
}

// === impl ServersApi ===

impl ServersApi {
    pub fn new(parts: ServerParts) -> Self {
        Self(Arc::new(Servers { parts, busy: Busy::default() }))
    }

    /// The key of an operator's server of this name or key for which each employee grants his own
    /// token, if the caller sees anything of it.
    pub(super) fn granted_for(
        &self,
        id: &str,
        person: &Person,
        request: &ApiRequest,
    ) -> Option<Arc<str>> {
        let asked = Asked::of(id, person.clone(), request);
        self.0.of_operator(&asked, UpstreamAuth::is_granted).map(|(key, _)| key)
    }

    /// Where the caller connects to a server that he sees under this key; nothing where there is
    /// none to be connected to.
    pub(super) async fn connect(
        &self,
        id: &str,
        person: Person,
        request: &ApiRequest,
    ) -> Result<Option<String>, Error> {
        let asked = Asked::of(id, person, request);
        let kept = self.0.find(&asked).await?;
        let kept = kept.filter(|kept| kept.registration.auth == AuthKind::Oauth);
        let reach = &self.0.parts.reach;
        Ok(kept.and_then(|kept| reach.connect(&asked.caller, &kept.registration)))
    }

    pub(super) async fn answer(
        &self,
        target: Target,
        id: &str,
        person: Person,
        request: &ApiRequest,
    ) -> Result<Response<Body>, Error> {
        let asked = Asked::of(id, person, request);
        input::query(request.parts.uri.query(), [])?;
        let servers = self.0.clone();
        let change = match target {
            Target::List => return servers.list(&asked.person).await,
            Target::Show => return servers.show(&asked).await,
            Target::Asset => return servers.asset(&asked).await,
            Target::Change(change) => change,
        };
        let key = UpstreamName::of_key(id).map(|_| id);
        asked.note(change.as_str(), key);
        never_tried(request, "what is changed about servers cannot be only tried")?;
        recordable(&self.0.parts.audit, RISK)?;
        in_scope(&request.caller, RISK)?;
        #[allow(
            clippy::disallowed_methods,
            reason = "it ends within the times of the store and of the server that is asked, and \
                      what is cut off leaves no more behind than a process that is killed"
        )]
        // What was begun is carried through or taken back, though its client be gone.
        let changing = tokio::spawn(async move { servers.change(change, &asked).await });
        changing.await.unwrap_or_else(|lost| {
            Err(Error::new(Code::Internal, "the change came to no end").with_cause(lost))
        })
    }
}

impl Change {
    /// As records name it.
    const fn as_str(self) -> &'static str {
        match self {
            Change::Register => "register",
            Change::Import => "import",
            Change::Delete => "delete",
            Change::Refresh => "refresh",
            Change::SetCredential => "set_credential",
            Change::DeleteCredential => "delete_credential",
            Change::Share => "share",
            Change::Unshare => "unshare",
        }
    }
}

// === impl Servers ===

impl Servers {
    async fn change(&self, change: Change, asked: &Asked) -> Result<Response<Body>, Error> {
        match change {
            Change::Register => self.register(asked).await,
            Change::Import => self.import(asked).await,
            Change::Delete => self.delete(asked).await,
            Change::Refresh => self.refresh(asked).await,
            Change::SetCredential => self.set_credential(asked).await,
            Change::DeleteCredential => self.delete_credential(asked).await,
            Change::Share => self.share(asked).await,
            Change::Unshare => self.unshare(asked).await,
        }
    }

    async fn list(&self, person: &Person) -> Result<Response<Body>, Error> {
        let seen = self.seen_by(person).await?;
        let owner = Owner::Employee(person.employee.clone());
        let listed = self.parts.vault.list(person.tenant.clone(), owner).await;
        let listed = listed.map_err(keep::vault_failed)?;
        let mut servers = Vec::with_capacity(seen.len());
        for kept in &seen {
            let key = &kept.registration.server_key;
            let is_there = listed.iter().any(|one| one.server_key == *key);
            let has_credential =
                is_there && self.has_credential(person, &kept.registration).await?;
            servers.push(Told::of(kept, &person.employee, has_credential));
        }
        told::written(&told::Listed { servers })
    }

    async fn show(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let kept = self.look(asked).await?;
        self.tell_whole(asked, &kept).await
    }

    fn told<'a>(&self, asked: &Asked, kept: &'a Kept, has_credential: bool) -> Told<'a> {
        let registration = &kept.registration;
        let connects = registration.auth == AuthKind::Oauth && !has_credential;
        let url = connects.then(|| self.parts.reach.connect(&asked.caller, registration));
        Told::of(kept, &asked.person.employee, has_credential).with_connect_url(url.flatten())
    }

    /// The server with its tools.
    async fn tell_whole(&self, asked: &Asked, kept: &Kept) -> Result<Response<Body>, Error> {
        let has_credential = self.has_credential(&asked.person, &kept.registration).await?;
        let standings = self.standings(asked, &kept.registration.server_key).await?;
        let told = self.told(asked, kept, has_credential);
        let told = told.with_tools(kept, &standings);
        Ok(tagged(told::written(&told)?, kept))
    }

    /// The server without them.
    async fn tell(
        &self,
        asked: &Asked,
        kept: &Kept,
        status: StatusCode,
    ) -> Result<Response<Body>, Error> {
        let has_credential = self.has_credential(&asked.person, &kept.registration).await?;
        let told = self.told(asked, kept, has_credential);
        let mut response = tagged(told::written(&told)?, kept);
        *response.status_mut() = status;
        Ok(response)
    }

    /// How the tools of a server stand with policy, as this employee has them.
    async fn standings(&self, asked: &Asked, key: &str) -> Result<Standings, Error> {
        let base = self.parts.worlds.current();
        let world = match self.parts.personal.of(&asked.caller, &base) {
            Own::Nothing => None,
            Own::There(world) => Some(world),
            Own::Loading(loading) => loading.await?,
        };
        let view = world.as_ref().and_then(|world| world.view_by_now(&asked.caller));
        let (Some(world), Some(view)) = (world, view) else { return Ok(Standings::default()) };
        let tools = world.catalog.tools().iter().filter(|tool| tool.upstream.as_str() == key);
        let standing = |tool: &Arc<Tool>| {
            let policy = view.item(ItemIndex::new(tool.index))?;
            let (new, held) = (!policy.classified, tool.held.is_some());
            Some((tool.name().clone(), Standing { new, held, risk: policy.risk }))
        };
        Ok(tools.filter_map(standing).collect())
    }

    /// Whether somebody has one that he gave for this address. What cannot be opened at present is
    /// there.
    async fn has_credential(&self, person: &Person, of: &Registration) -> Result<bool, Error> {
        let whose = person.whose(&of.server_key);
        match self.parts.vault.open_for(&whose, Some(&normalised(&of.url))).await {
            Ok(opened) => Ok(opened.is_some()),
            Err(VaultFault::Seal(_) | VaultFault::Lost | VaultFault::NoKeyring) => Ok(true),
            Err(fault) => Err(keep::vault_failed(fault)),
        }
    }

    /// A server that the employee sees under this key: his own, else a shared one.
    async fn look(&self, asked: &Asked) -> Result<Kept, Error> {
        self.find(asked).await?.ok_or_else(|| unknown(&asked.id))
    }

    async fn find(&self, asked: &Asked) -> Result<Option<Kept>, Error> {
        if UpstreamName::of_key(&asked.id).is_none() {
            return Ok(None);
        }
        if let Some(own) = self.own(&asked.place(&asked.id)).await? {
            return Ok(Some(own));
        }
        let seen = self.seen_by(&asked.person).await?;
        Ok(seen.into_iter().find(|kept| kept.registration.server_key == asked.id))
    }

    /// The employee's own under this key; who only sees it may not change it.
    async fn look_own(&self, asked: &Asked) -> Result<Kept, Error> {
        let kept = self.look(asked).await?;
        let owner = &kept.registration.owner;
        if *owner == asked.person.employee {
            return Ok(kept);
        }
        let message = format!("only {owner}, who shares the server, can do that");
        Err(Error::new(Code::PermissionDenied, message).with_reason("not_owner"))
    }

    /// Everybody who sees it looks again.
    fn changed(&self, person: &Person) {
        self.parts.reach.changed(&person.tenant, &person.employee);
    }
}

// === impl Asked ===

impl Asked {
    fn of(id: &str, person: Person, request: &ApiRequest) -> Self {
        Self {
            person,
            caller: request.caller.clone(),
            exchange: request.exchange.clone(),
            headers: request.parts.headers.clone(),
            body: request.body.clone(),
            id: id.into(),
        }
    }

    fn place(&self, server_key: &Arc<str>) -> Place {
        (self.person.tenant.clone(), self.person.employee.clone(), server_key.clone())
    }

    /// Notes what is done, or wanted, for the record.
    fn note(&self, what: &'static str, server_key: Option<&str>) {
        let mut facts = self.exchange.facts();
        facts.server_key = server_key.map(Arc::from);
        facts.server_change = Some(Box::new(ServerChange { what, team: None, issuer: None }));
    }

    fn note_team(&self, team: &Arc<str>) {
        if let Some(change) = &mut self.exchange.facts().server_change {
            change.team = Some(team.clone());
        }
    }

    /// A client that says which edition it has seen changes no other.
    fn is_about(&self, edition: u64) -> Result<(), Error> {
        let Some(value) = self.headers.get(header::IF_MATCH) else { return Ok(()) };
        let seen = value.to_str().ok().map(|text| text.trim().trim_matches('"'));
        match seen.map(|text| (text, text.parse::<u64>().ok())) {
            Some(("*", _)) if edition > 0 => Ok(()),
            Some((_, Some(seen))) if seen == edition => Ok(()),
            Some((_, Some(_)) | ("*", _)) => Err(changed_meanwhile()),
            _ => {
                let message = "If-Match must be the `edition` of the server that is to be changed";
                Err(Error::new(Code::InvalidArgs, message))
            }
        }
    }
}

impl Person {
    fn whose(&self, server_key: &Arc<str>) -> Whose {
        Whose {
            tenant: self.tenant.clone(),
            owner: Owner::Employee(self.employee.clone()),
            server_key: server_key.clone(),
        }
    }
}

/// Says which edition it is.
fn tagged(mut response: Response<Body>, kept: &Kept) -> Response<Body> {
    let tag = format!("\"{}\"", kept.registration.revision);
    if let Ok(tag) = tag.try_into() {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// No server that the employee sees has this key.
fn unknown(id: &str) -> Error {
    let shown = input::shown(id);
    let message = format!(
        "you have no server `{shown}`: register it with POST /v1/servers, or let somebody share \
         it with a team of yours"
    );
    Error::new(Code::ServerNotConfigured, message)
}

fn changed_meanwhile() -> Error {
    let message = "the server was changed meanwhile: look at it again, then change it";
    Error::new(Code::Conflict, message)
}
