//! `/v1/servers` with a server that is asked by nobody but the test, and stores that can fail.

use std::{net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use super::super::*;
use super::failures::Mortal;
use crate::{
    audit::{self, Keys},
    credential::{Credential, InProcess, Kms, LocalKms, VaultLimits},
    fault::Source,
    identity::sso::{Directory, DirectoryEntry},
    mcp::{Family, Served, Version},
    model::{
        call_source::CallSources,
        caller::{Auth, CallerId, Principal, Role, Roles},
        trace::TraceContext,
    },
    policy::{Policies, PolicyFile},
    registry::{
        Local as Pins,
        server::{Failure, Local, Spoken},
    },
    stack::stage::World,
};

pub const URL: &str = "https://orders.example.com/mcp";
/// Of that address.
pub const KEY: &str = "mcp_orders_802ffcc1";
pub const SECRET: &str = "hunter2-hunter2";

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [orders.example.com]
  max_each: 2
  share: { roles: [sharer] }
rules: []
";

/// A server that is asked, as the test has it.
#[derive(Default)]
pub struct Server {
    failure: Mutex<Option<&'static str>>,
    /// The credential of each that asked.
    asked: Mutex<Vec<Option<String>>>,
    changes: Mutex<Vec<String>>,
    /// Answers wait for this.
    held: Mutex<Option<Arc<Notify>>>,
}

struct Asking {
    server: Arc<Server>,
    vault: Arc<Vault>,
}

impl Reach for Asking {
    fn ask(&self, caller: Arc<Caller>, registration: Registration) -> BoxFuture<Archive> {
        let (server, vault) = (self.server.clone(), self.vault.clone());
        Box::pin(async move {
            let whose = Whose {
                tenant: caller.tenant.clone(),
                owner: Owner::Employee(caller.principal.employee.clone().unwrap()),
                server_key: registration.server_key.clone(),
            };
            let opened = vault.open(&whose).await.map_err(keep::vault_failed)?;
            server.asked.lock().push(opened.map(|credential| text(&credential)));
            let held = server.held.lock().clone();
            if let Some(held) = held {
                held.notified().await;
            }
            Ok(match *server.failure.lock() {
                Some(message) => {
                    let failure = Failure { message: message.into(), at_ms: 2_000 };
                    Archive { failure: Some(failure), ..Archive::default() }
                }
                None => listed(),
            })
        })
    }

    fn admit(&self, _: &Registration) -> BoxFuture<()> {
        Box::pin(async { Ok(()) })
    }

    fn connect(&self, _: &Caller, _: &Registration) -> Option<String> {
        None
    }

    fn changed(&self, _: &TenantId, owner: &EmployeeId) {
        self.server.changes.lock().push(owner.to_string());
    }
}

/// No policy is asked about tools here.
pub struct Nothing;

impl Personal for Nothing {
    fn of(&self, _: &Caller, _: &Arc<World>) -> Own {
        Own::Nothing
    }

    fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        tokio::sync::watch::Sender::new(0).subscribe()
    }
}

fn listed() -> Archive {
    let mut archive = Archive {
        served: Some(Served::TOOLS),
        spoken: Some(Spoken::Modern(Version::LATEST)),
        listed_ms: 2_000,
        ..Archive::default()
    };
    let tools = [
        r#"{"name":"query","description":"Finds.","inputSchema":{"type":"object"}}"#,
        r#"{"name":"odd","inputSchema":{"type":"nothing"}}"#,
    ];
    archive.set(Family::Tools, tools.map(|tool| Bytes::from_static(tool.as_bytes())).to_vec());
    archive
}

fn text(credential: &Credential) -> String {
    match credential {
        Credential::Bearer(token) => token.expose_secret().to_owned(),
        Credential::Basic { password, .. } => password.expose_secret().to_owned(),
        other => format!("{other:?}"),
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

fn api(
    life: &Arc<Mortal>,
    vault: &Arc<Vault>,
    server: &Arc<Server>,
    pins: &Arc<Pins>,
    audit: &Arc<Audit>,
    clock: Clock,
) -> ServersApi {
    let policies = policies();
    ServersApi::new(ServerParts {
        worlds: worlds(),
        store: life.clone(),
        vault: vault.clone(),
        pins: pins.clone(),
        pin_bounds: Bounds { versions: 5, tools: 5 },
        self_service: Arc::new(move |tenant| policies.self_service(tenant)),
        reach: Arc::new(Asking { server: server.clone(), vault: vault.clone() }),
        personal: Arc::new(Nothing),
        audit: audit.clone(),
        clock,
    })
}

#[derive(Clone)]
pub struct House {
    api: ServersApi,
    vault: Arc<Vault>,
    server: Arc<Server>,
    /// Both stores die together.
    pub life: Arc<Mortal>,
    pub pins: Arc<Pins>,
    audit: Arc<Audit>,
    _folder: Arc<tempfile::TempDir>,
}

impl House {
    pub fn new() -> Self {
        let (folder, clock) = (Arc::new(tempfile::tempdir().unwrap()), Clock::manual(1_000));
        let life = Arc::new(Mortal::new(Local::default(), InProcess::default()));
        let kms: Arc<dyn Kms> = Arc::new(LocalKms::in_process(1_000).unwrap());
        // What is sealed is asked for each time.
        let limits = VaultLimits { entries: 0, ..VaultLimits::default() };
        let vault = Arc::new(Vault::new(life.clone(), Some(kms), limits, clock.clone()));
        let server = Arc::new(Server::default());
        let config = audit::Config::new(folder.path().join("audit.jsonl"), "test");
        let keys = Arc::new(Keys::random());
        let audit = Arc::new(Audit::start(config, keys, clock.clone(), Arc::new(())).unwrap());
        let pins = Arc::default();
        let api = api(&life, &vault, &server, &pins, &audit, clock);
        Self { api, vault, server, life, pins, audit, _folder: folder }
    }

    /// Another process, over the same stores.
    pub fn replica(&self) -> Self {
        let Self { life, vault, server, pins, audit, .. } = self;
        Self { api: api(life, vault, server, pins, audit, Clock::manual(1_000)), ..self.clone() }
    }

    pub async fn get(&self, who: &str, path: &str) -> Result<Answer, Error> {
        self.ask(who, Method::GET, path, &Value::Null).await
    }

    pub async fn ask(
        &self,
        who: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Answer, Error> {
        self.ask_if(who, method, path, body, None).await
    }

    /// If the server's edition is this.
    pub async fn ask_if(
        &self,
        who: &str,
        method: Method,
        path: &str,
        body: &Value,
        edition: Option<&str>,
    ) -> Result<Answer, Error> {
        let place = crate::api::find(path, &method).unwrap();
        let Ok(crate::api::Target::Servers(target)) = place.target else { panic!("{path}") };
        let mut request = Request::builder().method(method).uri(path);
        let mut bytes = Bytes::new();
        if !body.is_null() {
            request = request.header(header::CONTENT_TYPE, "application/json");
            bytes = body.to_string().into();
        }
        if let Some(edition) = edition {
            request = request.header(header::IF_MATCH, edition);
        }
        let exchange = Exchange::new(TraceContext::default(), Instant::now(), 0, None);
        let caller = caller(who);
        let request = ApiRequest {
            parts: request.body(()).unwrap().into_parts().0,
            body: bytes,
            caller: Arc::new(caller),
            exchange: Arc::new(exchange),
        };
        let person = person(who);
        let response = self.api.answer(target, place.id, person, &request).await?;
        let (parts, body) = response.into_parts();
        let body = crate::body::collect(body, 1 << 20).await.unwrap();
        let body = serde_json::from_slice(&body).unwrap();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// What opens the server for somebody.
    pub async fn credential(&self, who: &str) -> Option<String> {
        let whose = person(who).whose(&KEY.into());
        self.vault.open(&whose).await.unwrap().map(|credential| text(&credential))
    }

    pub fn fails(&self, message: &'static str) {
        *self.server.failure.lock() = Some(message);
    }

    /// Answers wait no more; those that do are let go.
    pub fn lets_go(&self) {
        if let Some(held) = self.server.held.lock().take() {
            held.notify_waiters();
        }
    }

    pub fn works(&self) {
        *self.server.failure.lock() = None;
    }

    /// Answers wait until the test lets them go.
    pub fn holds(&self) -> Arc<Notify> {
        let held = Arc::new(Notify::new());
        *self.server.held.lock() = Some(held.clone());
        held
    }

    pub fn asked(&self) -> Vec<Option<String>> {
        self.server.asked.lock().clone()
    }

    pub fn changes(&self) -> Vec<String> {
        self.server.changes.lock().clone()
    }
}

/// The server, opened by a token.
pub fn bearer(token: &str) -> Value {
    json!({ "url": URL, "auth": { "type": "bearer", "token": token } })
}

fn policies() -> Policies {
    let source = Source { name: "p.yaml".to_owned(), text: POLICY.to_owned() };
    let file = PolicyFile { path: "p.yaml".to_owned(), source: Arc::new(source) };
    let (policies, faults) = Policies::compile(vec![file]);
    policies.unwrap_or_else(|| panic!("{faults:#?}"))
}

/// Tenant, roles and team of the directory.
fn known(who: &str) -> (&'static str, &'static [&'static str], &'static str) {
    match who {
        "E1" | "E2" => ("acme", &["member", "sharer"], "payments"),
        "E3" => ("acme", &["member"], "others"),
        "E4" => ("acme", &["guest"], "payments"),
        _ => ("globex", &["member"], "payments"),
    }
}

fn roles(who: &str) -> Roles {
    Roles::new(known(who).1.iter().map(|role| Role::new(*role)))
}

fn person(who: &str) -> Person {
    let (tenant, _, team) = known(who);
    Person {
        tenant: TenantId::new(tenant),
        employee: EmployeeId::parse(who).unwrap(),
        roles: roles(who),
        teams: vec![team.into()],
    }
}

fn worlds() -> Arc<Worlds> {
    let entries = ["E1", "E2", "E3", "E4", "G1"].map(|who| {
        let Person { tenant, employee, roles, .. } = person(who);
        (employee, DirectoryEntry { tenant, roles, teams: vec![known(who).2.into()] })
    });
    let world = World::new(Arc::default(), Arc::new([]), Arc::new(Policies::none().bind(&[])));
    let directory = Arc::new(Directory::new(entries));
    Arc::new(Worlds::new(world.with(1, directory, Arc::default())))
}

fn caller(who: &str) -> Caller {
    let Person { tenant, employee, roles, .. } = person(who);
    Caller {
        tenant,
        id: CallerId::new("gate"),
        principal: Principal { employee: Some(employee), roles, auth: Auth::Header },
        names_employees: true,
        catalog_roles: Roles::default(),
        call_sources: CallSources::default(),
        address: Ipv4Addr::LOCALHOST.into(),
        policies: 1,
        granted: None,
        missing_scopes: None,
    }
}
