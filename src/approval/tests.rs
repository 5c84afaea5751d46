//! Who may decide on what, and that a yes is good once.

use super::{store::Room, *};

fn role(name: &str) -> Role {
    Role::new(name)
}

fn roles(names: &[&str]) -> Roles {
    Roles::new(names.iter().map(|name| role(name)))
}

fn employee(id: &str) -> EmployeeId {
    EmployeeId::parse(id).unwrap()
}

fn acme() -> TenantId {
    TenantId::new("acme")
}

fn request(demands: &[(&str, &[&str], u32)]) -> Request {
    let demand = |(rule, roles, count): &(&str, &[&str], u32)| Demand {
        rule: (*rule).into(),
        roles: roles.iter().map(|name| role(name)).collect(),
        count: *count,
    };
    Request {
        subject: Subject {
            tenant: acme(),
            caller: CallerId::new("corp"),
            requester: Some(employee("E1")),
            tool: "crm/purge".into(),
            arguments: KeyedDigest { key: 0, digest: [7; 32] },
            revision: "abc".into(),
        },
        demands: demands.iter().map(demand).collect(),
        risk: Risk::WriteHigh,
        sealed: None,
        asked_ms: 1_000,
        expires_ms: 61_000,
    }
}

fn approvals() -> (Approvals, Clock) {
    let clock = Clock::manual(1_000);
    (Approvals::new(Arc::new(Local::default()), clock.clone()), clock)
}

async fn waiting(approvals: &Approvals, request: &Request) -> ApprovalId {
    match approvals.ask(request.clone()).await.unwrap() {
        Standing::Waiting { approval, .. } => approval.id,
        other => panic!("{other:?}"),
    }
}

async fn say(
    approvals: &Approvals,
    id: ApprovalId,
    who: &str,
    held: &[&str],
    yes: bool,
) -> Result<State, DecideFault> {
    let decided = approvals.decide(&acme(), id, &employee(who), &roles(held), yes, None).await;
    decided.map(|approval| approval.state(approvals.now_ms()))
}

#[tokio::test]
async fn a_yes_lets_one_call_run() {
    let (approvals, _) = approvals();
    let request = request(&[("r", &["owner"], 1)]);
    let id = waiting(&approvals, &request).await;
    assert_eq!(waiting(&approvals, &request).await, id, "the same call is the same request");
    assert_eq!(say(&approvals, id, "E2", &["owner"], true).await, Ok(State::Approved));
    let standing = approvals.ask(request.clone()).await.unwrap();
    assert!(matches!(standing, Standing::Granted(approval) if approval.id == id));
    assert_ne!(waiting(&approvals, &request).await, id, "used up");
}

#[tokio::test]
async fn a_yes_is_good_for_nothing_else() {
    let (approvals, _) = approvals();
    let asked = request(&[("r", &["owner"], 1)]);
    let id = waiting(&approvals, &asked).await;
    say(&approvals, id, "E2", &["owner"], true).await.unwrap();
    let mut others = vec![asked.clone(); 5];
    others[0].subject.arguments.digest = [8; 32];
    others[1].subject.revision = "def".into();
    others[2].subject.requester = Some(employee("E3"));
    others[3].subject.tool = "crm/other".into();
    others[4].subject.tenant = TenantId::new("globex");
    for other in &others {
        assert_ne!(waiting(&approvals, other).await, id, "{other:?}");
    }
}

#[tokio::test]
async fn who_may_decide() {
    let (approvals, clock) = approvals();
    let id = waiting(&approvals, &request(&[("r", &["owner", "security"], 1)])).await;
    for (who, held, expected) in [
        ("E1", &["owner"][..], DecideFault::Requester),
        ("E2", &["member"], DecideFault::Unknown),
        ("E2", &[], DecideFault::Unknown),
    ] {
        assert_eq!(say(&approvals, id, who, held, true).await, Err(expected), "{who} {held:?}");
    }
    let (other, owner) = (TenantId::new("globex"), roles(&["owner"]));
    let foreign = approvals.decide(&other, id, &employee("E2"), &owner, true, None).await;
    assert_eq!(foreign.unwrap_err(), DecideFault::Unknown);
    clock.advance(std::time::Duration::from_secs(60));
    let late = say(&approvals, id, "E2", &["owner"], true).await;
    assert_eq!(late, Err(DecideFault::Over(State::Expired)));
}

#[tokio::test]
async fn each_rule_wants_its_own_number_of_people() {
    let (approvals, _) = approvals();
    let id = waiting(&approvals, &request(&[("a", &["owner"], 2), ("b", &["security"], 1)])).await;
    assert_eq!(say(&approvals, id, "E2", &["owner", "security"], true).await, Ok(State::Waiting));
    let again = say(&approvals, id, "E2", &["owner", "security"], true).await;
    assert_eq!(again, Err(DecideFault::Twice));
    assert_eq!(say(&approvals, id, "E3", &["owner"], true).await, Ok(State::Approved));
}

#[tokio::test]
async fn one_no_is_enough_and_stays_for_as_long_as_a_yes_would() {
    let (approvals, clock) = approvals();
    let request = request(&[("a", &["owner"], 2)]);
    let id = waiting(&approvals, &request).await;
    say(&approvals, id, "E2", &["owner"], true).await.unwrap();
    assert_eq!(say(&approvals, id, "E3", &["owner"], false).await, Ok(State::Refused));
    let over = say(&approvals, id, "E4", &["owner"], true).await;
    assert_eq!(over, Err(DecideFault::Over(State::Refused)));
    assert!(matches!(approvals.ask(request.clone()).await, Ok(Standing::Refused(_))));
    clock.advance(std::time::Duration::from_secs(60));
    assert_ne!(waiting(&approvals, &request).await, id);
}

#[tokio::test]
async fn a_grant_whose_call_never_left_can_be_given_back() {
    let (approvals, _) = approvals();
    let request = request(&[("r", &["owner"], 1)]);
    let id = waiting(&approvals, &request).await;
    say(&approvals, id, "E2", &["owner"], true).await.unwrap();
    approvals.ask(request.clone()).await.unwrap();
    approvals.give_back(id).await.unwrap();
    assert!(matches!(approvals.ask(request).await, Ok(Standing::Granted(_))));
}

#[tokio::test]
async fn a_yes_that_is_only_looked_at_is_not_used_up() {
    let (approvals, _) = approvals();
    let request = request(&[("r", &["owner"], 1)]);
    let id = waiting(&approvals, &request).await;
    say(&approvals, id, "E2", &["owner"], true).await.unwrap();
    for when in [Use::Later, Use::Later, Use::Now] {
        let fresh = ApprovalId::new(2_000);
        let standing = approvals.ask_as(fresh, request.clone(), when).await.unwrap();
        assert!(matches!(standing, Standing::Granted(granted) if granted.id == id), "{when:?}");
    }
    let fresh = ApprovalId::new(2_000);
    let standing = approvals.ask_as(fresh, request.clone(), Use::Later).await.unwrap();
    assert!(matches!(standing, Standing::Waiting { approval, new: true } if approval.id == fresh));
    let newest = approvals.newest(&request.subject).await.unwrap();
    assert_eq!(newest.map(|approval| approval.id), Some(fresh));
}

#[tokio::test]
async fn what_is_unused_is_good_again() {
    let (approvals, _) = approvals();
    let request = request(&[("r", &["owner"], 1)]);
    let id = waiting(&approvals, &request).await;
    say(&approvals, id, "E2", &["owner"], true).await.unwrap();
    assert_eq!(approvals.take([1; 32], 5_000).await, Ok(true));
    assert_eq!(approvals.take([1; 32], 5_000).await, Ok(false));
    for _ in 0..2 {
        assert!(matches!(approvals.ask(request.clone()).await, Ok(Standing::Granted(_))));
        approvals.unused(Some(id), Some([1; 32]));
        assert_eq!(approvals.take([1; 32], 5_000).await, Ok(true));
    }
}

#[tokio::test]
async fn what_waits_is_bounded() {
    let (approvals, clock) = approvals();
    let approvals = approvals.with_bounds(Bounds { total: 3, each: 2 });
    let ask = |who: &str, tool: &str| {
        let mut request = request(&[("r", &["owner"], 1)]);
        request.subject.requester = Some(employee(who));
        request.subject.tool = tool.into();
        request
    };
    let first = waiting(&approvals, &ask("E1", "a")).await;
    waiting(&approvals, &ask("E1", "b")).await;
    assert_eq!(approvals.ask(ask("E1", "c")).await, Err(StoreFault::Full));
    assert_eq!(waiting(&approvals, &ask("E1", "a")).await, first, "what waits goes on waiting");
    waiting(&approvals, &ask("E2", "a")).await;
    assert_eq!(approvals.ask(ask("E3", "a")).await, Err(StoreFault::Full));
    // A decision makes room, and so does time.
    say(&approvals, first, "E4", &["owner"], true).await.unwrap();
    waiting(&approvals, &ask("E1", "c")).await;
    assert_eq!(approvals.ask(ask("E1", "d")).await, Err(StoreFault::Full));
    clock.advance(Duration::from_secs(60));
    let mut late = ask("E1", "d");
    late.expires_ms = 200_000;
    waiting(&approvals, &late).await;
}

#[derive(Default)]
struct Told(parking_lot::Mutex<Vec<(Ended, u64)>>);

impl Observer for Told {
    fn ended(&self, end: Ended, waited: Duration) {
        self.0.lock().push((end, u64::try_from(waited.as_millis()).unwrap()));
    }
}

#[tokio::test]
async fn every_end_is_told_once() {
    let (approvals, clock) = approvals();
    let told = Arc::new(Told::default());
    let approvals = approvals.observed(told.clone());
    let ask = |tool: &str| {
        let mut request = request(&[("r", &["owner"], 2)]);
        request.subject.tool = tool.into();
        request
    };
    let (yes, no) = (waiting(&approvals, &ask("yes")).await, waiting(&approvals, &ask("no")).await);
    waiting(&approvals, &ask("nobody")).await;
    clock.advance(Duration::from_secs(1));
    say(&approvals, yes, "E2", &["owner"], true).await.unwrap();
    assert!(told.0.lock().is_empty(), "a second one is wanted");
    say(&approvals, yes, "E3", &["owner"], true).await.unwrap();
    say(&approvals, no, "E2", &["owner"], false).await.unwrap();
    clock.advance(Duration::from_secs(59));
    for _ in 0..2 {
        approvals.sweep(10_000).await.unwrap();
    }
    let expected = [(Ended::Granted, 1_000), (Ended::Refused, 1_000), (Ended::Expired, 60_000)];
    assert_eq!(*told.0.lock(), expected);
    // It can be looked at for a while yet, and then no more.
    let roles = roles(&["owner"]);
    let look = || async { approvals.look(&acme(), yes, &employee("E2"), &roles).await.unwrap() };
    assert!(look().await.is_some());
    clock.advance(Duration::from_secs(11));
    approvals.sweep(10_000).await.unwrap();
    assert!(look().await.is_none());
}

#[tokio::test]
async fn arguments_open_for_their_own_request_alone() {
    let (approvals, _) = approvals();
    let secret =
        |byte| crate::model::keys::KeySecrets::one(secrecy::SecretBox::new(Box::new([byte; 32])));
    let seal = ArgumentSeal::new(&secret(1));
    let text = br#"{"to":"a","n":1.0}"#;
    let id = ApprovalId::new(1_000);
    let mut request = request(&[("r", &["owner"], 1)]);
    let sealed = seal.seal(&acme(), id, text);
    assert!(!sealed.windows(4).any(|part| text.windows(4).any(|plain| plain == part)));
    request.sealed = Some(sealed);
    let Ok(Standing::Waiting { approval, .. }) = approvals.ask_as(id, request, Use::Now).await
    else {
        panic!("it waits");
    };
    assert_eq!(seal.open(&approval).as_deref(), Some(&text[..]));
    assert_eq!(ArgumentSeal::new(&secret(1)).open(&approval).as_deref(), Some(&text[..]));
    assert_eq!(ArgumentSeal::new(&secret(2)).open(&approval), None);
    let mut moved = vec![approval.clone(); 4];
    moved[0].id = ApprovalId::new(1_000);
    moved[1].request.subject.tenant = TenantId::new("globex");
    moved[2].request.sealed = None;
    moved[3].request.sealed = Some(approval.request.sealed.unwrap().slice(1..));
    for other in &moved {
        assert_eq!(seal.open(other), None, "{other:?}");
    }
}

/// A store that answers when it is told to.
#[derive(Default)]
struct Slow {
    store: Local,
    waiting: parking_lot::Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl ApprovalStore for Slow {
    fn ask(&self, binding: [u8; 32], room: Room, change: Change<Standing>, then: Then<Standing>) {
        let later = |answer| self.waiting.lock().push(Box::new(move || then(answer)));
        let (tell, told) = std::sync::mpsc::channel();
        self.store.ask(binding, room, change, Box::new(move |answer| tell.send(answer).unwrap()));
        later(told.recv().unwrap());
    }

    fn newest(&self, binding: [u8; 32], then: Then<Option<Approval>>) {
        self.store.newest(binding, then);
    }

    fn decide(
        &self,
        id: ApprovalId,
        change: Change<Result<Approval, DecideFault>>,
        then: Then<Result<Approval, DecideFault>>,
    ) {
        self.store.decide(id, change, then);
    }

    fn find(&self, id: ApprovalId, then: Then<Option<Approval>>) {
        self.store.find(id, then);
    }

    fn list(&self, pick: store::Pick, then: Then<Vec<Approval>>) {
        self.store.list(pick, then);
    }

    fn sweep(&self, now_ms: u64, before_ms: u64, then: Then<Vec<u64>>) {
        self.store.sweep(now_ms, before_ms, then);
    }

    fn take(&self, token: Token, expires_ms: u64, then: Then<bool>) {
        self.store.take(token, expires_ms, then);
    }

    fn put_back(&self, token: Token, then: Then<()>) {
        self.store.put_back(token, then);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_one_who_has_gone_is_not_lost() {
    let store = Arc::new(Slow::default());
    let approvals = Approvals::new(store.clone(), Clock::manual(1_000));
    let answer = || store.waiting.lock().drain(..).for_each(|answer| answer());
    let request = request(&[("r", &["owner"], 1)]);
    // Nobody waits for ever.
    assert_eq!(approvals.ask(request.clone()).await, Err(StoreFault::Unclear));
    answer();
    let known = approvals.newest(&request.subject).await.unwrap().unwrap();
    say(&approvals, known.id, "E2", &["owner"], true).await.unwrap();
    assert_eq!(approvals.ask(request.clone()).await, Err(StoreFault::Unclear));
    let state = || async {
        let newest = approvals.newest(&request.subject).await.unwrap();
        newest.map(|approval| approval.state(1_000))
    };
    assert_eq!(state().await, Some(State::Used));
    answer();
    assert_eq!(state().await, Some(State::Approved));
}

#[test]
fn an_id_has_one_spelling() {
    let id = ApprovalId::new(1_700_000_000_000);
    assert_eq!(ApprovalId::parse(&id.to_string()), Some(id));
    let upper = id.to_string().to_uppercase();
    for wrong in ["", "x", &upper, &id.to_string().replace('-', "")] {
        assert_eq!(ApprovalId::parse(wrong), None, "{wrong}");
    }
}

/// Remembers what it is told.
#[derive(Default)]
struct Heard(parking_lot::Mutex<Vec<(Notice, ApprovalId)>>);

impl Notify for Heard {
    fn notify(&self, notice: Notice, approval: &Approval) {
        self.0.lock().push((notice, approval.id));
    }
}

#[tokio::test]
async fn each_turn_of_a_request_is_told_once() {
    let heard = Arc::new(Heard::default());
    let (approvals, _) = approvals();
    let approvals = approvals.notifying(heard.clone());
    let request = request(&[("a", &["owner"], 2)]);
    let id = waiting(&approvals, &request).await;
    waiting(&approvals, &request).await;
    assert_eq!(*heard.0.lock(), [(Notice::Requested, id)], "asked again is nothing new");
    say(&approvals, id, "E2", &["owner"], true).await.unwrap();
    say(&approvals, id, "E2", &["owner"], true).await.unwrap_err();
    assert_eq!(heard.0.lock().len(), 1, "one of two is no decision");
    say(&approvals, id, "E3", &["owner"], true).await.unwrap();
    approvals.ask(request.clone()).await.unwrap();
    approvals.give_back(id).await.unwrap();
    assert_eq!(heard.0.lock()[1..], [(Notice::Approved, id)]);
    let mut other = request;
    other.subject.arguments.digest = [9; 32];
    let other = waiting(&approvals, &other).await;
    say(&approvals, other, "E2", &["owner"], false).await.unwrap();
    assert_eq!(heard.0.lock()[2..], [(Notice::Requested, other), (Notice::Refused, other)]);
}

type Held = Box<dyn FnOnce() + Send>;

/// A store that has written, and answers when it is told to.
#[derive(Default)]
struct Late {
    store: Local,
    answers: Arc<parking_lot::Mutex<Vec<Held>>>,
}

impl Late {
    fn hold<T: Send + 'static>(&self, then: Then<T>) -> Then<T> {
        let answers = self.answers.clone();
        Box::new(move |answer| answers.lock().push(Box::new(move || then(answer))))
    }
}

impl ApprovalStore for Late {
    fn ask(&self, binding: [u8; 32], room: Room, change: Change<Standing>, then: Then<Standing>) {
        self.store.ask(binding, room, change, self.hold(then));
    }

    fn newest(&self, binding: [u8; 32], then: Then<Option<Approval>>) {
        self.store.newest(binding, then);
    }

    fn decide(
        &self,
        id: ApprovalId,
        change: Change<Result<Approval, DecideFault>>,
        then: Then<Result<Approval, DecideFault>>,
    ) {
        self.store.decide(id, change, self.hold(then));
    }

    fn find(&self, id: ApprovalId, then: Then<Option<Approval>>) {
        self.store.find(id, then);
    }

    fn list(&self, pick: store::Pick, then: Then<Vec<Approval>>) {
        self.store.list(pick, then);
    }

    fn sweep(&self, now_ms: u64, before_ms: u64, then: Then<Vec<u64>>) {
        self.store.sweep(now_ms, before_ms, then);
    }

    fn take(&self, token: [u8; 32], expires_ms: u64, then: Then<bool>) {
        self.store.take(token, expires_ms, then);
    }

    fn put_back(&self, token: [u8; 32], then: Then<()>) {
        self.store.put_back(token, then);
    }
}

#[tokio::test]
async fn a_request_of_somebody_who_went_away_is_told_of_all_the_same() {
    let (heard, late) = (Arc::new(Heard::default()), Arc::new(Late::default()));
    let approvals = Approvals::new(late.clone(), Clock::manual(1_000)).notifying(heard.clone());
    let asked = approvals.ask(request(&[("a", &["owner"], 1)]));
    assert!(futures_util::FutureExt::now_or_never(asked).is_none(), "it waits for the store");
    assert_eq!(heard.0.lock().len(), 0);
    late.answers.lock().drain(..).for_each(|answer| answer());
    assert_eq!(heard.0.lock().len(), 1);
}
