//! What is in the store, and in the directory: written by the store's own code, as the gateway
//! would have written it. It knows of no gateway.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, sync::Arc};

use bytes::Bytes;
use hangu::{
    clock::Clock,
    mcp::{Family, Served, Version},
    model::{
        caller::{EmployeeId, TenantId},
        server::UpstreamName,
    },
    registry::{
        read_kept,
        server::{
            Archive, OptionLimits, Registrant, Registration, ServerInfo, Spoken, read_server,
        },
        store::{Bounds, Scope, Seen, StoreFault},
    },
    store::{Address, Opened, Store},
};
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

use crate::{Outcome, TENANT, TOOLS, process, stub, tell};

/// Registrations that are written at once: they share transactions.
const AT_ONCE: usize = 256;

/// Who has each of the servers.
pub fn owners(servers: usize) -> impl Iterator<Item = String> {
    (0..servers).map(|number| match number {
        0 => "E1".to_owned(),
        1..=10 => "E10".to_owned(),
        _ => format!("F{number}"),
    })
}

/// All of them, and the one who has none.
pub fn directory(servers: usize) -> Result<String, std::fmt::Error> {
    let mut text = "version: hangu/v1\nkind: Directory\nemployees:\n".to_owned();
    let everybody: BTreeSet<_> = owners(servers).chain(["E0".to_owned()]).collect();
    for employee in everybody {
        writeln!(text, "  {employee}: {{ tenant: {TENANT}, roles: [member] }}")?;
    }
    Ok(text)
}

/// What the definitions of a server take in memory, read and with their schemas compiled.
pub fn weigh() -> Outcome<()> {
    let archive = archive(0)?;
    let before = process::resident(std::process::id());
    let copies = 100;
    let read: Vec<_> = (0..copies)
        .flat_map(|_| archive.of(Family::Tools))
        .filter_map(|tool| read_kept(Bytes::copy_from_slice(tool)))
        .collect();
    let taken = process::resident(std::process::id()).saturating_sub(before);
    let text: usize = read.iter().map(|tool| tool.raw.len()).sum();
    tell(format_args!(
        "the {TOOLS} definitions of a server: {:.1} KiB as text, {:.1} KiB read",
        text as f64 / 1024.0 / f64::from(copies),
        taken as f64 / 1024.0 / f64::from(copies),
    ));
    Ok(())
}

/// Writes so many servers as the gateway would have. Gives the keys of the first two.
pub async fn fill(file: &Path, servers: usize, stub: &str) -> Outcome<Vec<Arc<str>>> {
    let begun = Instant::now();
    let clock = Clock::system();
    let opened = Arc::new(Store::open(&Address::Sqlite(file.to_owned()), &clock)?);
    let archive = Arc::new(archive(clock.now_ms())?);
    let mut writers = JoinSet::new();
    let mut keys = Vec::new();
    for (number, owner) in owners(servers).enumerate() {
        let registration = registration(number, &owner, stub, clock.now_ms())?;
        if number < 2 {
            keys.push(registration.server_key.clone());
        }
        if writers.len() >= AT_ONCE
            && let Some(written) = writers.join_next().await
        {
            written??;
        }
        writers.spawn(write(opened.clone(), registration, archive.clone()));
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    if let Some(opened) = Arc::into_inner(opened) {
        opened.store.close();
    }
    tell(format_args!(
        "{servers} servers with {} definitions written in {:.1?}: {:.1} MiB",
        servers * TOOLS,
        begun.elapsed(),
        fs::metadata(file)?.len() as f64 / 1_048_576.0,
    ));
    Ok(keys)
}

fn registration(number: usize, owner: &str, stub: &str, now_ms: u64) -> Outcome<Registration> {
    let body = format!(
        r#"{{"url":"http://{stub}/mcp/{TOOLS}?n={number}","name":"Orders","dialect":"streamable-http"}}"#
    );
    let owner = EmployeeId::parse(owner).ok_or("no employee is called so")?;
    let registrant = Registrant { tenant: TenantId::new(TENANT), owner, now_ms };
    let read = read_server(Bytes::from(body), &registrant, &OptionLimits::NONE);
    Ok(read.map_err(|faults| format!("{faults:?}"))?.registration)
}

/// What the stub lists, as it is kept.
fn archive(now_ms: u64) -> Outcome<Archive> {
    let list: serde_json::Value = serde_json::from_slice(&stub::list_of(TOOLS))?;
    let tools = list.get("tools").and_then(|tools| tools.as_array()).ok_or("no list")?;
    let mut archive = Archive {
        served: Some(Served::TOOLS),
        server: Some(ServerInfo { name: "stub".into(), version: "1".into() }),
        spoken: Some(Spoken::Modern(Version::LATEST)),
        listed_ms: now_ms,
        ..Archive::default()
    };
    archive.set(Family::Tools, tools.iter().map(|tool| tool.to_string().into()).collect());
    Ok(archive)
}

async fn write(
    opened: Arc<Opened>,
    registration: Registration,
    archive: Arc<Archive>,
) -> Result<(), StoreFault> {
    let Registration { tenant, owner, server_key, .. } = registration.clone();
    let at_ms = registration.created_ms;
    let (tell, told) = oneshot::channel();
    opened.servers.put(registration, 1_000, Box::new(move |put| _ = tell.send(put)));
    let put = told.await.unwrap_or(Err(StoreFault::Unclear))?;
    put.map_err(|_| StoreFault::Unclear)?;
    let (tell, told) = oneshot::channel();
    let then = Box::new(move |kept| _ = tell.send(kept));
    let of = (tenant.clone(), owner.clone(), server_key.clone());
    opened.servers.set_archive(of.0, of.1, of.2, (*archive).clone(), then);
    told.await.unwrap_or(Err(StoreFault::Unclear))?;
    let name = UpstreamName::of_key(&server_key).ok_or(StoreFault::Unclear)?;
    let scope = Scope::own(&tenant, &owner, &name);
    let read = archive.of(Family::Tools).iter().filter_map(|tool| read_kept(tool.clone()));
    let seen = read.map(|tool| Seen {
        tool: tool.name.clone(),
        digest: tool.digest,
        definition: tool.raw.clone(),
        first_use: true,
    });
    let (tell, told) = oneshot::channel();
    let bounds = Bounds { versions: 20, tools: 1_000 };
    let then = Box::new(move |kept| _ = tell.send(kept));
    opened.pins.keep(scope, seen.collect(), bounds, at_ms, then);
    told.await.unwrap_or(Err(StoreFault::Unclear)).map(drop)
}
