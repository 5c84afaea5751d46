//! What every store of personal servers does.

mod killed;

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use secrecy::ExposeSecret;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use tokio::{sync::oneshot, time::Instant};
use url::Url;

pub use self::killed::a_killed_process_loses_nothing_that_was_acknowledged;
use super::{Address, Opened, Store, suite::Place};
use crate::{
    mcp::{Family, Served, Version},
    model::{
        caller::{EmployeeId, TenantId},
        server::DialectKind,
        template::HeaderTemplate,
    },
    registry::{
        server::{
            Archive, AuthKind, Change, Changes, Failure, Kept, Local, Marker, NotPut, Options,
            Registration, ServerInfo, ServerStore, Spoken,
        },
        store::{StoreFault, Then},
    },
};

const NOW: u64 = 1_790_000_000_000;

/// One process that uses the place.
struct Process {
    servers: Arc<dyn ServerStore>,
    _store: Option<Store>,
}

fn open(place: &Place) -> Process {
    let Some(address) = &place.address else {
        return Process { servers: Arc::new(Local::default()), _store: None };
    };
    let Opened { servers, store, .. } = Store::open(address, &place.clock).unwrap();
    Process { servers, _store: Some(store) }
}

impl Process {
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn ServerStore, Then<T>),
    ) -> impl Future<Output = T> {
        let (told, answer) = oneshot::channel::<Result<T, StoreFault>>();
        question(&*self.servers, Box::new(move |it| drop(told.send(it))));
        async move { answer.await.unwrap().unwrap() }
    }

    async fn put(&self, new: &Registration) -> Result<Registration, NotPut> {
        self.ask(|servers, then| servers.put(new.clone(), 20, then)).await
    }

    async fn get(&self, of: &Registration) -> Option<Kept> {
        let (tenant, owner, key) = place_of(of);
        self.ask(|servers, then| servers.get(tenant, owner, key, then)).await
    }

    async fn set_archive(&self, of: &Registration, archive: &Archive) -> bool {
        let (tenant, owner, key) = place_of(of);
        self.ask(|servers, then| servers.set_archive(tenant, owner, key, archive.clone(), then))
            .await
    }

    async fn share(&self, of: &Registration, team: Option<&str>) -> Option<Registration> {
        let ((tenant, owner, key), team) = (place_of(of), team.map(Arc::from));
        self.ask(|servers, then| servers.share(tenant, owner, key, team, NOW + 9, then)).await
    }

    async fn delete(&self, of: &Registration) -> bool {
        let (tenant, owner, key) = place_of(of);
        self.ask(|servers, then| servers.delete(tenant, owner, key, then)).await
    }

    /// Owners and keys of what an employee sees.
    async fn sees(&self, tenant: &str, id: &str, teams: &[&str]) -> Vec<(String, String)> {
        let (tenant, teams) = (TenantId::new(tenant), teams.iter().map(|&t| t.into()).collect());
        let seen: Vec<Kept> =
            self.ask(|servers, then| servers.visible_to(tenant, employee(id), teams, then)).await;
        let named = seen.into_iter().map(|kept| kept.registration);
        named.map(|it| (it.owner.to_string(), it.server_key.to_string())).collect()
    }

    async fn changes(&self, marker: Marker) -> Changes {
        self.ask(|servers, then| servers.changes_since(marker, then)).await
    }
}

fn place_of(of: &Registration) -> (TenantId, EmployeeId, Arc<str>) {
    (of.tenant.clone(), of.owner.clone(), of.server_key.clone())
}

fn employee(id: &str) -> EmployeeId {
    EmployeeId::parse(id).unwrap()
}

fn registration(tenant: &str, owner: &str, key: &str) -> Registration {
    Registration {
        tenant: TenantId::new(tenant),
        owner: employee(owner),
        server_key: key.into(),
        url: Url::parse(&format!("https://{key}.example/mcp")).unwrap(),
        name: Some("Orders \u{2013} \"test\"".into()),
        dialect: DialectKind::StreamableHttp,
        options: Options {
            headers: vec![
                (
                    http::HeaderName::from_static("x-z"),
                    HeaderTemplate::parse("a $ctx.tenant.").unwrap(),
                ),
                (http::HeaderName::from_static("x-a"), HeaderTemplate::parse("plain").unwrap()),
            ],
            protocol: Some(Version::V2025_06_18),
            timeout: Some(Duration::from_millis(1_500)),
            max_time: Some(Duration::from_secs(120)),
            stateless: true,
            park: Some(false),
            inject_user: None,
        },
        auth: AuthKind::Bearer,
        team: None,
        created_ms: NOW,
        updated_ms: NOW,
        revision: 0,
    }
}

fn archive(tools: &[&'static str]) -> Archive {
    let mut archive = Archive {
        served: Some(Served::TOOLS),
        instructions: Some("Say \"please\".\n".into()),
        server: Some(ServerInfo { name: "orders".into(), version: "1.2".into() }),
        spoken: Some(Spoken::Handshake(Some(Version::V2025_06_18))),
        listed_ms: NOW + 1,
        ..Archive::default()
    };
    archive
        .set(Family::Tools, tools.iter().map(|tool| Bytes::from_static(tool.as_bytes())).collect());
    archive
}

pub async fn a_write_names_what_it_replaces(place: Place) {
    let process = open(&place);
    let new = registration("acme", "E1", "mcp_a_1");
    let first = process.put(&new).await.unwrap();
    assert_eq!(first, Registration { revision: 1, ..new.clone() });
    // Whoever takes it for new, or knows an older one, is told.
    assert_eq!(process.put(&new).await, Err(NotPut::Changed { revision: 1 }));
    let other = Registration { name: None, created_ms: 7, updated_ms: NOW + 5, ..first.clone() };
    let second = process.put(&other).await.unwrap();
    assert_eq!(second, Registration { revision: 2, created_ms: NOW, ..other.clone() });
    assert_eq!(process.put(&other).await, Err(NotPut::Changed { revision: 2 }));
    assert_eq!(process.get(&new).await.unwrap().registration, second);
    assert!(process.delete(&new).await);
    assert!(!process.delete(&new).await);
    assert_eq!(process.put(&second).await, Err(NotPut::Changed { revision: 0 }));
    assert_eq!(process.get(&new).await, None);
    assert_eq!(process.share(&new, Some("team")).await, None);
}

pub async fn two_addresses_of_one_key_are_not_merged(place: Place) {
    let process = open(&place);
    let own = registration("acme", "E1", "mcp_a_1");
    let url = Url::parse("https://other.example/").unwrap();
    process.put(&own).await.unwrap();
    // Whoever of the tenant it is.
    for owner in ["E1", "E2"] {
        let other = Registration { url: url.clone(), ..registration("acme", owner, "mcp_a_1") };
        assert_eq!(process.put(&other).await, Err(NotPut::Collision), "{owner}");
    }
    // Nobody takes a key away from those of another, and neither has anything of the other's.
    let theirs = Registration { url: url.clone(), ..registration("globex", "E1", "mcp_a_1") };
    process.put(&theirs).await.unwrap();
    assert!(process.set_archive(&theirs, &archive(&["theirs"])).await);
    let kept = process.get(&own).await.unwrap();
    assert_eq!((&kept.registration.url, kept.archive), (&own.url, None));
    assert!(process.delete(&theirs).await);
    assert_eq!(process.get(&own).await.unwrap().registration.url, own.url);
    let same = registration("acme", "E9", "mcp_a_1");
    process.put(&same).await.unwrap();
    // Once nobody has the one address, the other may have the key.
    assert!(process.delete(&own).await);
    let other = Registration { url, ..own };
    assert_eq!(process.put(&other).await, Err(NotPut::Collision));
    assert!(process.delete(&same).await);
    process.put(&other).await.unwrap();
}

pub async fn an_employee_has_as_many_as_he_may(place: Place) {
    let process = open(&place);
    let put = |new: Registration, most| process.ask(move |s, then| s.put(new, most, then));
    let first = put(registration("acme", "E1", "mcp_a_1"), 2).await.unwrap();
    put(registration("acme", "E1", "mcp_b_2"), 2).await.unwrap();
    let third = registration("acme", "E1", "mcp_c_3");
    assert_eq!(put(third.clone(), 2).await, Err(NotPut::Full { most: 2 }));
    // What he has he may change, and others are others.
    put(first.clone(), 2).await.unwrap();
    put(registration("acme", "E2", "mcp_c_3"), 2).await.unwrap();
    put(registration("globex", "E1", "mcp_c_3"), 2).await.unwrap();
    let count = || process.ask(|s, then| s.count(TenantId::new("acme"), employee("E1"), then));
    assert_eq!(count().await, 2);
    assert!(process.delete(&first).await);
    assert_eq!(count().await, 1);
    put(third, 2).await.unwrap();
}

pub async fn everybody_sees_his_own_and_what_his_team_shares(place: Place) {
    let process = open(&place);
    let pair = |owner: &str, key: &str| (owner.to_owned(), key.to_owned());
    for (owner, key, team, created_ms) in [
        ("E1", "mcp_a_1", Some("blue"), 5),
        ("E2", "mcp_a_1", Some("blue"), 4),
        ("E2", "mcp_b_2", Some("red"), 5),
        ("E3", "mcp_c_3", None, 5),
        ("E10", "mcp_d_4", None, 5),
    ] {
        let new = Registration { created_ms, ..registration("acme", owner, key) };
        process.put(&new).await.unwrap();
        if team.is_some() {
            let shared = process.share(&new, team).await.unwrap();
            assert_eq!((shared.team.as_deref(), shared.revision), (team, 2));
            assert_eq!((shared.updated_ms, shared.created_ms), (NOW + 9, created_ms));
            assert_eq!(process.get(&new).await.unwrap().registration, shared);
        }
    }
    let foreign = registration("globex", "E1", "mcp_a_1");
    process.put(&foreign).await.unwrap();
    process.share(&foreign, Some("blue")).await.unwrap();
    // His own before another's, and of two others' the older.
    assert_eq!(process.sees("acme", "E1", &["blue"]).await, [pair("E1", "mcp_a_1")]);
    let seen = process.sees("acme", "E3", &["blue", "red", "green"]).await;
    assert_eq!(seen, [pair("E2", "mcp_a_1"), pair("E2", "mcp_b_2"), pair("E3", "mcp_c_3")]);
    assert_eq!(process.sees("acme", "E4", &[]).await, []);
    assert_eq!(process.sees("globex", "E3", &["blue"]).await, [pair("E1", "mcp_a_1")]);
    // Nobody is taken for another because of how he is called.
    let own = process.ask(|s, then| s.list_of(TenantId::new("acme"), employee("E1"), then)).await;
    assert_eq!(own.len(), 1);
    process.share(&registration("acme", "E2", "mcp_a_1"), None).await.unwrap();
    let seen = process.sees("acme", "E3", &["blue"]).await;
    assert_eq!(seen, [pair("E1", "mcp_a_1"), pair("E3", "mcp_c_3")]);
}

pub async fn what_was_listed_is_kept_to_the_byte(place: Place) {
    let process = open(&place);
    let own = registration("acme", "E1", "mcp_a_1");
    let odd = "{ \"name\" : \"a\", \"n\":1.0, \"n\": 1e400,\t\"x\":\"\\ud800\\u0041é\" }";
    let mut listed = archive(&[odd, "{\"name\":\"b\"}"]);
    listed.set(Family::Prompts, Vec::new());
    assert!(!process.set_archive(&own, &listed).await, "nobody has registered it");
    assert_eq!(process.get(&own).await, None);
    let kept = process.put(&own).await.unwrap();
    assert_eq!(process.get(&own).await.unwrap().archive, None);
    assert!(process.set_archive(&own, &listed).await);
    let found = process.get(&own).await.unwrap();
    assert_eq!(found, Kept { registration: kept.clone(), archive: Some(listed.clone()) });
    assert_eq!(found.archive.unwrap().of(Family::Tools)[0], odd);
    // The last good listing stays beside what went wrong since, and a write of the owner's.
    let failure = Failure { message: "it did not answer".into(), at_ms: NOW + 3 };
    let failed = Archive { failure: Some(failure), ..listed };
    assert!(process.set_archive(&own, &failed).await);
    process.put(&kept).await.unwrap();
    let archives: Vec<Kept> =
        process.ask(|s, then| s.list_of(TenantId::new("acme"), employee("E1"), then)).await;
    assert_eq!(archives[0].archive.as_ref(), Some(&failed));
    // It goes with the server.
    assert!(process.delete(&own).await);
    process.put(&own).await.unwrap();
    assert_eq!(process.get(&own).await.unwrap().archive, None);
}

pub async fn others_learn_of_every_write(place: Place) {
    let process = open(&place);
    let other = if place.address.is_some() { &open(&place) } else { &process };
    let none = Changes { marker: Marker::START, too_old: false, changes: Vec::new() };
    assert_eq!(other.changes(Marker::START).await, none);
    let (a, b) = (registration("acme", "E1", "mcp_a_1"), registration("globex", "E9", "mcp_b_2"));
    let change = |of: &Registration, team: Option<&str>| {
        let (tenant, owner, server_key) = place_of(of);
        Change { tenant, owner, server_key, team: team.map(Into::into) }
    };
    let mut marker = Marker::START;
    let mut learns = async |expected: &[Change]| {
        let news = other.changes(marker).await;
        assert_eq!(news.changes, expected);
        assert_eq!(news.marker > marker, !expected.is_empty());
        marker = news.marker;
    };
    process.put(&a).await.unwrap();
    process.put(&b).await.unwrap();
    learns(&[change(&a, None), change(&b, None)]).await;
    learns(&[]).await;
    process.share(&a, Some("blue")).await.unwrap();
    learns(&[change(&a, Some("blue"))]).await;
    // A server that was written twice is told once; a refused write is none.
    process.set_archive(&b, &archive(&["{\"name\":\"x\"}"])).await;
    assert!(process.put(&a).await.is_err());
    process.share(&b, None).await.unwrap();
    learns(&[change(&b, None)]).await;
    // The same list at another time is no news, and another failure is.
    let again = Archive { listed_ms: NOW + 99, ..archive(&["{\"name\":\"x\"}"]) };
    process.set_archive(&b, &again).await;
    learns(&[]).await;
    assert_eq!(process.get(&b).await.unwrap().archive, Some(again.clone()));
    let failure = Failure { message: "no".into(), at_ms: NOW };
    process.set_archive(&b, &Archive { failure: Some(failure), ..again }).await;
    learns(&[change(&b, None)]).await;
    process.delete(&a).await;
    learns(&[change(&a, None)]).await;
    assert_eq!(other.changes(Marker::START).await.changes, [change(&b, None), change(&a, None)]);
}

pub async fn what_was_kept_is_there_after_a_restart(place: Place) {
    let own = registration("acme", "E1", "mcp_a_1");
    let process = open(&place);
    let kept = process.put(&own).await.unwrap();
    process.set_archive(&own, &archive(&["{}"])).await;
    let marker = process.changes(Marker::START).await.marker;
    drop(process);
    let process = open(&place);
    let found = process.get(&own).await.unwrap();
    assert_eq!(found, Kept { registration: kept, archive: Some(archive(&["{}"])) });
    assert_eq!(process.changes(marker).await.changes, []);
}

pub async fn of_many_who_write_at_once_one_wins(place: Place) {
    let processes = [open(&place), open(&place)];
    let puts = (0..16).map(|n: usize| {
        let name = Some(format!("writer {n}").into());
        let new = Registration { name, ..registration("acme", "E1", "mcp_a_1") };
        processes[n % 2].ask(move |s, then| s.put(new, 20, then))
    });
    let outcomes = join_all(puts).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    // Nor do many get past what he may have, or into one key with two addresses.
    let puts = (0..16).map(|n: usize| {
        let new = registration("acme", "E2", &format!("mcp_x_{n}"));
        processes[n % 2].ask(move |s, then| s.put(new, 3, then))
    });
    let kept = join_all(puts).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(kept, 3);
    let puts = (0..16).map(|n: usize| {
        let url = Url::parse(&format!("https://{n}.example/")).unwrap();
        let new = Registration { url, ..registration("acme", &format!("F{n}"), "mcp_y_1") };
        processes[n % 2].ask(move |s, then| s.put(new, 3, then))
    });
    let kept = join_all(puts).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(kept, 1);
}

async fn execute(place: &Place, sqlite: &str, postgres: &str) {
    match place.address.as_ref().unwrap() {
        Address::Sqlite(path) => {
            let url = format!("sqlite:{}", path.display());
            let mut conn = SqliteConnection::connect(&url).await.unwrap();
            conn.execute(AssertSqlSafe(sqlite.to_owned())).await.unwrap();
            conn.close().await.unwrap();
        }
        Address::Postgres(url) => {
            let mut conn = PgConnection::connect(url.expose_secret()).await.unwrap();
            conn.execute(AssertSqlSafe(postgres.to_owned())).await.unwrap();
        }
    }
}

pub async fn ten_thousand_servers_start_at_once(place: Place) {
    drop(open(&place));
    let tool = format!("{{\"name\":\"t\",\"description\":\"{}\"}}", "x".repeat(500));
    let listing = format!("{{\"tools\":[{}]}}", [&*tool; 10].join(","));
    let body = String::from_utf8(registration("acme", "E1", "k").body()).unwrap();
    let body = body.replace('\'', "''");
    let fill = |numbers: &str, blob: &str| {
        format!(
            "{numbers} INSERT INTO server SELECT 'acme', 'E' || (i / 10), 'mcp_k_' || i,
                'https://h' || i || '.example/', 'team' || (i % 100), '{body}', 1, 1, 1 FROM n;
             {numbers} INSERT INTO server_archive SELECT 'acme', 'E' || (i / 10), 'mcp_k_' || i,
                {blob}, 1, NULL, 0 FROM n;
             {numbers} INSERT INTO server_change SELECT 'acme', 'E' || (i / 10), 'mcp_k_' || i, i
                FROM n;
             UPDATE server_clock SET last = 10000"
        )
    };
    let counted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)";
    let sqlite = fill(counted, &format!("CAST('{listing}' AS BLOB)"));
    let postgres = fill(counted, &format!("convert_to('{listing}', 'UTF8')"));
    execute(&place, &sqlite, &postgres).await;
    let begun = Instant::now();
    let process = open(&place);
    // How fast is `benches/servers` to say: here only what never ends is found.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let begun = Instant::now();
    for n in 0..20 {
        let seen = process.sees("acme", &format!("E{}", 100 + 10 * n), &["team7"]).await;
        assert_eq!(seen.len(), 10 + 99, "his ten, one of which the team has, and the team's");
        let wanted = Registration {
            url: Url::parse(&format!("https://h{n}.example/")).unwrap(),
            ..registration("globex", "E9", &format!("mcp_k_{n}"))
        };
        process.put(&Registration { revision: 0, ..wanted }).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    // Nothing is missed where one answer does not hold it all.
    let first = process.changes(Marker::START).await;
    let rest = process.changes(first.marker).await;
    assert_eq!(first.changes.len() + rest.changes.len(), 10_020);
    assert_eq!(process.changes(rest.marker).await.changes, []);
}

pub async fn what_was_deleted_long_ago_is_forgotten(place: Place) {
    let process = open(&place);
    let (a, b) = (registration("acme", "E1", "mcp_a_1"), registration("acme", "E1", "mcp_b_2"));
    process.put(&a).await.unwrap();
    process.put(&b).await.unwrap();
    let early = process.changes(Marker::START).await.marker;
    process.delete(&a).await;
    let later = "UPDATE server_clock SET last = last + 200000";
    execute(&place, later, later).await;
    assert_eq!(process.changes(early).await.changes.len(), 1);
    let c = registration("acme", "E1", "mcp_c_3");
    process.put(&c).await.unwrap();
    process.delete(&c).await;
    // Whoever has not asked since cannot know what is gone, and is told so.
    let news = process.changes(early).await;
    assert!(news.too_old);
    let keys: Vec<_> = news.changes.iter().map(|change| &*change.server_key).collect();
    assert_eq!(keys, ["mcp_c_3"]);
    assert!(!process.changes(news.marker).await.too_old);
    let start = process.changes(Marker::START).await;
    assert_eq!(start.changes.len(), 2, "what is still there is told");
}
