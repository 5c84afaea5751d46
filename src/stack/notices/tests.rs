//! What streams are told and what not, against worlds that change; no sockets.

use std::{net::Ipv4Addr, sync::Arc};

use futures_util::{FutureExt, StreamExt};

use super::*;
use crate::{
    dialect::south,
    fault::Source,
    model::{
        caller::{Auth, Principal, Role, Roles},
        reply::Event,
        server::UpstreamName,
    },
    policy::{Policies, PolicyFile, Subject},
    registry::{Registry, read_definition},
    stack::stage::World,
};

/// Members see what is called `open…`, admins everything.
const POLICY: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: members, effect: allow, roles: [member], tools: [\"*/open*\"] }
  - { id: admins, effect: allow, roles: [admin] }
---
version: hangu/v1
kind: Tools
upstreams:
  a: { default: { risk: read_low } }
  b: { default: { risk: read_low } }
";

struct House {
    registry: Registry,
    policies: Policies,
    notices: Arc<Notices>,
}

fn caller(employee: &str, role: &str) -> Caller {
    Caller {
        tenant: TenantId::new("acme"),
        id: CallerId::new("gate"),
        principal: Principal {
            employee: EmployeeId::parse(employee),
            roles: Roles::new([Role::new(role)]),
            auth: Auth::Header,
        },
        names_employees: true,
        catalog_roles: Roles::default(),
        call_sources: crate::model::call_source::CallSources::default(),
        address: Ipv4Addr::LOCALHOST.into(),
        policies: 0,
        granted: None,
        missing_scopes: None,
    }
}

impl House {
    fn new(limits: StreamLimits) -> Self {
        let source = Source { name: "p.yaml".to_owned(), text: POLICY.to_owned() };
        let file = PolicyFile { path: "p.yaml".to_owned(), source: Arc::new(source) };
        let (policies, faults) = Policies::compile(vec![file]);
        let policies = policies.unwrap_or_else(|| panic!("{faults:?}"));
        let registry = Registry::new(["a", "b"].map(|name| UpstreamName::parse(name).unwrap()));
        let worlds = Arc::new(Worlds::new(Self::bound(&registry, &policies)));
        let notices = Arc::new(Notices::new(limits, worlds));
        Self { registry, policies, notices }
    }

    fn bound(registry: &Registry, policies: &Policies) -> World {
        let catalog = Arc::new(registry.catalog());
        let subjects: Vec<_> = catalog
            .tools()
            .iter()
            .map(|tool| Subject::tool(tool.upstream.as_str(), tool.name()))
            .collect();
        let rules = Arc::new(policies.bind(&subjects));
        World::new(catalog, Arc::new([]), rules)
    }

    /// An upstream lists these tools from now on, and the world is a new one.
    fn lists(&self, upstream: &str, tools: &[&str]) {
        let definitions = tools.iter().map(|name| {
            let text = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
            let doc = south::read_page(text.into()).unwrap();
            Arc::new(read_definition(doc.root()).unwrap())
        });
        let upstream = UpstreamName::parse(upstream).unwrap();
        self.registry.listed(&upstream, definitions.collect());
        self.notices.worlds.replace(Self::bound(&self.registry, &self.policies));
    }

    fn open(&self, caller: &Caller, surface: Surface) -> Result<ReplyStream, Full> {
        let seat = self.notices.seat(Holder::of(caller))?;
        let world = self.notices.worlds.current();
        let seen = Seen::of(&world, &world.view_of(caller), None, &surface);
        let wanted = Wanted { tools: true, ..Wanted::default() };
        let subscriber = Arc::new(Subscriber::new(caller.clone(), surface, wanted, seen));
        Ok(self.notices.open(seat, subscriber, Vec::new(), &world))
    }

    fn full(&self, caller: &Caller) -> Option<Full> {
        self.open(caller, Surface::Aggregate).err()
    }
}

/// What a stream has to tell now.
fn told(stream: &mut ReplyStream) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(Some(event)) = stream.next().now_or_never() {
        told.push(match event {
            Event::Notification(notification) => notification.method.into(),
            Event::Question(_) => "question".to_owned(),
            Event::Answered => "answered".to_owned(),
            Event::End(_) => "end".to_owned(),
        });
    }
    told
}

const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn only_who_sees_a_change_is_told() {
    let house = House::new(StreamLimits::default());
    house.lists("a", &["open", "hidden"]);
    let (member, admin) = (caller("E1", "member"), caller("E2", "admin"));
    let at = |name: &str| Surface::Upstream(UpstreamName::parse(name).unwrap());
    let mut streams = [
        house.open(&member, Surface::Aggregate).unwrap(),
        house.open(&admin, Surface::Aggregate).unwrap(),
        house.open(&member, at("a")).unwrap(),
        house.open(&admin, at("b")).unwrap(),
    ];
    for (tools, expected) in [
        (&["open", "hidden"][..], [0, 0, 0, 0]),
        (&["open"], [0, 1, 0, 0]),
        (&["open", "hidden", "secret"], [0, 1, 0, 0]),
        (&["open", "open_too", "hidden", "secret"], [1, 1, 1, 0]),
        (&["open_too", "open", "hidden", "secret"], [1, 1, 1, 0]),
    ] {
        house.lists("a", tools);
        house.notices.compare().await;
        for (stream, times) in streams.iter_mut().zip(expected) {
            assert_eq!(told(stream), vec![CHANGED; times], "{tools:?}");
        }
    }
    house.lists("b", &["hidden"]);
    house.notices.compare().await;
    let counts = streams.iter_mut().map(|stream| told(stream).len());
    assert_eq!(counts.collect::<Vec<_>>(), [0, 1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn changes_that_come_together_are_told_once() {
    let house = House::new(StreamLimits::default());
    house.lists("a", &["open"]);
    let follow = tokio::task::JoinSet::new();
    let mut follow = follow;
    follow.spawn(house.notices.clone().follow());
    tokio::task::yield_now().await;
    let mut stream = house.open(&caller("E1", "member"), Surface::Aggregate).unwrap();
    for tools in [&["open", "open_b"][..], &["open_c"], &["open_d", "open"]] {
        house.lists("a", tools);
        tokio::time::sleep(TOGETHER / 10).await;
    }
    assert_eq!(told(&mut stream), Vec::<String>::new());
    tokio::time::sleep(TOGETHER * 2).await;
    assert_eq!(told(&mut stream), [CHANGED]);
    // There and back again before anybody looked: nothing has changed.
    house.lists("a", &["open"]);
    house.lists("a", &["open_d", "open"]);
    tokio::time::sleep(TOGETHER * 2).await;
    assert_eq!(told(&mut stream), Vec::<String>::new());
}

#[tokio::test]
async fn a_reader_that_is_slow_costs_no_memory() {
    let house = House::new(StreamLimits::default());
    let mut stream = house.open(&caller("E1", "admin"), Surface::Aggregate).unwrap();
    for round in 0..100 {
        house.lists("a", &[["open", "shut"][round % 2]]);
        house.notices.compare().await;
    }
    assert_eq!(told(&mut stream), [CHANGED]);
    let subscriber = house.notices.open.lock().streams.values().next().unwrap().clone();
    for number in 0..5_000 {
        subscriber.updated(&format!("a://{}", number % 2_000).into());
    }
    assert!(told(&mut stream).len() <= 1_024);
    for _ in 0..100 {
        subscriber.updated(&"a://same".into());
    }
    assert_eq!(told(&mut stream).len(), 1);
}

#[tokio::test]
async fn of_many_notices_of_tasks_a_slow_reader_gets_the_newest() {
    let house = House::new(StreamLimits::default());
    let mut stream = house.open(&caller("E1", "admin"), Surface::Aggregate).unwrap();
    let subscriber = house.notices.open.lock().streams.values().next().unwrap().clone();
    let tells = |task: &str, bytes: usize| {
        subscriber
            .stands(&task.into(), format!("{{\"t\":\"{task}{}\"}}", "x".repeat(bytes)).into());
    };
    let mut starts = || {
        let told = std::iter::from_fn(|| stream.next().now_or_never().flatten());
        let params = told.map(|event| match event {
            Event::Notification(notification) => notification.params.unwrap(),
            _ => panic!("a notification"),
        });
        params.map(|params| params.slice(6..7)).collect::<Vec<_>>()
    };
    // What fits comes as it came.
    for task in ["a", "b", "a"] {
        tells(task, 10);
    }
    assert_eq!(starts(), ["a", "b", "a"]);
    // Beyond that, what was overtaken goes first.
    tells("b", 10);
    for _ in 0..5_000 {
        tells("a", 10);
    }
    let told = starts();
    assert!(told.len() <= 1_024 && told.contains(&"b".into()), "{}", told.len());
    // Then the oldest; one alone comes whatever its size.
    for task in ["a", "b", "c"] {
        tells(task, 3 << 20);
    }
    assert_eq!(starts(), ["c"]);
    tells("d", 9 << 20);
    assert_eq!(starts(), ["d"]);
}

#[tokio::test]
async fn a_stream_holds_no_world() {
    let house = House::new(StreamLimits::default());
    house.lists("a", &["open"]);
    let stream = house.open(&caller("E1", "member"), Surface::Aggregate).unwrap();
    let world = Arc::downgrade(&house.notices.worlds.current());
    house.lists("a", &["open", "open_b"]);
    house.notices.compare().await;
    assert!(world.upgrade().is_none());
    drop(stream);
    assert_eq!(house.notices.count(), 0);
}

#[tokio::test]
async fn streams_are_capped_for_each_and_for_all() {
    let limits = StreamLimits { per_principal: 2, total: 3, subscriptions: 8 };
    let house = House::new(limits);
    let (first, second) = (caller("E1", "member"), caller("E2", "member"));
    let mut open = vec![
        house.open(&first, Surface::Aggregate).unwrap(),
        house.open(&first, Surface::Aggregate).unwrap(),
    ];
    assert_eq!(house.full(&first), Some(Full::PerPrincipal));
    open.push(house.open(&second, Surface::Aggregate).unwrap());
    assert_eq!(house.full(&second), Some(Full::Total));
    open.pop();
    assert_eq!(house.full(&second), None);
    assert_eq!(house.full(&first), Some(Full::PerPrincipal));
}

#[tokio::test]
async fn a_drain_ends_every_stream_and_those_that_come_late() {
    let house = House::new(StreamLimits::default());
    let admin = caller("E1", "admin");
    let mut early = house.open(&admin, Surface::Aggregate).unwrap();
    house.lists("a", &["open"]);
    house.notices.compare().await;
    house.notices.close();
    let mut late = house.open(&admin, Surface::Aggregate).unwrap();
    assert_eq!(told(&mut early), [CHANGED, "end"]);
    assert_eq!(told(&mut late), ["end"]);
    assert!(early.next().await.is_none());
}

#[tokio::test]
async fn a_change_while_a_stream_opens_is_not_missed() {
    let house = House::new(StreamLimits::default());
    let admin = caller("E1", "admin");
    let seat = house.notices.seat(Holder::of(&admin)).unwrap();
    let before = house.notices.worlds.current();
    let seen = Seen::of(&before, &before.view_of(&admin), None, &Surface::Aggregate);
    let wanted = Wanted { tools: true, ..Wanted::default() };
    let subscriber = Arc::new(Subscriber::new(admin, Surface::Aggregate, wanted, seen));
    house.lists("a", &["open"]);
    house.notices.compare().await;
    let mut stream = house.notices.open(seat, subscriber, Vec::new(), &before);
    assert!(house.notices.outdated.notified().now_or_never().is_some());
    house.notices.compare().await;
    assert_eq!(told(&mut stream), [CHANGED]);
}

#[tokio::test]
async fn links_that_were_followed_are_told_to_whom_they_can_be_and_the_newest_alone() {
    let house = House::new(StreamLimits::default());
    let member = caller("E1", "member");
    let world = house.notices.worlds.current();
    for follows in [true, false] {
        let seen = Seen::of(&world, &world.view_of(&member), None, &Surface::Aggregate);
        let (surface, wanted) = (Surface::Aggregate, Wanted::default());
        let subscriber = Subscriber::new(member.clone(), surface, wanted, seen);
        let subscriber = Arc::new(subscriber.following_links(follows));
        let seat = house.notices.seat(Holder::of(&member)).unwrap();
        let mut stream = house.notices.open(seat, subscriber.clone(), Vec::new(), &world);
        for number in 0..100 {
            subscriber.followed(&number.to_string());
        }
        let mut links = Vec::new();
        while let Some(Some(Event::Notification(told))) = stream.next().now_or_never() {
            links.push(String::from_utf8(told.params.unwrap().to_vec()).unwrap());
        }
        let newest = (36..100).map(|number| format!("{{\"elicitationId\":\"{number}\"}}"));
        assert_eq!(links, newest.filter(|_| follows).collect::<Vec<_>>());
    }
}
