//! The keyring from outside: what a restart keeps, what a rotation does to a gateway that runs,
//! and that nothing of a key is to be seen anywhere.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Output,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hangu::{
    clock::Clock,
    credential::{
        CacheLimits, Credential, Keeper, KeyringFile, Owner, Whose, key_of, store::NewCredential,
    },
    model::caller::{EmployeeId, TenantId},
    store::{self, Store},
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sqlx::{Connection, Executor, SqliteConnection};

use crate::process_support::{
    Client, Dialect, Home, Process, Response, Setup, Upstream, exchange, tool, until,
};

const PAY: &str = "pay: { risk: write_low, idempotency: optional }";

fn setup(up: &Upstream) -> Setup {
    Setup::new()
        .config("keyring: { file: keyring.json }\nlists: { page_size: 1 }")
        .upstream("up", up, "", PAY)
}

fn upstream() -> Upstream {
    Upstream::start(&[tool("echo"), tool("pay")])
}

#[track_caller]
fn run(home: &Home, args: &[&str], code: i32) -> String {
    let Output { status, stdout, stderr } = home.output(args);
    let text = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert_eq!(status.code(), Some(code), "{args:?}: {text}");
    text
}

/// `hangu keys …`, told in JSON.
#[track_caller]
fn keys(home: &Home, args: &[&str]) -> Value {
    let args = [&["keys"], args, &["--format", "json"]].concat();
    serde_json::from_str(&run(home, &args, 0)).unwrap()
}

fn id(told: &Value) -> String {
    told["id"].as_str().unwrap().to_owned()
}

/// What clients hold of a gateway, and what it keeps for them.
struct Held {
    session: Client,
    cursor: String,
    args_hash: String,
}

fn keyed(gateway: &Process, key: &str) -> Client {
    gateway.client("/mcp/up", Dialect::Modern).header("Idempotency-Key", key)
}

fn next_page(client: &Client, cursor: &str) -> Response {
    client.send("tools/list", json!({ "cursor": cursor }))
}

fn args_hash(gateway: &Process, answer: &Response) -> String {
    gateway.record_of(answer)["argsHash"].as_str().unwrap().to_owned()
}

fn hold(gateway: &Process, key: &str) -> Held {
    let (session, _) = gateway.client("/mcp/up", Dialect::Legacy).initialize();
    let list = gateway.client("/mcp/up", Dialect::Modern).send("tools/list", json!({}));
    let paid = keyed(gateway, key).call("pay", json!({ "n": 1 }));
    assert_eq!(paid.word(), "ok", "{paid:?}");
    Held {
        session,
        cursor: list.result()["nextCursor"].as_str().unwrap().to_owned(),
        args_hash: args_hash(gateway, &paid),
    }
}

impl Held {
    /// All of it is as good as it was.
    #[track_caller]
    fn is_good(&self, gateway: &Process, key: &str) {
        let session = at(&self.session, gateway);
        assert_eq!(session.call("echo", json!({})).word(), "ok");
        let modern = gateway.client("/mcp/up", Dialect::Modern);
        let page = next_page(&modern, &self.cursor);
        assert_eq!(page.result()["tools"].as_array().unwrap().len(), 1, "{page:?}");
        let again = keyed(gateway, key).call("pay", json!({ "n": 1 }));
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
        let other = keyed(gateway, key).call("pay", json!({ "n": 2 }));
        assert_eq!(other.word(), "conflict", "{other:?}");
        assert!(
            other.fault()["message"].as_str().unwrap().contains("other arguments"),
            "{other:?}"
        );
    }

    /// None of it opens, and that is said; nothing is done a second time.
    #[track_caller]
    fn is_void(&self, gateway: &Process, key: &str) {
        let session = at(&self.session, gateway);
        assert_eq!(session.call("echo", json!({})).status, 404);
        let modern = gateway.client("/mcp/up", Dialect::Modern);
        let page = next_page(&modern, &self.cursor);
        assert!(page.json()["error"].is_object(), "{page:?}");
        let again = keyed(gateway, key).call("pay", json!({ "n": 1 }));
        assert_eq!(again.word(), "conflict", "{again:?}");
        assert!(again.fault()["message"].as_str().unwrap().contains("completed"), "{again:?}");
    }
}

fn at(client: &Client, gateway: &Process) -> Client {
    let mut client = client.clone();
    client.address = gateway.address;
    client
}

fn kill(mut gateway: Process) {
    gateway.signal(9);
    gateway.wait();
}

#[test]
fn a_restart_with_the_keyring_loses_nothing_and_another_keyring_opens_nothing() {
    let up = upstream();
    let home = setup(&up).write();
    let first = id(&keys(&home, &["new"]));
    let gateway = home.serve(&[]);
    assert!(!gateway.log().contains("Keys live in memory"), "{}", gateway.log());
    let held = hold(&gateway, "k1");
    assert!(held.args_hash.starts_with(&format!("hmac-sha256:{first}:")), "{}", held.args_hash);
    kill(gateway);
    let gateway = home.serve(&[]);
    held.is_good(&gateway, "k1");
    let other = keyed(&gateway, "k2").call("pay", json!({ "n": 1 }));
    assert_eq!(args_hash(&gateway, &other), held.args_hash, "digests are still comparable");
    kill(gateway);
    fs::rename(home.path("keyring.json"), home.path("old.json")).unwrap();
    keys(&home, &["new"]);
    let gateway = home.serve(&[]);
    held.is_void(&gateway, "k1");
    assert_eq!(up.calls().iter().filter(|seen| seen.params["name"] == "pay").count(), 2);
    kill(gateway);
    // What the other one sealed is not lost while its keyring is not.
    fs::rename(home.path("old.json"), home.path("keyring.json")).unwrap();
    held.is_good(&home.serve(&[]), "k1");
}

#[test]
fn what_is_sealed_is_good_at_every_replica_with_the_keyring() {
    let up = upstream();
    let homes = [setup(&up).write(), setup(&up).write()];
    keys(&homes[0], &["new"]);
    fs::copy(homes[0].path("keyring.json"), homes[1].path("keyring.json")).unwrap();
    let [one, two] = homes.map(|home| home.serve(&[]));
    let held = hold(&one, "k1");
    let session = at(&held.session, &two);
    assert_eq!(session.call("echo", json!({})).word(), "ok");
    let page = next_page(&two.client("/mcp/up", Dialect::Modern), &held.cursor);
    assert_eq!(page.result()["tools"].as_array().unwrap().len(), 1, "{page:?}");
    let paid = keyed(&two, "k1").call("pay", json!({ "n": 1 }));
    assert_eq!(args_hash(&two, &paid), held.args_hash);
}

#[test]
fn a_rotation_is_seen_by_a_gateway_that_runs() {
    let up = upstream();
    let home = setup(&up).write();
    let first = id(&keys(&home, &["new"]));
    let mut gateway = home.serve(&[]);
    let held = hold(&gateway, "k1");

    let second = id(&keys(&home, &["rotate"]));
    gateway.wait_for_log(&format!("\"key.id\":\"{second}\""));
    held.is_good(&gateway, "k1");
    assert_eq!(id(&keys(&home, &["promote"])), second);
    gateway.wait_for_log("is primary now, it was pending");
    held.is_good(&gateway, "k1");
    let after = hold(&gateway, "k2");
    assert!(after.args_hash.starts_with(&format!("hmac-sha256:{second}:")), "{}", after.args_hash);
    assert_eq!(up.calls().iter().filter(|seen| seen.params["name"] == "pay").count(), 2);

    let status = keys(&home, &["status"]);
    let of = |status: &Value, id: &str| -> Value {
        let keys = status["keys"].as_array().unwrap();
        keys.iter().find(|key| key["id"] == *id).unwrap().clone()
    };
    let old = of(&status, &first);
    assert_eq!((&old["state"], &old["stored"]["replays"]), (&json!("retiring"), &json!(1)));
    assert_eq!(of(&status, &second)["stored"]["replays"], 1);
    let refused = run(&home, &["keys", "destroy", &first, "--yes"], 1);
    assert!(refused.contains("1 idempotency record, until 20"), "{refused}");
    run(&home, &["keys", "destroy", &second, "--yes", "--force"], 1);
    let asked = run(&home, &["keys", "destroy", &first, "--force"], 2);
    assert!(asked.contains("nothing was destroyed"), "{asked}");
    held.is_good(&gateway, "k1");

    let lost = keys(&home, &["destroy", &first, "--yes", "--force"]);
    assert_eq!((&lost["state"], &lost["lost"]["replays"]), (&json!("destroyed"), &json!(1)));
    gateway.wait_for_log("is destroyed now, it was retiring");
    held.is_void(&gateway, "k1");
    after.is_good(&gateway, "k2");
    assert_eq!(up.calls().iter().filter(|seen| seen.params["name"] == "pay").count(), 2);

    let rotations = |records: &[Value]| -> Vec<Value> {
        let of = records.iter().filter(|record| record["event"] == "key_rotation");
        of.map(|record| record["keys"].clone()).collect()
    };
    let records = gateway.audit_until(|records| rotations(records).len() >= 3);
    assert_eq!(
        rotations(&records),
        [
            json!({ "pending": [second], "primary": [first] }),
            json!({ "primary": [second], "retiring": [first] }),
            json!({ "destroyed": [first], "primary": [second] }),
        ]
    );
    kill(gateway);
    after.is_good(&home.serve(&[]), "k2");
}

#[test]
fn a_keyring_that_cannot_be_used_changes_nothing_and_starts_nothing() {
    let up = upstream();
    let home = setup(&up).write();
    let missing = run(&home, &["check"], 1);
    assert!(missing.contains("Y001") && missing.contains("hangu keys new"), "{missing}");
    keys(&home, &["new"]);
    run(&home, &["check"], 0);
    let mut gateway = home.serve(&[]);
    let held = hold(&gateway, "k1");
    let good = fs::read_to_string(home.path("keyring.json")).unwrap();
    let mode = |mode| {
        fs::set_permissions(home.path("keyring.json"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    gateway.wait_for_log("cannot be used: the keys that were read before stay in use");
    assert!(gateway.log().contains("chmod 600"));
    let open = run(&home, &["check"], 1);
    assert!(open.contains("mode 644"), "{open}");
    mode(0o600);
    fs::write(home.path("keyring.json"), good.replace("primary", "retiring")).unwrap();
    gateway.wait_for_log("no key is `primary`");
    run(&home, &["check"], 1);
    run(&home, &["serve", "--config", "hangu.yaml"], 1);
    run(&home, &["keys", "status"], 1);
    held.is_good(&gateway, "k1");
    fs::write(home.path("keyring.json"), &good).unwrap();
    keys(&home, &["rotate"]);
    gateway.wait_for_log("is pending now");
    held.is_good(&gateway, "k1");
}

#[test]
fn two_who_change_the_keyring_at_once_do_not_undo_each_other() {
    let up = upstream();
    let home = setup(&up).write();
    let alone = ["keys", "new", "--keyring", "alone.json"];
    run(&home, &alone, 0);
    run(&home, &alone, 1);
    let ended: Vec<Option<i32>> = thread::scope(|scope| {
        let rotate = || home.output(&["keys", "rotate", "--keyring", "alone.json"]).status.code();
        let all: Vec<_> = (0..6).map(|_| scope.spawn(rotate)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    // There is one pending key at most, and it is one's.
    assert_eq!(ended.iter().filter(|code| **code == Some(0)).count(), 1, "{ended:?}");
    assert_eq!(ended.iter().filter(|code| **code == Some(1)).count(), 5, "{ended:?}");
    let status = keys(&home, &["status", "--keyring", "alone.json"]);
    assert_eq!(status["keys"].as_array().unwrap().len(), 2);
    let other = run(&home, &["keys", "rewrap", "--keyring", "alone.json"], 2);
    assert!(other.contains("--config"), "{other}");
    run(&home, &["keys", "status", "--keyring", "none.json"], 4);
    run(&home, &["keys", "promote", "12345678", "--keyring", "alone.json"], 1);
    run(&home, &["keys", "promote", "nonsense", "--keyring", "alone.json"], 2);
}

/// Keeps credentials in the home's store, as a gateway would.
fn keep(home: &Home, names: &[&str]) -> Vec<Whose> {
    let keeper = keeper(home);
    let kms = keeper.kms(Arc::new(keeper.open().unwrap()));
    let address = store::Address::Sqlite(home.path("hangu.db"));
    let opened = Store::open(&address, &Clock::system()).unwrap();
    let put = |name: &&str| {
        let owner = Owner::Employee(EmployeeId::parse("E1").unwrap());
        let whose = Whose { tenant: TenantId::new("acme"), owner, server_key: (*name).into() };
        let credential = Credential::Bearer(format!("planted-{name}").into());
        let sealed = credential.seal(&*kms, &whose).unwrap();
        let (kind, key) = (credential.kind(), key_of(&sealed).unwrap());
        let new = NewCredential { whose: whose.clone(), kind, key, sealed, now_ms: 1 };
        let (told, answer) = mpsc::channel();
        opened.credentials.put(new, Box::new(move |done| told.send(done).unwrap()));
        answer.recv().unwrap().unwrap();
        whose
    };
    names.iter().map(put).collect()
}

/// What is kept there, opened.
fn kept(home: &Home, whose: &Whose) -> Result<String, String> {
    let keeper = keeper(home);
    let kms = keeper.kms(Arc::new(keeper.open().unwrap()));
    let address = store::Address::Sqlite(home.path("hangu.db"));
    let opened = Store::open(&address, &Clock::system()).unwrap();
    let (told, answer) = mpsc::channel();
    opened.credentials.get(whose.clone(), Box::new(move |held| told.send(held).unwrap()));
    let held = answer.recv().unwrap().unwrap().unwrap();
    match Credential::open(&*kms, whose, &held.sealed) {
        Ok(Credential::Bearer(token)) => Ok(token.expose_secret().to_owned()),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.to_string()),
    }
}

fn keeper(home: &Home) -> Keeper {
    let file = KeyringFile::new(home.path("keyring.json"));
    let cache = CacheLimits { age: Duration::from_secs(1), uses: 1 };
    Keeper::new(file, None, cache, Clock::system())
}

#[test]
fn stored_credentials_are_taken_along_to_the_new_key() {
    let up = upstream();
    let home = setup(&up).write();
    let first = id(&keys(&home, &["new"]));
    let names: Vec<String> = (0..150).map(|n| format!("mcp_server_{n:08x}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = keep(&home, &names);
    let stored = |id: &str| {
        let status = keys(&home, &["status"]);
        let keys = status["keys"].as_array().unwrap();
        keys.iter().find(|key| key["id"] == *id).unwrap()["stored"]["credentials"].clone()
    };
    assert_eq!(stored(&first), 150);
    let second = id(&keys(&home, &["rotate"]));
    keys(&home, &["promote"]);
    let refused = run(&home, &["keys", "destroy", &first, "--yes"], 1);
    assert!(refused.contains("150 credentials"), "{refused}");
    // Somebody gave one record's text to another; it is left, and said.
    let swapped = all[0].server_key.to_string();
    sql(
        &home,
        &format!(
            "UPDATE credential SET sealed = (SELECT sealed FROM credential WHERE server_key = '{}') \
         WHERE server_key = '{swapped}'",
            all[1].server_key
        ),
    );
    let told = run(&home, &["keys", "rewrap", "--format", "json"], 1);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["key"], &told["rewrapped"]), (&json!(second), &json!(149)), "{told}");
    assert_eq!(told["left"].as_array().unwrap().len(), 1, "{told}");
    assert!(!told.to_string().contains("planted"), "{told}");
    assert_eq!((stored(&first), stored(&second)), (json!(1), json!(149)));
    let lost = keys(&home, &["destroy", &first, "--yes", "--force"]);
    assert_eq!(lost["lost"]["credentials"], 1, "{lost}");
    for whose in &all[1..4] {
        assert_eq!(kept(&home, whose).unwrap(), format!("planted-{}", whose.server_key));
    }
    assert!(kept(&home, &all[0]).unwrap_err().contains("was destroyed"));
    let again = keys(&home, &["status"]);
    assert_eq!(again["findings"], json!([]));
    let database = fs::read(home.path("hangu.db")).unwrap();
    assert!(!database.windows(7).any(|part| part == b"planted"));
}

fn sql(home: &Home, statement: &str) {
    let url = format!("sqlite:{}", home.path("hangu.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut conn = SqliteConnection::connect(&url).await.unwrap();
        conn.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
        conn.close().await.unwrap();
    });
}

/// Writes four letters before a key, which keeps no secret, and is away where a file says so.
const PROGRAM: &str = r#"read -r line
[ -e away ] && exit 1
field() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
case "$line" in
  *'"op":"wrap"'*) printf '{"keyId":"outside","wrapped":"AAAA%s"}\n' "$(field key)" ;;
  *) printf '{"key":"%s"}\n' "$(field wrapped | cut -c5-)" ;;
esac
"#;

#[test]
fn a_program_can_keep_the_keys() {
    let up = upstream();
    let exec = "keyring: { file: keyring.json, exec: [/bin/sh, kms.sh], timeout: 5s }";
    let setup = Setup::new()
        .config(&format!("{exec}\nlists: {{ page_size: 1 }}"))
        .upstream("up", &up, "", PAY);
    let home = setup.write();
    fs::write(home.path("kms.sh"), PROGRAM).unwrap();
    keys(&home, &["new"]);
    let text = fs::read_to_string(home.path("keyring.json")).unwrap();
    assert!(text.contains("wrappedBy") && !text.contains("material"), "{text}");
    let mut gateway = home.serve(&[]);
    let held = hold(&gateway, "k1");
    // While it is away what is there goes on, and what is new waits.
    fs::write(home.path("away"), "").unwrap();
    let refused = run(&home, &["keys", "rotate"], 4);
    assert!(refused.contains("does not answer"), "{refused}");
    held.is_good(&gateway, "k1");
    fs::remove_file(home.path("away")).unwrap();
    keys(&home, &["rotate"]);
    gateway.wait_for_log("is pending now");
    kill(gateway);
    fs::write(home.path("away"), "").unwrap();
    let refused = run(&home, &["serve", "--config", "hangu.yaml"], 4);
    assert!(refused.contains("keyring:") && refused.contains("does not answer"), "{refused}");
    fs::remove_file(home.path("away")).unwrap();
    held.is_good(&home.serve(&[]), "k1");
}

#[test]
fn nothing_of_a_key_is_to_be_seen_anywhere() {
    const PLANTED: [&[u8; 32]; 2] =
        [b"planted-key-material-one-0123456", b"planted-key-material-two-0123456"];
    let up = upstream();
    let home = setup(&up).write();
    let key = |id: &str, state: &str, material: &[u8]| {
        json!({ "id": id, "state": state, "created": "2026-12-01T00:00:00Z",
                "since": "2026-12-01T00:00:00Z", "material": STANDARD.encode(material) })
    };
    let keyring = json!({ "version": 1, "keys": [
        key("1a2b3c4d", "primary", PLANTED[0]), key("5e6f7a8b", "pending", PLANTED[1]) ] });
    fs::write(home.path("keyring.json"), keyring.to_string()).unwrap();
    fs::set_permissions(home.path("keyring.json"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut gateway = home.serve(&[]);
    let held = hold(&gateway, "k1");
    let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
    for verb in [&["status"][..], &["promote"], &["rewrap"], &["status"]] {
        for format in ["human", "json"] {
            let args = [&["keys"], verb, &["--format", format]].concat();
            let Output { stdout, stderr, .. } = home.output(&args);
            seen.push((format!("{args:?}"), [stdout, stderr].concat()));
        }
    }
    gateway.wait_for_log("is primary now");
    held.is_good(&gateway, "k1");
    for (key, answer) in [
        ("k9", keyed(&gateway, "k9").call("pay", json!({ "n": 1 }))),
        ("bad cursor", next_page(&gateway.client("/mcp/up", Dialect::Modern), "x")),
        ("readyz", exchange(gateway.admin, "GET", "/readyz", &[], b"").unwrap()),
        ("version", exchange(gateway.admin, "GET", "/version", &[], b"").unwrap()),
    ] {
        seen.push((key.to_owned(), format!("{answer:?}{}", answer.text()).into_bytes()));
    }
    // A keyring that is broken is not shown either.
    let broken = keyring.to_string().replace("primary", "primry");
    fs::write(home.path("keyring.json"), broken).unwrap();
    gateway.wait_for_log("unknown `state`");
    seen.push(("check".into(), run(&home, &["check"], 1).into_bytes()));
    seen.push(("metrics".into(), gateway.metrics().into_bytes()));
    until("records are written", || home.audit().iter().any(|it| it["event"] == "key_rotation"));
    gateway.signal(15);
    gateway.wait();
    thread::sleep(Duration::from_millis(50));
    seen.push(("log".into(), gateway.log().into_bytes()));
    for name in ["audit/hangu.jsonl", "hangu.db", "hangu.db-wal"] {
        if let Ok(bytes) = fs::read(home.path(name)) {
            seen.push((name.to_owned(), bytes));
        }
    }
    assert!(seen.iter().any(|(name, _)| name == "hangu.db"));
    for material in PLANTED {
        let hex: String = material.iter().map(|byte| format!("{byte:02x}")).collect();
        let base64 = STANDARD.encode(material);
        for form in [&material[..20], &hex.as_bytes()[..20], &base64.as_bytes()[..20]] {
            for (name, bytes) in &seen {
                assert!(!bytes.windows(form.len()).any(|part| part == form), "{name}");
            }
        }
    }
}
