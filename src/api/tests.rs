//! Paths, who the person is, and what happens where the store or the audit log fails.

use std::{net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use http::{Method, Request};
use tokio::time::Instant;

use super::{
    approvals::Target as Of,
    servers::{Change as Does, Target as Servers},
    *,
};
use crate::{
    approval::{
        Approval, ApprovalId, Approvals, DecideFault, Demand, Local, Standing, Subject,
        store::{ApprovalStore, Change, Pick, Room, StoreFault, Then},
    },
    audit::{self, Audit, Keys},
    clock::Clock,
    credential::{InProcess, Vault, VaultLimits},
    identity::sso::{Directory, DirectoryEntry},
    model::{
        call_source::CallSources,
        caller::{Auth, CallerId, Principal, Role},
        exchange::{Exchange, KeyedDigest},
        server::Risk,
        trace::TraceContext,
    },
    policy::Policies,
    registry::server::{Archive, Registration},
    stack::stage::{Own, Personal, World},
    telemetry::{Metrics, Telemetry, Trust, env::Settings},
};

#[test]
fn every_path_has_one_meaning() {
    let of = |of| Some(Ok(Target::Approvals(of)));
    let server = |of| Some(Ok(Target::Servers(of)));
    let change = |change| Some(Ok(Target::Servers(Servers::Change(change))));
    let only = |method: Method| Some(Err(vec![method]));
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    for (method, path, id, expected) in [
        (&get, "/v1/approvals", "", of(Of::List)),
        (&get, "/v1/approvals/", "", of(Of::List)),
        (&get, "/v1/approvals/x", "x", of(Of::Show)),
        (&get, "/v1/approvals/approve", "approve", of(Of::Show)),
        (&post, "/v1/approvals/x/approve", "x", of(Of::Decide { yes: true })),
        (&post, "/v1/approvals/x/refuse", "x", of(Of::Decide { yes: false })),
        (&post, "/v1/approvals", "", only(Method::GET)),
        (&get, "/v1/approvals/x/approve", "x", only(Method::POST)),
        (&get, "/v1/approvals//approve", "", None),
        (&get, "/v1/approvals/x/approve/y", "", None),
        (&get, "/v1/approvals/x/erase", "", None),
        (&post, "/v1/steps/compile", "", Some(Ok(Target::Steps(steps::Target::Compile)))),
        (&post, "/v1/steps/run/", "", Some(Ok(Target::Steps(steps::Target::Run)))),
        (&get, "/v1/steps/run", "", only(Method::POST)),
        (&post, "/v1/steps", "", None),
        (&get, "/v1/approval", "", None),
        (&get, "/v1/servers", "", server(Servers::List)),
        (&post, "/v1/servers", "", change(Does::Register)),
        (&post, "/v1/servers/import", "", change(Does::Import)),
        (&get, "/v1/servers/mcp_a_00000000", "mcp_a_00000000", server(Servers::Show)),
        (&get, "/v1/servers/x/asset", "x", server(Servers::Asset)),
        (&delete, "/v1/servers/x", "x", change(Does::Delete)),
        (&post, "/v1/servers/x/refresh", "x", change(Does::Refresh)),
        (&put, "/v1/servers/x/credential", "x", change(Does::SetCredential)),
        (&delete, "/v1/servers/x/credential", "x", change(Does::DeleteCredential)),
        (&put, "/v1/servers/x/share", "x", change(Does::Share)),
        (&delete, "/v1/servers/x/share", "x", change(Does::Unshare)),
        (&get, "/v1/servers/x/refresh", "x", only(Method::POST)),
        (&get, "/v1/", "", None),
    ] {
        let found = find(path, method);
        assert_eq!(found.as_ref().map_or("", |place| place.id), id, "{method} {path}");
        assert_eq!(found.map(|place| place.target), expected, "{method} {path}");
    }
}

fn role(name: &str) -> Role {
    Role::new(name)
}

fn employee(id: &str) -> EmployeeId {
    EmployeeId::parse(id).unwrap()
}

/// A world of these policies, in which E1 of a tenant is an owner.
fn worlds(policies: u64, tenant: &str) -> Arc<Worlds> {
    let entry = DirectoryEntry {
        tenant: TenantId::new(tenant),
        roles: Roles::new([role("owner")]),
        teams: Vec::new(),
    };
    let world = World::new(Arc::default(), Arc::new([]), Arc::new(Policies::none().bind(&[])));
    let directory = Arc::new(Directory::new([(employee("E1"), entry)]));
    Arc::new(Worlds::new(world.with(policies, directory, Arc::default())))
}

/// E1 of `acme`, as he was known by the first policies.
fn caller(named: bool) -> Caller {
    Caller {
        tenant: TenantId::new("acme"),
        id: CallerId::new("gate"),
        principal: Principal {
            employee: named.then(|| employee("E1")),
            roles: Roles::new([role("security")]),
            auth: if named { Auth::Header } else { Auth::Key },
        },
        names_employees: true,
        catalog_roles: Roles::default(),
        call_sources: CallSources::default(),
        address: Ipv4Addr::LOCALHOST.into(),
        policies: 1,
        granted: None,
        missing_scopes: None,
    }
}

/// Fails in one way.
struct Broken(StoreFault);

impl ApprovalStore for Broken {
    fn ask(&self, _: [u8; 32], _: Room, _: Change<Standing>, then: Then<Standing>) {
        then(Err(self.0));
    }

    fn newest(&self, _: [u8; 32], then: Then<Option<Approval>>) {
        then(Err(self.0));
    }

    fn decide(
        &self,
        _: ApprovalId,
        _: Change<Result<Approval, DecideFault>>,
        then: Then<Result<Approval, DecideFault>>,
    ) {
        then(Err(self.0));
    }

    fn find(&self, _: ApprovalId, then: Then<Option<Approval>>) {
        then(Err(self.0));
    }

    fn list(&self, _: Pick, then: Then<Vec<Approval>>) {
        then(Err(self.0));
    }

    fn sweep(&self, _: u64, _: u64, then: Then<Vec<u64>>) {
        then(Err(self.0));
    }

    fn take(&self, _: [u8; 32], _: u64, then: Then<bool>) {
        then(Err(self.0));
    }

    fn put_back(&self, _: [u8; 32], then: Then<()>) {
        then(Err(self.0));
    }
}

/// Makes no call.
fn tools(worlds: Arc<Worlds>) -> ToolCalls {
    let clock = Clock::manual(1_000);
    let metrics = Arc::new(Metrics::new(1, clock.clone()));
    let telemetry = Telemetry::new(&Settings::default(), Trust::Never, "test", metrics).unwrap();
    ToolCalls {
        worlds,
        upstreams: Arc::new([]),
        personal: None,
        clock,
        telemetry: Arc::new(telemetry),
        adapted: Adapted::default(),
    }
}

/// Of any list, for a minute.
fn steps() -> StepsApi {
    let limits =
        crate::steps::Limits { max_time: std::time::Duration::from_secs(60), max_variables: 1_000 };
    let keys = Arc::new(crate::steps::Keys::new(crate::model::keys::KeySecrets::random()));
    StepsApi { keys, max_steps: 10, limits }
}

/// Nobody brings any server.
fn servers(worlds: Arc<Worlds>) -> ServersApi {
    struct Nobody;

    impl Reach for Nobody {
        fn ask(&self, _: Arc<Caller>, _: Registration) -> BoxFuture<Archive> {
            Box::pin(std::future::pending())
        }

        fn admit(&self, _: &Registration) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }

        fn connect(&self, _: &Caller, _: &Registration) -> Option<String> {
            None
        }

        fn changed(&self, _: &TenantId, _: &EmployeeId) {}
    }

    impl Personal for Nobody {
        fn of(&self, _: &Caller, _: &Arc<World>) -> Own {
            Own::Nothing
        }

        fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
            tokio::sync::watch::Sender::new(0).subscribe()
        }
    }

    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(1_000));
    let config = audit::Config::new(folder.path().join("audit.jsonl"), "test");
    let keys = Arc::new(Keys::random());
    let limits = VaultLimits::default();
    ServersApi::new(ServerParts {
        worlds,
        store: Arc::new(crate::registry::server::Local::default()),
        vault: Arc::new(Vault::new(Arc::new(InProcess::default()), None, limits, clock.clone())),
        pins: Arc::new(crate::registry::Local::default()),
        pin_bounds: crate::registry::store::Bounds { versions: 1, tools: 1 },
        self_service: Arc::new(|_| None),
        reach: Arc::new(Nobody),
        personal: Arc::new(Nobody),
        audit: Arc::new(Audit::start(config, keys, clock.clone(), Arc::new(())).unwrap()),
        clock,
    })
}

struct House {
    api: V1,
    audit: Arc<Audit>,
    approvals: Arc<Approvals>,
    _folder: tempfile::TempDir,
}

fn house(store: Arc<dyn ApprovalStore>) -> House {
    let folder = tempfile::tempdir().unwrap();
    let (keys, clock) = (Arc::new(Keys::random()), Clock::manual(1_000));
    let config = audit::Config::new(folder.path().join("audit.jsonl"), "test");
    let audit = Arc::new(Audit::start(config, keys, clock.clone(), Arc::new(())).unwrap());
    let approvals = Arc::new(Approvals::new(store, clock));
    let api = ApprovalsApi {
        approvals: approvals.clone(),
        audit: audit.clone(),
        open: Arc::new(|_| Some(Bytes::from_static(b"{\"n\": 1.0}"))),
    };
    let worlds = worlds(1, "acme");
    let (tools, servers) = (tools(worlds.clone()), servers(worlds.clone()));
    let invite = Arc::new(|_: &str, _: &Caller| None);
    let api = V1::new(worlds, api, tools, servers, steps(), invite);
    House { api, audit, approvals, _folder: folder }
}

async fn ask(house: &House, caller: Caller, method: Method, path: &str) -> Result<Bytes, Error> {
    let request = Request::builder().method(method).uri(path).body(()).unwrap();
    let exchange = Exchange::new(TraceContext::default(), Instant::now(), 0, None);
    let request = ApiRequest {
        parts: request.into_parts().0,
        body: Bytes::new(),
        caller: Arc::new(caller),
        exchange: Arc::new(exchange),
    };
    let calls = Calls::new(tower::service_fn(|_| std::future::pending()));
    let answer = house.api.answer(request, calls).await?;
    Ok(crate::body::collect(answer.into_body(), 1 << 20).await.unwrap())
}

/// A request of E7 on which E1 may decide by his role of the first policies.
async fn waiting(house: &House) -> ApprovalId {
    let demand = Demand { rule: "r".into(), roles: [role("security")].into(), count: 1 };
    let request = crate::approval::Request {
        subject: Subject {
            tenant: TenantId::new("acme"),
            caller: CallerId::new("gate"),
            requester: Some(employee("E7")),
            tool: "crm/purge".into(),
            arguments: KeyedDigest { key: 0, digest: [7; 32] },
            revision: "abc".into(),
        },
        demands: vec![demand],
        risk: Risk::WriteHigh,
        sealed: None,
        asked_ms: 1_000,
        expires_ms: 61_000,
    };
    match house.approvals.ask(request).await.unwrap() {
        Standing::Waiting { approval, .. } => approval.id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_store_that_fails_is_the_gateways_own_failure() {
    let id = ApprovalId::new(1_000);
    for (fault, retryable) in [(StoreFault::Unavailable, true), (StoreFault::Unclear, false)] {
        let house = house(Arc::new(Broken(fault)));
        for (method, path) in [
            (Method::GET, "/v1/approvals".to_owned()),
            (Method::GET, format!("/v1/approvals/{id}")),
            (Method::POST, format!("/v1/approvals/{id}/approve")),
        ] {
            let error = ask(&house, caller(true), method, &path).await.unwrap_err();
            assert_eq!((error.code(), error.retryable()), (Code::Internal, retryable), "{path}");
            assert_eq!(error.kind(), Some("store_unavailable"));
        }
    }
}

#[tokio::test]
async fn without_an_audit_log_nobody_decides_on_a_write() {
    let house = house(Arc::new(Local::default()));
    let id = waiting(&house).await;
    house.audit.stop().await.unwrap();
    let path = format!("/v1/approvals/{id}/approve");
    let error = ask(&house, caller(true), Method::POST, &path).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::Internal, Some("audit_unavailable")));
    let told = ask(&house, caller(true), Method::GET, &format!("/v1/approvals/{id}")).await;
    let told: serde_json::Value = serde_json::from_slice(&told.unwrap()).unwrap();
    assert_eq!(told["state"], "waiting");
}

#[tokio::test]
async fn a_token_without_the_scopes_of_a_call_lets_nobody_else_make_it() {
    let house = house(Arc::new(Local::default()));
    let id = waiting(&house).await;
    let scope: Option<Box<str>> = Some("tools:write".into());
    let weak = Caller { missing_scopes: Some(Arc::new([None, None, None, scope])), ..caller(true) };
    let to = |verb: &str| format!("/v1/approvals/{id}/{verb}");
    let error = ask(&house, weak.clone(), Method::POST, &to("approve")).await.unwrap_err();
    assert_eq!(error.reason(), Some("insufficient_scope"));
    assert!(error.message().contains("tools:write"), "{error}");
    ask(&house, weak, Method::POST, &to("refuse")).await.unwrap();
}

#[tokio::test]
async fn arguments_are_told_as_they_were_written() {
    let house = house(Arc::new(Local::default()));
    let id = waiting(&house).await;
    let told = ask(&house, caller(true), Method::GET, &format!("/v1/approvals/{id}")).await;
    let told = String::from_utf8(told.unwrap().into()).unwrap();
    assert!(told.contains(r#""argumentsKept":true,"arguments":{"n": 1.0}"#), "{told}");
    let listed = ask(&house, caller(true), Method::GET, "/v1/approvals").await.unwrap();
    assert!(!String::from_utf8_lossy(&listed).contains("arguments"), "not in a list");
}

#[tokio::test]
async fn roles_are_those_of_the_policies_in_force() {
    let names = |worlds: Arc<Worlds>, caller: &Caller| {
        let house = Resources {
            tools: tools(worlds.clone()),
            steps: steps(),
            servers: servers(worlds.clone()),
            invite: Arc::new(|_: &str, _: &Caller| None),
            worlds,
            approvals: ApprovalsApi {
                approvals: Arc::new(Approvals::new(Arc::new(Local::default()), Clock::manual(0))),
                audit: self::house(Arc::new(Local::default())).audit,
                open: Arc::new(|_| None),
            },
        };
        let person = house.person(caller, "why").map_err(|error| error.reason())?;
        Ok(person.roles.iter().map(|role| role.as_str().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(names(worlds(1, "acme"), &caller(true)), Ok(vec!["security".to_owned()]));
    assert_eq!(names(worlds(2, "acme"), &caller(true)), Ok(vec!["owner".to_owned()]));
    assert_eq!(names(worlds(2, "globex"), &caller(true)), Err(Some("tenant_boundary")));
    assert_eq!(names(worlds(1, "acme"), &caller(false)), Err(Some("employee_missing")));
}
