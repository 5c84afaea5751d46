//! What is kept for good: how each kind of it is written, and how it is looked at.

use std::{fs, io};

use serde_json::{Value, json};

use super::world::World;
use crate::process_support::{Client, Dialect, KEY, Process, Response, until};

/// One kind of what is kept.
///
/// A connection writes one after the other of its own things. Where a kind `looks_at` one write,
/// each of them overwrites the one before; else each is about something of its own.
pub struct Kind {
    pub name: &'static str,
    pub connections: usize,
    /// After so many writes they begin anew; the first one is good whatever there is.
    pub cycle: u64,
    /// How many of the last writes are looked at.
    pub looks_at: usize,
    /// A write. An error of the kind `Other` is an answer that is none; any other is the
    /// connection's.
    pub send: fn(&World, usize, u64) -> io::Result<()>,
    /// How things stand once that write is done.
    pub then: fn(usize, u64) -> String,
    /// How they stand.
    pub look: fn(&World, &Process, usize, u64) -> String,
}

#[rustfmt::skip]
pub static KINDS: [Kind; 9] = [
    Kind { name: "a secret", connections: 2, cycle: 1, looks_at: 1, send: put_secret, then: value, look: sent_secret },
    Kind { name: "a secret that comes and goes", connections: 2, cycle: 2, looks_at: 1, send: change_secret, then: is_there, look: listed_secret },
    Kind { name: "an approved definition", connections: 3, cycle: 1, looks_at: 1, send: approve_pin, then: version, look: approved_pin },
    Kind { name: "an employee's credential", connections: 3, cycle: 6, looks_at: 1, send: change_credential, then: token, look: used_credential },
    Kind { name: "an employee's server", connections: 3, cycle: 3, looks_at: 1, send: change_server, then: shared, look: told_server },
    Kind { name: "an employee's decision", connections: 2, cycle: 1, looks_at: usize::MAX, send: decide, then: decided, look: decision },
    Kind { name: "an operator's refusal", connections: 1, cycle: 1, looks_at: usize::MAX, send: refuse, then: refused, look: refusal },
    // Twenty revisions are kept.
    Kind { name: "a revision of policies", connections: 1, cycle: 1, looks_at: 15, send: apply_policy, then: policy, look: kept_policy },
    Kind { name: "another key for all of it", connections: 2, cycle: 1, looks_at: 1, send: rewrap, then: under_one_key, look: keys_in_use },
];

/// An acknowledgement is one of these statuses.
fn acknowledged(answer: &Response, statuses: &[u16]) -> io::Result<()> {
    match statuses.contains(&answer.status) {
        true => Ok(()),
        false => Err(io::Error::other(format!("{answer:?}"))),
    }
}

// === Secrets ===

pub fn put_secret(world: &World, n: usize, write: u64) -> io::Result<()> {
    let (path, body) = (format!("/admin/api/secrets/s{n}"), json!({ "value": value(n, write) }));
    acknowledged(&world.act("secret_put", "PUT", &path, &body)?, &[200])
}

fn value(_: usize, write: u64) -> String {
    format!("value-{write}")
}

fn sent_secret(world: &World, gateway: &Process, n: usize, _: u64) -> String {
    let answer = gateway.client("/mcp/up", Dialect::Modern).call("echo", json!({}));
    assert_eq!(answer.word(), "ok", "{answer:?}");
    world.up.calls().pop().unwrap().header(&format!("x-s{n}")).unwrap().to_owned()
}

fn change_secret(world: &World, n: usize, write: u64) -> io::Result<()> {
    let path = format!("/admin/api/secrets/comes-and-goes-{n}");
    let answer = match write % 2 {
        0 => world.act("secret_put", "PUT", &path, &json!({ "value": "v" }))?,
        _ => world.act("secret_delete", "DELETE", &path, &Value::Null)?,
    };
    acknowledged(&answer, &[200])
}

fn is_there(_: usize, write: u64) -> String {
    (write.is_multiple_of(2)).to_string()
}

fn listed_secret(world: &World, _: &Process, n: usize, _: u64) -> String {
    let told = world.told("/admin/api/secrets");
    let name = format!("comes-and-goes-{n}");
    told["secrets"].as_array().unwrap().iter().any(|it| it["name"] == *name).to_string()
}

// === Definitions ===

fn approve_pin(world: &World, n: usize, write: u64) -> io::Result<()> {
    let (verb, action, version) = match write % 2 {
        0 => ("approve", "pin_approve", 2),
        _ => ("rollback", "pin_rollback", 1),
    };
    let body = json!({ "upstream": "pinned", "tool": format!("t{n}"), "version": version });
    let answer = world.act(action, "POST", &format!("/admin/api/pins/{verb}"), &body)?;
    acknowledged(&answer, &[200])
}

fn version(_: usize, write: u64) -> String {
    (if write.is_multiple_of(2) { 2 } else { 1 }).to_string()
}

fn approved_pin(world: &World, _: &Process, n: usize, _: u64) -> String {
    let mut approved = None;
    until("it is listed", || {
        approved = world.pins().get(&format!("t{n}")).map(|(_, approved)| *approved);
        approved.is_some()
    });
    approved.unwrap().map_or_else(|| "-".to_owned(), |version| version.to_string())
}

// === Employees' credentials ===

/// He sets it, replaces it and deletes it; and operators take away one, or all that he has.
fn change_credential(world: &World, n: usize, write: u64) -> io::Result<()> {
    let (who, path) = (format!("C{n}"), "/v1/servers/theirs/credential");
    let put = || {
        let body = json!({ "type": "bearer", "token": token(n, write) });
        world.of(&who, "PUT", path, &body)
    };
    let revoke = |path: &str| {
        world.act(
            "credential_revoke",
            "DELETE",
            &format!("/admin/api/credentials/acme/{path}"),
            &Value::Null,
        )
    };
    let answer = match write % 6 {
        0 => world.of(&who, "DELETE", path, &Value::Null)?,
        1 | 2 | 4 => put()?,
        3 => {
            let servers = world.admin("GET", "/admin/api/servers/theirs", &Value::Null)?.json();
            revoke(&format!("{who}/{}", servers["serverKey"].as_str().unwrap()))?
        }
        _ => revoke(&who)?,
    };
    acknowledged(&answer, &[200])
}

fn token(n: usize, write: u64) -> String {
    if matches!(write % 6, 1 | 2 | 4) { format!("token-{n}-{write}") } else { "-".to_owned() }
}

fn used_credential(world: &World, gateway: &Process, n: usize, _: u64) -> String {
    world.used(gateway, &format!("C{n}"))
}

// === Employees' servers ===

fn address(world: &World, n: usize) -> String {
    format!("{}?of={n}", world.personal.url())
}

fn server_key(world: &World, n: usize) -> String {
    hangu::model::server_key::server_key(&address(world, n).parse().unwrap()).to_string()
}

fn change_server(world: &World, n: usize, write: u64) -> io::Result<()> {
    let (who, path) = (format!("S{n}"), format!("/v1/servers/{}", server_key(world, n)));
    match write % 3 {
        0 => {
            let gone = world.of(&who, "DELETE", &path, &Value::Null)?;
            acknowledged(&gone, &[200, 404, 424])
        }
        1 => {
            let auth = json!({ "type": "bearer", "token": format!("own-{n}") });
            let body = json!({ "url": address(world, n), "auth": auth });
            acknowledged(&world.of(&who, "POST", "/v1/servers", &body)?, &[201])
        }
        _ => {
            let team = json!({ "team": "payments" });
            acknowledged(&world.of(&who, "PUT", &format!("{path}/share"), &team)?, &[200])
        }
    }
}

fn shared(_: usize, write: u64) -> String {
    ["-", "his alone", "payments"][usize::try_from(write % 3).unwrap()].to_owned()
}

fn told_server(world: &World, gateway: &Process, n: usize, _: u64) -> String {
    let (who, key) = (format!("S{n}"), server_key(world, n));
    let listed = world.of(&who, "GET", "/v1/servers", &Value::Null).unwrap().json();
    let mut all = listed["servers"].as_array().unwrap().iter();
    let Some(server) = all.find(|it| it["serverKey"] == *key && it["own"] == true) else {
        return "-".to_owned();
    };
    assert_eq!(server["toolCount"], 1, "it is there with what it has: {server}");
    // A delete takes the credential first: one that was cut short leaves a server without.
    if server["hasCredential"] == true {
        let client = gateway.client(&format!("/mcp/{key}"), Dialect::Modern).employee(&who);
        assert_eq!(client.call("echo", json!({})).word(), "ok");
        let sent = world.personal.calls().pop().unwrap();
        assert_eq!(sent.header("authorization"), Some(&*format!("Bearer own-{n}")));
    }
    server["team"].as_str().unwrap_or("his alone").to_owned()
}

// === Approvals ===

/// Asks for a call of its own, and notes the request's id.
fn ask_for(
    world: &World,
    kind: &'static str,
    who: &str,
    n: usize,
    write: u64,
) -> io::Result<String> {
    let client = Client::new(world.at.lock().0, "/mcp/up", Dialect::Modern);
    let arguments = json!({ "kind": kind, "of": n, "write": write });
    let call = json!({ "name": "pay", "arguments": arguments });
    let answer = client.key(KEY).employee(who).try_send("tools/call", call)?;
    if answer.word() != "approval_required" {
        return Err(io::Error::other(format!("{answer:?}")));
    }
    let id = answer.fault()["approvalId"].as_str().unwrap().to_owned();
    world.ids.lock().insert((kind, n, write), id.clone());
    Ok(id)
}

fn decide(world: &World, n: usize, write: u64) -> io::Result<()> {
    let id = ask_for(world, "decision", &format!("A{n}"), n, write)?;
    let verb = if write.is_multiple_of(2) { "approve" } else { "refuse" };
    let path = format!("/v1/approvals/{id}/{verb}");
    acknowledged(&world.of("OWNER", "POST", &path, &json!({ "comment": "so" }))?, &[200])
}

fn decided(_: usize, write: u64) -> String {
    (if write.is_multiple_of(2) { "approved by OWNER" } else { "refused by OWNER" }).to_owned()
}

fn refuse(world: &World, n: usize, write: u64) -> io::Result<()> {
    let id = ask_for(world, "refusal", "A2", n, write)?;
    let path = format!("/admin/api/approvals/{id}/refuse");
    acknowledged(&world.act("approval_refuse", "POST", &path, &Value::Null)?, &[200])
}

fn refused(_: usize, _: u64) -> String {
    "refused by token:admin".to_owned()
}

fn decision(world: &World, _: &Process, n: usize, write: u64) -> String {
    standing(world, ("decision", n, write))
}

fn refusal(world: &World, _: &Process, n: usize, write: u64) -> String {
    standing(world, ("refusal", n, write))
}

fn standing(world: &World, of: (&'static str, usize, u64)) -> String {
    let id = world.ids.lock()[&of].clone();
    let told = world.told(&format!("/admin/api/approvals/{id}"));
    let last = told["decisions"].as_array().unwrap().last().map(|last| last["by"].clone());
    format!("{} by {}", told["state"].as_str().unwrap(), last.unwrap().as_str().unwrap())
}

// === Policies ===

fn text_of(write: u64) -> String {
    let rule = format!("{{ id: r{write}, effect: deny, tools: [\"up/none-{write}\"] }}");
    format!("version: hangu/v1\nkind: Policy\nscope: platform\nrules:\n  - {rule}\n")
}

fn apply_policy(world: &World, n: usize, write: u64) -> io::Result<()> {
    let file = world.home.path("policies/written.yaml");
    let beside = world.home.path("written.yaml");
    fs::write(&beside, text_of(write))?;
    fs::rename(beside, file)?;
    let answer = world.act("reload", "POST", "/admin/api/reload", &Value::Null)?;
    acknowledged(&answer, &[200])?;
    let policies = answer.json()["policies"].clone();
    if policies["state"] == "rejected" {
        return Err(io::Error::other(policies.to_string()));
    }
    let revision = policies["revision"].as_str().unwrap().to_owned();
    world.ids.lock().insert(("revision", n, write), revision);
    Ok(())
}

fn policy(_: usize, write: u64) -> String {
    text_of(write)
}

fn kept_policy(world: &World, _: &Process, n: usize, write: u64) -> String {
    let revision = world.ids.lock()[&("revision", n, write)].clone();
    let told = world.told(&format!("/admin/api/policy/revisions/{revision}"));
    let files = told["files"].as_array().unwrap();
    let written = files.iter().find(|file| file["path"] == "written.yaml").unwrap();
    written["text"].as_str().unwrap().to_owned()
}

// === Keys ===

fn rewrap(world: &World, _: usize, _: u64) -> io::Result<()> {
    let answer = world.act("keys_rewrap", "POST", "/admin/api/keys/rewrap", &Value::Null)?;
    acknowledged(&answer, &[200])
}

fn under_one_key(_: usize, _: u64) -> String {
    "0 under other keys".to_owned()
}

/// What was begun is finished by whoever is asked next.
fn keys_in_use(world: &World, _: &Process, n: usize, write: u64) -> String {
    rewrap(world, n, write).unwrap();
    until("it is through", || world.keys()["rewrap"]["state"] == "done");
    let told = world.keys();
    assert_eq!(told["rewrap"]["left"], json!([]), "each of them can be taken along");
    let others = told["keys"].as_array().unwrap().iter().filter(|key| key["state"] != "primary");
    let left: u64 = others.map(|key| key["stored"]["credentials"].as_u64().unwrap()).sum();
    format!("{left} under other keys")
}
