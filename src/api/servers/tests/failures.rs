//! Stores that are lost at any point, clients that go away, and two changes at once.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::house::{House, KEY, SECRET, URL, bearer};
use crate::{
    credential::{
        CredentialRef, InProcess, Owner, Whose,
        store::{
            Anew, CredentialStore, Held, KeyUse, NewCredential, Pick, StoreFault as Lost,
            Then as Told,
        },
    },
    error::Code,
    model::caller::{EmployeeId, TenantId},
    registry::{
        server::{Archive, Changes, Kept, Local, Marker, NotPut, Registration, ServerStore},
        store::{StoreFault, Then},
    },
};

/// Both stores, as one database that is lost after so many questions.
pub struct Mortal {
    servers: Local,
    credentials: InProcess,
    left: AtomicI64,
}

impl Mortal {
    pub fn new(servers: Local, credentials: InProcess) -> Self {
        Self { servers, credentials, left: AtomicI64::new(i64::MAX) }
    }

    /// It answers so many more questions.
    pub fn answers(&self, more: i64) {
        self.left.store(more, Ordering::SeqCst);
    }

    /// How many it could still have answered.
    pub fn left(&self) -> i64 {
        self.left.load(Ordering::SeqCst)
    }

    fn is_lost(&self) -> bool {
        self.left.fetch_sub(1, Ordering::SeqCst) <= 0
    }
}

macro_rules! unless_lost {
    ($own:ident, $then:ident, $fault:expr, $ask:expr) => {
        if $own.is_lost() { $then(Err($fault)) } else { $ask }
    };
}

impl ServerStore for Mortal {
    fn put(&self, new: Registration, most: u32, then: Then<Result<Registration, NotPut>>) {
        unless_lost!(self, then, StoreFault::Unavailable, self.servers.put(new, most, then));
    }

    fn get(&self, t: TenantId, o: EmployeeId, k: Arc<str>, then: Then<Option<Kept>>) {
        unless_lost!(self, then, StoreFault::Unavailable, self.servers.get(t, o, k, then));
    }

    fn list_of(&self, t: TenantId, o: EmployeeId, then: Then<Vec<Kept>>) {
        unless_lost!(self, then, StoreFault::Unavailable, self.servers.list_of(t, o, then));
    }

    fn visible_to(&self, t: TenantId, e: EmployeeId, of: Vec<Arc<str>>, then: Then<Vec<Kept>>) {
        unless_lost!(self, then, StoreFault::Unavailable, self.servers.visible_to(t, e, of, then));
    }

    fn delete(&self, t: TenantId, o: EmployeeId, k: Arc<str>, then: Then<bool>) {
        unless_lost!(self, then, StoreFault::Unavailable, self.servers.delete(t, o, k, then));
    }

    fn set_archive(
        &self,
        t: TenantId,
        o: EmployeeId,
        k: Arc<str>,
        archive: Archive,
        then: Then<bool>,
    ) {
        let ask = |then| self.servers.set_archive(t, o, k, archive, then);
        unless_lost!(self, then, StoreFault::Unavailable, ask(then));
    }

    fn share(
        &self,
        t: TenantId,
        o: EmployeeId,
        k: Arc<str>,
        team: Option<Arc<str>>,
        now_ms: u64,
        then: Then<Option<Registration>>,
    ) {
        let ask = |then| self.servers.share(t, o, k, team, now_ms, then);
        unless_lost!(self, then, StoreFault::Unavailable, ask(then));
    }

    fn count(&self, t: TenantId, o: EmployeeId, then: Then<u64>) {
        unless_lost!(self, then, StoreFault::Unavailable, self.servers.count(t, o, then));
    }

    fn changes_since(&self, marker: Marker, then: Then<Changes>) {
        self.servers.changes_since(marker, then);
    }
}

impl CredentialStore for Mortal {
    fn put(&self, new: NewCredential, then: Told<CredentialRef>) {
        unless_lost!(self, then, Lost::Unavailable, self.credentials.put(new, then));
    }

    fn get(&self, whose: Whose, then: Told<Option<Held>>) {
        unless_lost!(self, then, Lost::Unavailable, self.credentials.get(whose, then));
    }

    fn find(&self, tenant: TenantId, reference: CredentialRef, then: Told<Option<Held>>) {
        self.credentials.find(tenant, reference, then);
    }

    fn delete(&self, whose: Whose, then: Told<bool>) {
        unless_lost!(self, then, Lost::Unavailable, self.credentials.delete(whose, then));
    }

    fn list(&self, tenant: TenantId, owner: Owner, then: Told<Vec<Held>>) {
        unless_lost!(self, then, Lost::Unavailable, self.credentials.list(tenant, owner, then));
    }

    fn key_uses(&self, then: Told<Vec<KeyUse>>) {
        self.credentials.key_uses(then);
    }

    fn not_under(&self, key: String, after: Option<CredentialRef>, then: Told<Vec<Held>>) {
        self.credentials.not_under(key, after, then);
    }

    fn pick(&self, pick: Pick, then: Told<Vec<Held>>) {
        self.credentials.pick(pick, then);
    }

    fn delete_all(&self, tenant: TenantId, owner: Owner, then: Told<Vec<Arc<str>>>) {
        self.credentials.delete_all(tenant, owner, then);
    }

    fn replace_sealed(&self, old: Held, anew: Anew, then: Told<bool>) {
        self.credentials.replace_sealed(old, anew, then);
    }
}

const MANY: i64 = i64::MAX;

/// Each change, from a server that is registered with `first`.
fn changes() -> [(Method, String, Value); 5] {
    let path = format!("/v1/servers/{KEY}");
    [
        (Method::POST, "/v1/servers".to_owned(), bearer("second")),
        (Method::DELETE, path.clone(), Value::Null),
        (
            Method::PUT,
            format!("{path}/credential"),
            json!({ "type": "basic", "user": "u", "password": "second" }),
        ),
        (Method::PUT, format!("{path}/share"), json!({ "team": "payments" })),
        (Method::POST, format!("{path}/refresh"), Value::Null),
    ]
}

#[tokio::test]
async fn a_store_that_is_lost_at_any_point_has_acknowledged_nothing() {
    for at in 0.. {
        let house = House::new();
        house.life.answers(at);
        let outcome = house.ask("E1", Method::POST, "/v1/servers", &bearer(SECRET)).await;
        let has_run = house.life.left() >= 0;
        house.life.answers(MANY);
        let listed = house.get("E1", "/v1/servers").await.unwrap().body["servers"].clone();
        if has_run {
            assert_eq!(outcome.unwrap().status, 201);
            assert!(at > 4, "it asked {at} questions");
            break;
        }
        let error = outcome.unwrap_err();
        assert_eq!((error.code(), error.retryable()), (Code::Internal, true), "{at}: {error}");
        assert_eq!(error.kind(), Some("store_unavailable"));
        // Where it is registered nonetheless, it has its credential: the answer alone was lost.
        if listed != json!([]) {
            assert_eq!(house.credential("E1").await.as_deref(), Some(SECRET), "{at}");
        }
        // The same again does it.
        house.ask("E1", Method::POST, "/v1/servers", &bearer(SECRET)).await.unwrap();
        let told = house.get("E1", &format!("/v1/servers/{KEY}")).await.unwrap().body;
        assert_eq!((&told["health"], &told["hasCredential"]), (&json!("ok"), &json!(true)), "{at}");
    }
}

#[tokio::test]
async fn a_change_that_was_cut_off_can_be_made_again() {
    for (method, path, body) in changes() {
        for at in 0.. {
            let house = House::new();
            house.ask("E1", Method::POST, "/v1/servers", &bearer("first")).await.unwrap();
            house.life.answers(at);
            let outcome = house.ask("E1", method.clone(), &path, &body).await;
            let has_run = house.life.left() >= 0;
            house.life.answers(MANY);
            if has_run {
                outcome.unwrap();
                break;
            }
            let error = outcome.unwrap_err();
            let told = (error.code(), error.retryable());
            assert_eq!(told, (Code::Internal, true), "{method} {path} {at}: {error}");
            house.ask("E1", method.clone(), &path, &body).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_begun_is_taken_back_though_the_client_be_gone() {
    let house = House::new();
    house.fails("it has no tools");
    let held = house.holds();
    let asking = house.clone();
    let body = bearer(SECRET);
    let asked = tokio::time::timeout(
        std::time::Duration::from_millis(50),
        asking.ask("E1", Method::POST, "/v1/servers", &body),
    );
    asked.await.unwrap_err();
    assert_eq!(house.credential("E1").await.as_deref(), Some(SECRET), "it is being asked");
    held.notify_one();
    while house.credential("E1").await.is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn of_two_changes_at_once_one_is_told_that_it_came_second() {
    let house = House::new();
    let held = house.holds();
    let mut changes = JoinSet::new();
    let (first, body) = (house.clone(), bearer("first"));
    changes.spawn(async move { first.ask("E1", Method::POST, "/v1/servers", &body).await });
    while house.asked().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let second = house.ask("E1", Method::POST, "/v1/servers", &bearer("second")).await.unwrap_err();
    assert_eq!(second.code(), Code::Conflict);
    assert!(second.retry_after().is_some());
    // Somebody else's is no matter of theirs.
    let (other, body) = (house.clone(), bearer("other"));
    changes.spawn(async move { other.ask("E2", Method::POST, "/v1/servers", &body).await });
    while house.asked().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    held.notify_waiters();
    while let Some(changed) = changes.join_next().await {
        assert_eq!(changed.unwrap().unwrap().status, 201);
    }
    assert_eq!(house.credential("E1").await.as_deref(), Some("first"));
}

#[tokio::test]
async fn of_two_processes_that_register_one_server_at_once_the_last_word_is_kept_whole() {
    for edition in [None, Some("0")] {
        let house = House::new();
        let other = house.replica();
        house.holds();
        let basic = |word| json!({ "type": "basic", "user": "u", "password": word });
        let mut changes = JoinSet::new();
        for (house, auth) in [
            (house.clone(), json!({ "type": "bearer", "token": "first" })),
            (other.clone(), basic("second")),
        ] {
            let body = json!({ "url": URL, "auth": auth });
            changes.spawn(async move {
                house.ask_if("E1", Method::POST, "/v1/servers", &body, edition).await
            });
        }
        while house.asked().len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        house.lets_go();
        let mut statuses = Vec::new();
        while let Some(changed) = changes.join_next().await {
            statuses.push(changed.unwrap().map_or_else(
                |error| {
                    assert_eq!(error.code(), Code::Conflict, "{error}");
                    409
                },
                |answer| answer.status.as_u16(),
            ));
        }
        statuses.sort_unstable();
        // Who names the edition that he has seen is told that it is another.
        let expected = if edition.is_none() { [200, 201] } else { [201, 409] };
        assert_eq!(statuses, expected, "{edition:?}");
        if edition.is_none() {
            let told = house.get("E1", &format!("/v1/servers/{KEY}")).await.unwrap().body;
            let kind = if house.credential("E1").await.as_deref() == Some("first") {
                "bearer"
            } else {
                "basic"
            };
            assert_eq!((&told["auth"], &told["edition"]), (&json!(kind), &json!(2)), "{told}");
        }
    }
}

#[tokio::test]
async fn who_has_seen_an_older_edition_changes_nothing() {
    let house = House::new();
    house.ask("E1", Method::POST, "/v1/servers", &bearer("first")).await.unwrap();
    house.ask("E1", Method::POST, "/v1/servers", &bearer("second")).await.unwrap();
    let path = format!("/v1/servers/{KEY}");
    for (edition, code) in [
        ("\"1\"", Some(Code::Conflict)),
        ("7", Some(Code::Conflict)),
        ("x", Some(Code::InvalidArgs)),
        ("\"2\"", None),
        ("*", None),
    ] {
        let body = bearer("third");
        let post = house.ask_if("E1", Method::POST, "/v1/servers", &body, Some(edition)).await;
        assert_eq!(post.err().map(|error| error.code()), code, "{edition}");
    }
    let gone = house.ask_if("E1", Method::DELETE, &path, &Value::Null, Some("\"2\"")).await;
    assert_eq!(gone.unwrap_err().code(), Code::Conflict);
    house.ask_if("E1", Method::DELETE, &path, &Value::Null, Some("\"4\"")).await.unwrap();
    let gone = house.ask_if("E1", Method::POST, "/v1/servers", &bearer("x"), Some("*")).await;
    assert_eq!(gone.unwrap_err().code(), Code::Conflict, "there is nothing to be replaced");
}
