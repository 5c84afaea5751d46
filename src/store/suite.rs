//! The contract that every store passes: the life of a key, looked at through the engine, in one
//! process and across several.

pub(super) mod quotas;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;
use secrecy::SecretBox;

use super::{Address, Store};
use crate::{
    clock::Clock,
    idempotency::{
        Begin, Bodies, Claim, Lease, ReplayKey, Replays, Saved, Scope, Settings, Stored,
    },
    model::{
        caller::{CallerId, TenantId},
        exchange::KeyedDigest,
        keys::KeySecrets,
        reply::{Final, ResultBody, RpcError, Shape},
    },
};

const DAY: Duration = Duration::from_hours(24);

/// A place for records, and the time there.
pub(super) struct Place {
    /// `None`: in the process.
    pub address: Option<Address>,
    pub clock: Clock,
    /// Keeps what the address stands for.
    pub _held: Option<tempfile::TempDir>,
}

/// One process that uses the place.
pub(super) struct Process {
    pub replays: Arc<Replays>,
    secret: u8,
    /// After the records, whose ends it still writes.
    pub store: Option<Store>,
}

impl Place {
    pub fn process(&self, settings: Settings, secret: u8) -> Process {
        let Some(address) = &self.address else {
            let replays = Replays::new(settings, self.clock.clone());
            return Process { replays, secret, store: None };
        };
        let opened = Store::open(address, &self.clock).unwrap();
        let bodies = Bodies::new(&KeySecrets::one(SecretBox::new(Box::new([secret; 32]))));
        let replays =
            Replays::durable(settings, self.clock.clone(), opened.replays, bodies, opened.usage);
        Process { replays, secret, store: Some(opened.store) }
    }

    pub fn start(&self) -> Process {
        self.process(settings(), 1)
    }
}

pub(super) fn settings() -> Settings {
    Settings { wait: Duration::from_millis(600), ..Settings::default() }
}

impl Process {
    pub fn claim(&self, key: &str, arguments: u8) -> Claim {
        let (tenant, caller) = (TenantId::new("acme"), CallerId::new("gate"));
        let key = ReplayKey::parse(key).unwrap();
        let scope =
            Scope { tenant: &tenant, caller: &caller, employee: None, tool: "up/pay", key: &key };
        let digest = KeyedDigest { key: self.secret.into(), digest: [arguments; 32] };
        Claim::new(scope, digest, key.as_str().starts_with("safe"))
    }

    /// Without waiting for a call that runs.
    pub async fn begin(&self, key: &str, arguments: u8) -> Begin {
        match self.replays.begin(self.claim(key, arguments)) {
            Begin::Ask(inquiry) => inquiry.ask().await,
            decided => decided,
        }
    }

    pub async fn run(&self, key: &str) -> Lease {
        match self.begin(key, 1).await {
            Begin::Run(lease) => lease,
            other => panic!("{key}: {other:?}"),
        }
    }

    pub async fn word(&self, key: &str, arguments: u8) -> String {
        said(&self.begin(key, arguments).await)
    }

    #[track_caller]
    fn tell(&self, key: &str, expected: &str) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let word = self.word(key, 1).await;
            assert_eq!(word, expected, "{key} at {at}");
        }
    }

    /// Sweeps until so many keys are kept.
    #[track_caller]
    fn sweeps_to(&self, keys: usize) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            for _ in 0..200 {
                self.replays.sweep();
                tokio::time::sleep(Duration::from_millis(10)).await;
                if self.replays.usage().keys == keys {
                    return;
                }
            }
            panic!("{:?} and not {keys} at {at}", self.replays.usage());
        }
    }
}

/// What a call is told, in words.
pub(super) fn said(begin: &Begin) -> String {
    match begin {
        Begin::Run(_) => "run".to_owned(),
        Begin::Ask(_) => "ask".to_owned(),
        Begin::Replay(stored) => match &**stored {
            Stored::Result(body) => format!("result {}", String::from_utf8_lossy(&body.raw)),
            Stored::Error(error) => format!("error {}", error.code),
            Stored::NotKept { bytes, .. } => format!("not kept: {bytes}"),
            Stored::Unreadable => "unreadable".to_owned(),
        },
        Begin::Conflict => "conflict".to_owned(),
        Begin::InFlight(_) => "in flight".to_owned(),
        Begin::Unknown => "unknown".to_owned(),
        Begin::Full => "full".to_owned(),
        Begin::Down => "down".to_owned(),
    }
}

pub(super) fn result(text: &str) -> Final {
    let raw = Bytes::copy_from_slice(text.as_bytes());
    Final::Result(ResultBody::upstream(raw, Shape::default()))
}

fn at_once() -> Settings {
    Settings { wait: Duration::ZERO, ..settings() }
}

// === In one process ===

pub(super) async fn a_finished_call_is_answered_again(place: Place) {
    let process = place.start();
    let text = r#"{"b":1.0,"a":[9007199254740993]}"#;
    assert!(process.run("k1").await.finish(&result(text)).wait().await);
    let error = RpcError { code: -7, message: Bytes::from_static(b"\"no\""), data: None };
    assert!(process.run("k2").await.finish(&Final::Error(error)).wait().await);
    let long = "x".repeat((256 << 10) + 1);
    assert!(process.run("k3").await.finish(&result(&long)).wait().await);
    assert!(process.run("k4").await.finish(&result(&long[1..])).wait().await);
    for _ in 0..2 {
        process.tell("k1", &format!("result {text}")).await;
        process.tell("k2", "error -7").await;
        process.tell("k3", "not kept: 262145").await;
        process.tell("k4", &format!("result {}", &long[1..])).await;
        assert_eq!(process.word("k1", 2).await, "conflict");
    }
    process.sweeps_to(4).await;
}

pub(super) async fn a_call_that_did_not_take_place_frees_its_key(place: Place) {
    let process = place.start();
    assert!(process.run("k1").await.free().wait().await);
    // Also to other arguments.
    let Begin::Run(lease) = process.begin("k1", 2).await else { panic!() };
    drop(lease);
    drop(process.begin("k2", 1).await);
    // Given up before the store was asked.
    drop(process.replays.begin(process.claim("k3", 1)));
    process.sweeps_to(0).await;
    drop(process.run("k1").await);
}

pub(super) async fn an_unknown_outcome_is_never_run_again(place: Place) {
    let process = place.start();
    assert!(process.run("told").await.unknown().wait().await);
    let lease = process.run("dropped").await;
    lease.sent_mark().store(true, std::sync::atomic::Ordering::Release);
    drop(lease);
    process.tell("told", "unknown").await;
    // Nobody waited for its end to be written; until it is, it is in flight.
    while process.word("dropped", 1).await == "in flight" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for key in ["told", "dropped"] {
        process.tell(key, "unknown").await;
        assert_eq!(process.word(key, 2).await, "conflict");
    }
    // Unless the tool may be run twice; and then not once it is known.
    assert!(process.run("safe").await.unknown().wait().await);
    assert_eq!(process.word("safe", 2).await, "conflict");
    assert!(process.run("safe").await.finish(&result("again")).wait().await);
    process.tell("safe", "result again").await;
}

pub(super) async fn a_record_stays_its_full_time_and_no_longer(place: Place) {
    let process = place.start();
    assert!(process.run("done").await.finish(&result("{}")).wait().await);
    assert!(process.run("unknown").await.unknown().wait().await);
    place.clock.advance(DAY - Duration::from_millis(1));
    process.sweeps_to(2).await;
    process.tell("done", "result {}").await;
    process.tell("unknown", "unknown").await;
    place.clock.advance(Duration::from_millis(1));
    // Gone also if nobody has swept yet, and then it is somebody else's key.
    let Begin::Run(lease) = process.begin("done", 2).await else { panic!() };
    assert!(lease.finish(&result("other")).wait().await);
    process.sweeps_to(1).await;
    place.clock.advance(DAY);
    process.sweeps_to(0).await;
    drop(process.run("unknown").await);
}

pub(super) async fn a_full_store_refuses_new_keys_and_forgets_none(place: Place) {
    let process = place.process(Settings { max_keys: 2, ..settings() }, 1);
    assert!(process.run("k1").await.finish(&result("{}")).wait().await);
    let running = process.run("k2").await;
    process.tell("k3", "full").await;
    process.tell("k2", "in flight").await;
    assert!(running.free().wait().await);
    assert!(process.run("k3").await.unknown().wait().await);
    process.tell("k4", "full").await;
    drop(process);
    // What an earlier process left counts too.
    let process = place.process(Settings { max_keys: 2, ..settings() }, 1);
    if place.address.is_some() {
        process.tell("k4", "full").await;
    }
    place.clock.advance(DAY);
    assert_eq!(process.replays.usage().keys, if place.address.is_some() { 2 } else { 0 });
    process.sweeps_to(0).await;
    drop(process.run("k4").await);
}

pub(super) async fn of_many_first_calls_one_runs(place: Place) {
    let processes = [place.process(at_once(), 1), place.process(at_once(), 1)];
    // In one process the other one is another world.
    let used = if place.address.is_some() { 2 } else { 1 };
    for round in 0..25 {
        let key = format!("k{round}");
        let calls = (0..20).map(|n| processes[n % used].begin(&key, 1));
        let begun = futures_util::future::join_all(calls).await;
        let words: Vec<String> = begun.iter().map(said).collect();
        let ran = words.iter().filter(|word| *word == "run").count();
        assert_eq!(ran, 1, "{words:?}");
        assert!(words.iter().all(|word| ["run", "in flight"].contains(&&**word)), "{words:?}");
        for begin in begun {
            if let Begin::Run(lease) = begin {
                assert!(lease.finish(&result("{}")).wait().await);
            }
        }
        processes[round % used].tell(&key, "result {}").await;
    }
}

// === Across processes, where the place outlives them ===

pub(super) async fn a_restart_forgets_nothing(place: Place) {
    let process = place.start();
    let text = r#"{"content":[{"type":"text","text":"paid"}],"n":1.00}"#;
    assert!(process.run("done").await.finish(&result(text)).wait().await);
    assert!(process.run("unknown").await.unknown().wait().await);
    let lease = process.run("cut-short").await;
    drop(process.store);
    let next = place.start();
    next.tell("done", &format!("result {text}")).await;
    next.tell("unknown", "unknown").await;
    // The process that ran it is gone and said so.
    next.tell("cut-short", "unknown").await;
    assert_eq!(next.word("done", 2).await, "conflict");
    drop(lease);
    // Under another secret it can be told that there was a call, and no more.
    let other = place.process(settings(), 2);
    other.tell("done", "unreadable").await;
    assert_eq!(other.word("done", 2).await, "unreadable");
    other.tell("unknown", "unknown").await;
}

pub(super) async fn a_lease_that_ran_out_is_an_unknown_outcome(place: Place) {
    let (one, other) = (place.start(), place.process(at_once(), 1));
    let lease = one.run("k1").await;
    other.tell("k1", "in flight").await;
    assert_eq!(other.word("k1", 2).await, "conflict");
    place.clock.advance(settings().lease - Duration::from_millis(1));
    other.tell("k1", "in flight").await;
    place.clock.advance(Duration::from_millis(1));
    other.tell("k1", "unknown").await;
    // Whoever ran it may know better after all.
    assert!(lease.finish(&result("late")).wait().await);
    other.tell("k1", "result late").await;
    // One that is in flight is not forgotten, whatever the clock says, before its lease is over.
    let short = Settings { keep: Duration::from_secs(1), ..at_once() };
    let brief = place.process(short, 1);
    let lease = brief.run("k2").await;
    place.clock.advance(Duration::from_secs(2));
    other.sweeps_to(2).await;
    other.tell("k2", "in flight").await;
    assert!(lease.free().wait().await);
}

pub(super) async fn a_sweep_takes_nothing_that_was_claimed_anew(place: Place) {
    let (one, other) = (place.start(), place.process(at_once(), 1));
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    for round in 0..5 {
        let claims = keys.iter().map(|key| one.run(key));
        let leases = futures_util::future::join_all(claims).await;
        if round > 0 {
            // The old records had expired, and were swept at the same moment.
            for key in &keys {
                other.tell(key, "in flight").await;
            }
        }
        let ends = leases.into_iter().map(|lease| lease.unknown().wait());
        assert!(futures_util::future::join_all(ends).await.into_iter().all(|saved| saved));
        place.clock.advance(DAY);
        other.replays.sweep();
    }
}

pub(super) async fn those_elsewhere_get_the_answer_too(place: Place) {
    let (one, other) = (place.start(), place.start());
    let lease = one.run("k1").await;
    let waiting = other.replays.begin_or_wait(other.claim("k1", 1));
    let ending = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        lease.finish(&result("told")).wait().await
    };
    let (begin, saved) = tokio::join!(waiting, ending);
    assert!(saved);
    assert_eq!(said(&begin), "result told");
    // If it did not take place, one of those who wait runs.
    let lease = one.run("k2").await;
    let waiting = other.replays.begin_or_wait(other.claim("k2", 1));
    let (begin, _) = tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        lease.free().wait().await
    });
    assert_eq!(said(&begin), "run");
    // And nobody waits for ever.
    assert_eq!(said(&one.replays.begin_or_wait(one.claim("k2", 1)).await), "in flight");
}

// === The model ===

/// What may happen to a key.
#[derive(Debug, Clone, Copy)]
enum Step {
    Begin {
        process: usize,
        arguments: u8,
    },
    Finish {
        text: u8,
    },
    Free,
    Unknown,
    /// Time goes by: a third of the lease, or of the time that a record stays.
    Lease,
    Keep,
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..2_usize, 1..3_u8).prop_map(|(process, arguments)| Step::Begin { process, arguments }),
        2 => (0..9_u8).prop_map(|text| Step::Finish { text }),
        1 => Just(Step::Free),
        1 => Just(Step::Unknown),
        1 => Just(Step::Lease),
        1 => Just(Step::Keep),
        1 => Just(Step::Sweep),
    ];
    proptest::collection::vec(step, 1..24)
}

/// A record, as simply as it can be said.
#[derive(Debug, Clone)]
struct Model {
    arguments: u8,
    /// `None`: in flight.
    end: Option<String>,
    lease_ms: u64,
    expires_ms: u64,
}

/// One key, and what is to be said of it.
struct Life<'a> {
    place: &'a Place,
    processes: &'a [Process],
    key: String,
    model: Option<Model>,
    /// Which process runs the call.
    lease: Option<(usize, Lease)>,
}

/// Whatever happens in whatever order, a key says what the model says.
pub(super) fn it_does_what_the_model_does(place: &Place, processes: usize, cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let running: Vec<Process> = (0..processes).map(|_| place.process(at_once(), 1)).collect();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let number = std::cell::Cell::new(0);
    let outcome = proptest::test_runner::TestRunner::new(config).run(&steps(), |steps| {
        number.set(number.get() + 1);
        let key = format!("key-{}", number.get());
        let mut life = Life { place, processes: &running, key, model: None, lease: None };
        runtime.block_on(async {
            for (at, step) in steps.iter().enumerate() {
                let told = life.step(*step).await;
                prop_assert!(told.is_ok(), "step {at} of {steps:?}: {told:?}");
            }
            life.end(|lease| (lease.free(), None)).await;
            Ok(())
        })
    });
    outcome.unwrap();
}

impl Life<'_> {
    async fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Begin { process, arguments } => return self.begin(process, arguments).await,
            Step::Finish { text } => {
                let text = text.to_string();
                self.end(|lease| (lease.finish(&result(&text)), Some(format!("result {text}"))))
                    .await;
            }
            Step::Unknown => {
                self.end(|lease| (lease.unknown(), Some("unknown".to_owned()))).await;
            }
            Step::Free => self.end(|lease| (lease.free(), None)).await,
            Step::Lease => self.place.clock.advance(settings().lease / 3),
            // No call lasts so long.
            Step::Keep if self.lease.is_some() => {}
            Step::Keep => self.place.clock.advance(settings().keep / 3),
            Step::Sweep => self.processes[0].replays.sweep(),
        }
        Ok(())
    }

    async fn begin(&mut self, process: usize, arguments: u8) -> Result<(), String> {
        let process = process % self.processes.len();
        let begin = self.processes[process].begin(&self.key, arguments).await;
        let now = self.place.clock.now_ms();
        let model = self.model.take();
        self.model = model.filter(|record| record.end.is_none() || record.expires_ms > now);
        // Who runs a call knows that it runs.
        let here = self.lease.as_ref().is_some_and(|(holder, _)| *holder == process);
        let expected = match &self.model {
            None => "run",
            Some(record) if record.arguments != arguments => "conflict",
            Some(Model { end: Some(end), .. }) => end,
            Some(record) if here || record.lease_ms > now => "in flight",
            Some(_) => "unknown",
        };
        if said(&begin) != expected {
            return Err(format!("{} and not {expected}", said(&begin)));
        }
        if let Begin::Run(lease) = begin {
            self.lease = Some((process, lease));
            self.model = Some(Model {
                arguments,
                end: None,
                lease_ms: now + ms(settings().lease),
                expires_ms: now + ms(settings().keep),
            });
        }
        Ok(())
    }

    async fn end(&mut self, how: impl FnOnce(Lease) -> (Saved, Option<String>)) {
        let Some((_, lease)) = self.lease.take() else { return };
        let (saved, said) = how(lease);
        assert!(saved.wait().await);
        let expires_ms = self.place.clock.now_ms() + ms(settings().keep);
        let model = self.model.take();
        self.model = model.and_then(|model| Some(Model { end: Some(said?), expires_ms, ..model }));
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}
