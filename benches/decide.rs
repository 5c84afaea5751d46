//! What the engines cost that decide on one call: policy, limits, keys, sessions, replays.
//!
//!     cargo bench --bench decide [-- FILTER]
//!
//! Without `--bench`, as `cargo test --benches` calls it, each runs once, to show that it does.
//! Each is measured alone and warm; what a call pays for all of them is in `stack`.
//!
//! Measured 2026-11-30 on two shared cores of an Intel Xeon (a slow hour of a noisy machine: the
//! ratios count), medians of a quick run:
//!
//! | what | time |
//! |---|---|
//! | permit, 10 and 1,000 tools, 100 rules | 350 ns, 333 ns |
//! | deciding rule, 10 and 1,000 tools | 147 ns, 153 ns |
//! | bind 1,000 tools, 100 rules | 167 µs |
//! | first view of a kind of caller, 1,000 tools, 100 rules | 16.6 ms |
//! | two rates and a slot | 803 ns |
//! | verify one key among 100 | 196 ns |
//! | session start, open | 901 ns, 862 ns |
//! | idempotency begin and finish, replay | 466 ns, 152 ns |

mod common;

use std::{hint::black_box, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use hangu::{
    clock::Clock,
    idempotency::{Begin, Claim, ReplayKey, Replays, Scope, Settings},
    identity::{
        api_key::{CallerEntry, Callers, Identity, KeyDigest},
        seal::Sealer,
        session::{Owner, PURPOSE, Sessions},
    },
    limit::{Attempt, Concurrency, Dimension, Kind, LimitSpec, Limiter, Rate, Subject},
    mcp::{Capabilities, Version},
    model::{
        caller::CallerId,
        exchange::KeyedDigest,
        reply::{Final, ResultBody, Shape},
    },
    policy::ItemIndex,
};
use sha2::{Digest, Sha256};

/// The time that nothing here waits for.
const NOW: u64 = 1_790_000_000_000;
const RULES: usize = 100;

fn policy(c: &mut Criterion) {
    let policies = common::policies(RULES);
    let caller = common::caller();
    let (tenant, id, roles) = (&caller.tenant, &caller.id, &caller.principal.roles);
    let mut group = c.benchmark_group("policy");
    for tools in [10, 1_000] {
        let catalog = common::catalog(&[common::SERVER], tools);
        let set = common::bind(&policies, &catalog);
        let tool = ItemIndex::new(tools / 2);
        assert!(set.view(tenant, id, roles).permit(tool).is_ok());
        // What every call asks.
        group.bench_function(BenchmarkId::new("permit", tools), |b| {
            b.iter(|| set.view(tenant, id, black_box(roles)).permit(black_box(tool)));
        });
        // And which rule it was, for the record: here the last of all.
        let view = set.view(tenant, id, roles);
        group.bench_function(BenchmarkId::new("deciding rule", tools), |b| {
            b.iter(|| black_box(view.decide(black_box(tool))).rule.is_some());
        });
    }
    let catalog = common::catalog(&[common::SERVER], 1_000);
    let subjects = common::subjects(&catalog);
    // A call whose arguments two rules look at.
    let set = common::conditional_policies().bind(&subjects);
    let (tool, arguments) = (ItemIndex::new(500), Bytes::from(common::arguments(300)));
    let view = set.view(tenant, id, roles);
    assert!(view.looks_at_arguments(tool) && view.permit_call(tool, Some(&arguments)).is_ok());
    group.bench_function("permit by arguments of 300 bytes", |b| {
        b.iter(|| view.permit_call(black_box(tool), Some(&arguments)).is_ok());
    });
    // A changed catalog.
    group.bench_function(BenchmarkId::new("bind", 1_000), |b| {
        b.iter_with_large_drop(|| policies.bind(black_box(&subjects)));
    });
    // And the first caller of a kind after it, who has the globs worked out.
    group.bench_function(BenchmarkId::new("first view", 1_000), |b| {
        b.iter_batched_ref(
            || policies.bind(&subjects),
            |set| set.view(tenant, id, roles),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// A rate that is never reached, however long it is measured.
fn rate(id: &str, per: &[Dimension]) -> LimitSpec {
    const MANY: NonZeroU32 = NonZeroU32::new(1_000_000_000).expect("it is not zero");
    let kind = Kind::Rate(Rate { count: MANY, period: Duration::from_secs(1), burst: MANY });
    spec(id, per, kind)
}

fn spec(id: &str, per: &[Dimension], kind: Kind) -> LimitSpec {
    let (upstreams, tools, risks) = (Vec::new(), Vec::new(), Vec::new());
    let tenant = Some(common::tenant());
    LimitSpec { id: id.into(), tenant, per: per.into(), upstreams, tools, risks, kind }
}

fn limits(c: &mut Criterion) {
    let slots = NonZeroU32::new(64).expect("it is not zero");
    let slots = Kind::Concurrency(Concurrency { slots, queue: 64, wait: Duration::from_secs(2) });
    let limiter = Limiter::new(vec![
        rate("tenant-rate", &[Dimension::Tenant]),
        rate("tool-rate", &[Dimension::Tenant, Dimension::Tool]),
        spec("slots", &[Dimension::Tenant, Dimension::Upstream], slots),
    ])
    .expect("the limits are good");
    let catalog = common::catalog(&[common::SERVER], 1_000);
    let rules = common::bind(&common::policies(1), &catalog);
    limiter.bind(common::limited(&catalog, &rules));
    let caller = common::caller();
    let subject = Subject::new(&caller, common::limited(&catalog, &rules).nth(500));
    let enters = || match limiter.try_enter(black_box(&subject)) {
        Attempt::In(entry) => entry.admitted.tightest.iter().all(Option::is_some),
        Attempt::Out(_) | Attempt::Wait => false,
    };
    assert!(enters(), "the call meets both rates, and none holds it up");
    c.bench_function("limits/try_enter: two rates and a slot", |b| b.iter(enters));
}

fn keys(c: &mut Criterion) {
    let key = |number: usize| format!("{}-{number}", common::KEY);
    let entry = |number: usize| CallerEntry {
        id: CallerId::new(format!("caller-{number}")),
        tenant: common::tenant(),
        keys: vec![KeyDigest { sha256: Sha256::digest(key(number)).into(), expires_ms: None }],
        identity: Identity::Header,
        catalog_roles: common::roles(),
        call_sources: hangu::model::call_source::CallSources::default(),
    };
    let callers = Callers::new((0..100).map(entry).collect()).expect("no two are alike");
    let key = key(50);
    assert!(callers.verify(key.as_bytes(), NOW).is_ok());
    c.bench_function("api key/verify among 100", |b| {
        b.iter(|| callers.verify(black_box(key.as_bytes()), NOW).is_ok());
    });
}

fn sessions(c: &mut Criterion) {
    let sealer = Sealer::random(PURPOSE).expect("there is randomness");
    let sessions = Sessions::new(sealer, Duration::from_hours(1));
    let caller = common::caller();
    let owner = Owner::of(&caller);
    let start = || sessions.start(owner, Version::LATEST_LEGACY, Capabilities::default(), NOW);
    let id = start().expect("it fits");
    assert!(sessions.open(&id, owner, NOW).is_ok());
    c.bench_function("session/start", |b| b.iter(start));
    c.bench_function("session/open", |b| b.iter(|| sessions.open(black_box(&id), owner, NOW)));
}

fn replays(c: &mut Criterion) {
    /// Keys between two sweeps.
    const KEYS: u64 = 1_000;
    const DIGEST: KeyedDigest = KeyedDigest { key: 0, digest: [7; 32] };
    let clock = Clock::manual(NOW);
    let settings = Settings::default();
    let replays = Replays::new(settings, clock.clone());
    let caller = common::caller();
    let claim = |number: u64| {
        let key = ReplayKey::parse(&format!("order-{number}")).expect("it is a key");
        Claim::new(Scope::of(&caller, "orders/tool_0001", &key), DIGEST, false)
    };
    let raw: Bytes = common::result(300);
    let answer = Final::Result(ResultBody::upstream(raw, Shape::default()));
    let run = |claim| match replays.begin(claim) {
        Begin::Run(lease) => {
            lease.finish(&answer);
            true
        }
        _ => false,
    };
    let mut number = 0;
    let mut next = || {
        number += 1;
        // Not measured: what has expired is forgotten off the path of calls.
        if number % KEYS == 0 {
            clock.advance(settings.keep * 2);
            replays.sweep();
        }
        claim(number)
    };
    assert!(run(next()), "a new key is run");
    c.bench_function("idempotency/begin and finish", |b| {
        b.iter_batched(&mut next, run, BatchSize::NumIterations(KEYS));
    });
    let known = claim(0);
    assert!(run(known));
    c.bench_function("idempotency/replay", |b| {
        b.iter(|| match replays.begin(black_box(known)) {
            Begin::Replay(stored) => stored.answer(),
            _ => None,
        });
    });
    assert!(matches!(replays.begin(known), Begin::Replay(_)));
}

criterion_group!(benches, policy, limits, keys, sessions, replays);
criterion_main!(benches);
