//! The log as others see it: its lines, its chain, and what failures leave in it.

mod failures;
mod lines;

use std::{
    fs, io,
    path::Path,
    sync::{Arc, mpsc},
};

use parking_lot::Mutex;
use secrecy::SecretBox;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    Audit, AuditError, Config, EmployeeForm, Keys, Observer, Record,
    storage::{Storage, Tail},
};
use crate::{
    clock::Clock,
    error::Code,
    mcp::Method,
    model::{
        caller::{Auth, CallerId, EmployeeId, Role, Roles, TenantId},
        exchange::{DecisionKind, Facts, LimitHit, LimitKind, NorthDialect, Outcome, QuotaUse},
        keys::KeySecrets,
        server::Risk,
    },
};

/// 30 November 2026, 09:14:07.481 UTC.
const NOW: u64 = 1_796_030_047_481;

fn keys() -> Arc<Keys> {
    Arc::new(Keys::new(KeySecrets::one(SecretBox::new(Box::new([7; 32])))))
}

fn start(file: &Path) -> Audit {
    let config = Config::new(file, "gw-1");
    Audit::start(config, keys(), Clock::manual(NOW), Arc::new(())).unwrap()
}

fn start_on(storage: &Shaky, queue: usize, observer: Arc<dyn Observer>) -> Audit {
    let config = Config { queue, ..Config::new("unused", "gw-1") };
    let storage = Box::new(storage.clone());
    let clock = Clock::manual(NOW);
    Audit::with_storage(config, keys(), clock, observer, storage, Tail::default()).unwrap()
}

/// Everything that can be known of a write.
fn write_facts() -> Facts {
    let mut facts = Facts {
        dialect: Some(NorthDialect::Modern),
        method: Some(Method::CallTool),
        tenant: Some(TenantId::new("acme")),
        caller: Some(CallerId::new("corp-gateway")),
        employee: EmployeeId::parse("E1009"),
        roles: Roles::new(["member", "admin"].map(Role::new)),
        auth: Some(Auth::Header),
        address: Some([10, 0, 0, 7].into()),
        tool: Some("crm/contacts.purge".into()),
        upstream: Some("crm".into()),
        server_key: Some("mcp_crm_1f0c77ab".into()),
        call_id: Some(0x0198_f2aa_bbcc_7ddd_8eee_ffff_0000_1111),
        risk: Some(Risk::WriteHigh),
        decision: Some(DecisionKind::Allow),
        reason: Some("rule_allow"),
        policy_revision: Some("3f9a1c20b7d4".into()),
        pin: Some([0xab; 32]),
        idempotency: Some("stored"),
        outcome: Some(Outcome::Throttled),
        code: Some(Code::RateLimited),
        status: Some(200),
        bytes_in: 300,
        bytes_out: 200,
        ..Facts::default()
    };
    facts.trace.trace_id = [0x4b; 16];
    facts.trace.span_id = [0x0f; 8];
    facts.rules.push("admin-purge".into());
    facts.limits.push(LimitHit { id: "user-rate".into(), kind: LimitKind::Rate });
    facts.args_hash = Some(keys().args_hash(&TenantId::new("acme"), b"{}"));
    facts
}

fn call(facts: &Facts) -> Record<'_> {
    Record::call(facts, NOW, std::time::Duration::from_micros(184))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

/// Checks a log as `hangu audit verify` would; returns its records.
fn verify(text: &str) -> Result<Vec<Value>, String> {
    let (mut records, mut torn, mut told, mut chain) = (Vec::<Value>::new(), 0, 0, None);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let Ok(record) = serde_json::from_str::<Value>(line) else {
            torn += 1;
            continue;
        };
        told += record["torn"].as_u64().unwrap_or(0);
        let own = &record["chain"];
        let (id, hash) = (own["id"].to_string(), own["hash"].as_str().unwrap().to_owned());
        let sealed = line.replacen(&format!("\"hash\":\"{hash}\","), "", 1);
        let prev = unhex(own["prev"].as_str().unwrap());
        let mut hasher = Sha256::new();
        hasher.update(b"hangu.audit.v1");
        hasher.update(prev);
        hasher.update(&sealed);
        if hasher.finalize().to_vec() != unhex(&hash) {
            return Err(format!("altered: {line}"));
        }
        let seq = record["seq"].as_u64().unwrap();
        let expected = match &chain {
            None => (seq, own["prev"].as_str().unwrap().to_owned()),
            Some((same, last, head)) if *same == id => (last + 1, String::clone(head)),
            Some((_, _, head)) => (1, head.clone()),
        };
        if (seq, own["prev"].as_str().unwrap()) != (expected.0, &*expected.1) {
            return Err(format!("out of order or missing before: {line}"));
        }
        chain = Some((id, seq, hash));
        records.push(record);
    }
    if torn == told { Ok(records) } else { Err(format!("{torn} lines are torn, {told} are told")) }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn events(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["event"].as_str().unwrap()).collect()
}

/// A file that fails when it is told to.
#[derive(Clone, Default)]
struct Shaky(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    data: Vec<u8>,
    /// Bytes that still fit.
    room: Option<usize>,
    sync_fails: bool,
    syncs: usize,
    /// Every sync waits for a word.
    gate: Option<mpsc::Receiver<()>>,
}

impl Shaky {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().data.clone()).unwrap()
    }

    fn set_room(&self, room: Option<usize>) {
        self.0.lock().room = room;
    }
}

impl Storage for Shaky {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock();
        let fits = disk.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.data.extend_from_slice(&bytes[..fits]);
        disk.room = disk.room.map(|room| room - fits);
        Ok(fits)
    }

    fn sync(&mut self) -> io::Result<()> {
        let gate = self.0.lock().gate.take();
        if let Some(gate) = gate {
            gate.recv().map_err(|_| io::Error::other("the gate is gone"))?;
            self.0.lock().gate = Some(gate);
        }
        let mut disk = self.0.lock();
        disk.syncs += 1;
        if disk.sync_fails { Err(io::Error::other("EIO")) } else { Ok(()) }
    }

    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}
