//! What ten thousand tenants cost: to compile, to reload one of them, to keep.
//!
//!     cargo bench --bench tenants [-- TENANTS [RULES]]
//!
//! Without `--bench`, as `cargo test --benches` calls it, there are twenty, to show that it runs.
//! It prints rather than measures again and again: memory and a first time are what count.
//!
//! Measured 2026-11-30 on two busy shared cores of an Intel Xeon (a load of 8), the engine alone
//! in a release build with the shipped binary's allocator, 10,000 tenants of 100 rules (82 MB):
//! compile 4.3 s (5.4 s of processor), reload of one 18 ms, bind 1,000 tools 1.1 ms, first view of
//! each tenant 21 µs, a decision 205 ns, 33 KiB a tenant besides its file. The look at a folder is
//! younger than these figures.

use std::{fmt::Write as _, fs, sync::Arc};

use hangu::{
    fault::Source,
    model::caller::{CallerId, Role, Roles, TenantId},
    policy::{Library, PolicyFile, Subject},
};
use tokio::time::Instant;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TOOLS: usize = 1_000;

fn main() {
    let numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let measured = std::env::args().any(|argument| argument == "--bench");
    let tenants = numbers.first().copied().unwrap_or(if measured { 10_000 } else { 20 });
    let rules = numbers.get(1).copied().unwrap_or(100);
    let mut files: Vec<_> = (0..tenants).map(|tenant| file(tenant, rules)).collect();
    files.push(classes());

    let mut library = Library::default();
    let before = resident();
    let policies = timed("compile all", || library.compile(files.clone()).0).expect("no faults");
    let kept = resident().saturating_sub(before);
    tell(format_args!("{tenants} tenants of {rules} rules: {} KiB a tenant", kept / tenants));
    drop(policies);

    if let Some(one) = files.get_mut(tenants / 2) {
        *one = file(tenants / 2, rules + 1);
    }
    let policies = timed("reload one", || library.compile(files.clone()).0).expect("no faults");
    folder(&files);
    let names: Vec<String> = (0..TOOLS).map(|number| format!("report_{number:03}")).collect();
    let subjects: Vec<_> = names.iter().map(|name| Subject::tool("crm", name)).collect();
    let set = timed("bind 1,000 tools", || policies.bind(&subjects));
    let (caller, roles) = (CallerId::new("gate"), Roles::new([Role::new("member")]));
    let before = resident();
    let seen = timed("first view of each tenant", || {
        let tenants = (0..tenants).map(|tenant| TenantId::new(format!("t{tenant}")));
        tenants.map(|tenant| set.view(&tenant, &caller, &roles).visible().count()).sum::<usize>()
    });
    assert!(seen > 0, "somebody sees something");
    let kept = resident().saturating_sub(before);
    tell(format_args!("views: {} bytes a tenant", kept * 1024 / tenants));
}

/// The same with files on a disk, as the gateway looks at them: every one is asked for its stamp,
/// and those are read that may have changed.
fn folder(files: &[PolicyFile]) {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |file: &PolicyFile, more: &str| {
        let path = folder.path().join(&file.path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
        fs::write(path, format!("{}{more}", file.source.text)).expect("a file");
    };
    files.iter().for_each(|file| write(file, ""));
    let mut library = Library::default();
    let look = |library: &mut Library| library.look(folder.path()).policies.expect("no faults");
    timed("look at a folder for the first time", || look(&mut library));
    // Files as young as the youngest are read again: within a tick of the file system's clock
    // they might have changed once more.
    for (what, more) in [("reload one of a folder", "# 1\n"), ("reload another", "# 2\n")] {
        #[expect(clippy::disallowed_methods, reason = "nobody else is on this thread")]
        std::thread::sleep(std::time::Duration::from_millis(2_100));
        let place = files.len() / 2;
        write(files.get(place).expect("there are files"), more);
        timed(what, || look(&mut library));
    }
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = run();
    tell(format_args!("{what}: {:?}", start.elapsed()));
    outcome
}

#[expect(clippy::print_stdout, reason = "what it prints is what it is for")]
fn tell(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}

/// Resident memory, in KiB; 0 where the system does not tell.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn file(tenant: usize, rules: usize) -> PolicyFile {
    let mut text =
        format!("version: hangu/v1\nkind: Policy\nscope: {{ tenant: t{tenant} }}\nrules:\n");
    for rule in 0..rules {
        let effect = if rule % 10 == 9 { "deny" } else { "allow" };
        writeln!(
            text,
            "  - {{ id: rule-{rule:03}, effect: {effect}, roles: [member], tools: [\"crm/report_{rule:03}*\"] }}"
        )
        .expect("a String takes all");
    }
    source(format!("tenants/t{tenant}.yaml"), text)
}

fn classes() -> PolicyFile {
    let text =
        "version: hangu/v1\nkind: Tools\nupstreams: { crm: { default: { risk: read_low } } }\n";
    source("tools.yaml".to_owned(), text.to_owned())
}

fn source(path: String, text: String) -> PolicyFile {
    PolicyFile { source: Arc::new(Source { name: path.clone(), text }), path }
}
