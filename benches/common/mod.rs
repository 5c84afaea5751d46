//! What the benches share: policies, a catalog that no server had to list, messages of a given
//! size, and a gateway that is put together and opens no socket.
//!
//! It measures nothing, and sets the allocator that the shipped binary has.

#![allow(dead_code, reason = "each bench is a crate of its own and uses a part of this")]

use std::{fmt::Write as _, net::Ipv4Addr, path::Path, sync::Arc};

use bytes::Bytes;
use hangu::{
    app::{App, Options},
    config::Config,
    dialect::south,
    fault::Source,
    json::{Doc, Duplicates, Limits},
    limit,
    mcp::{Method, Version, header},
    model::{
        caller::{Auth, Caller, CallerId, EmployeeId, Principal, Role, Roles, TenantId},
        server::UpstreamName,
    },
    policy::{ItemIndex, Policies, PolicyFile, Set, Subject},
    registry::{Catalog, Definition, Registry, read_definition},
    stack::{
        Engines,
        stage::{Era, World},
    },
};
use http::{HeaderMap, HeaderValue, header as http_header};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub const KEY: &str = "key-of-a-bench";
pub const EMPLOYEE: &str = "E1001";

/// An upstream that speaks 2026-07-28.
pub const SERVER: &str = "orders";
/// One that speaks MCP-Lite.
pub const PROVIDER: &str = "provider";

/// A call's sizes, in bytes of its body.
pub const CALLS: [(&str, usize); 3] = [("330B", 330), ("10KB", 10 << 10), ("1MB", 1 << 20)];
/// A result's sizes.
pub const RESULTS: [(&str, usize); 3] = [("300B", 300), ("10KB", 10 << 10), ("1MB", 1 << 20)];

/// What the gateway lets a client's JSON look like.
pub const NORTH: Limits = Limits { depth: 128, duplicates: Duplicates::Refuse, outline: 3 };

// === Who ===

pub fn tenant() -> TenantId {
    TenantId::new("acme")
}

pub fn roles() -> Roles {
    Roles::new(["member", "tester"].map(Role::new))
}

/// The employee whose calls are measured, as the layers above have established him.
pub fn caller() -> Caller {
    let employee = EmployeeId::parse(EMPLOYEE);
    Caller {
        tenant: tenant(),
        id: CallerId::new("bench"),
        principal: Principal { employee, roles: roles(), auth: Auth::Header },
        names_employees: true,
        catalog_roles: roles(),
        address: Ipv4Addr::LOCALHOST.into(),
        policies: 0,
        granted: None,
        missing_scopes: None,
        call_sources: hangu::model::call_source::CallSources::default(),
    }
}

// === What is allowed ===

/// Policies with so many rules. Half are about the caller; the last one of all lets the call
/// through, so that whoever asks for the rule that decided looks past the others.
pub fn policies(rules: usize) -> Policies {
    let mut text = String::from(
        "version: hangu/v1
kind: Tools
upstreams:
  orders: { default: { risk: read_low } }
  provider: { default: { risk: read_low } }
---
version: hangu/v1
kind: Directory
employees:
  E1001: { tenant: acme, roles: [member, tester] }
---
version: hangu/v1
kind: Policy
scope: { tenant: acme }
limits:
  - { id: tenant-rate, per: [tenant], rate: 100000000/1m, burst: 10000000 }
  - { id: tool-rate, per: [tenant, tool], rate: 100000000/1m, burst: 10000000 }
  - { id: slots, per: [tenant, upstream], concurrency: 1024, queue: 1024, wait: 2s }
rules:
",
    );
    for number in 1..rules {
        let effect = if number % 10 == 0 { "deny" } else { "allow" };
        let role = if number % 2 == 0 { "member" } else { "auditor" };
        writeln!(
            text,
            "  - {{ id: rule-{number:03}, effect: {effect}, roles: [{role}], tools: [\"*/report_{number:03}*\"] }}"
        )
        .expect("a String takes all");
    }
    text.push_str("  - { id: the-last, effect: allow, roles: [member], risk: [read_low] }\n");
    let source = Arc::new(Source { name: "bench.yaml".to_owned(), text });
    let file = PolicyFile { path: "bench.yaml".to_owned(), source };
    let (policies, faults) = Policies::compile(vec![file]);
    assert!(policies.is_some(), "{faults:#?}");
    policies.unwrap_or_else(Policies::none)
}

/// Policies that look at the arguments of every call.
pub fn conditional_policies() -> Policies {
    let text = "version: hangu/v1
kind: Tools
upstreams: { orders: { default: { risk: read_low } } }
---
version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: all, effect: allow, roles: [member] }
  - { id: europe, effect: deny, when: { arg: /region, not_in: [eu-west, eu-north] } }
  - { id: many, effect: deny, when: { arg: /limit, range: [100, null] } }
";
    let source = Arc::new(Source { name: "bench.yaml".to_owned(), text: text.to_owned() });
    let file = PolicyFile { path: "bench.yaml".to_owned(), source };
    let (policies, faults) = Policies::compile(vec![file]);
    assert!(policies.is_some(), "{faults:#?}");
    policies.unwrap_or_else(Policies::none)
}

/// The policies bound to a catalog.
pub fn bind(policies: &Policies, catalog: &Catalog) -> Set {
    policies.bind(&subjects(catalog))
}

pub fn subjects(catalog: &Catalog) -> Vec<Subject<'_>> {
    catalog.tools().iter().map(|tool| Subject::tool(tool.upstream.as_str(), tool.name())).collect()
}

// === Tools ===

/// A catalog as discovery would have made it of these upstreams, with so many tools each.
pub fn catalog(upstreams: &[&str], tools: usize) -> Catalog {
    let names: Vec<_> =
        upstreams.iter().filter_map(|name| UpstreamName::parse(name).ok()).collect();
    assert_eq!(names.len(), upstreams.len(), "an upstream of ours has a good name");
    let registry = Registry::new(names.clone());
    for name in &names {
        let change = registry.listed(name, (0..tools).map(definition).collect());
        assert!(change.changed);
    }
    registry.catalog()
}

/// The name of a tool, by its place.
pub fn tool_name(number: usize) -> String {
    format!("tool_{number:04}")
}

fn definition(number: usize) -> Arc<Definition> {
    let text = format!(
        r#"{{"name":"{}","description":"Finds orders by customer, region and state; the newest come first","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"What to look for","maxLength":200}},"region":{{"type":"string","enum":["eu-west","eu-north","us-east"]}},"limit":{{"type":"integer","minimum":1,"maximum":100}}}},"required":["query"],"additionalProperties":false}},"annotations":{{"readOnlyHint":true}}}}"#,
        tool_name(number)
    );
    let doc = south::read_page(text.into()).expect("it is JSON");
    Arc::new(read_definition(doc.root()).expect("it is a tool"))
}

// === Messages ===

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}"#;

/// A `tools/call` of 2026-07-28 with a body of about that size, which its arguments fill up.
pub fn call(tool: &str, size: usize) -> Bytes {
    let whole = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{META}}}}}"#
        )
    };
    let envelope = whole("").len();
    whole(&arguments(size.saturating_sub(envelope))).into()
}

/// The same as MCP-Lite writes it.
pub fn lite_call(tool: &str) -> Bytes {
    format!(r#"{{"name":"{tool}","arguments":{}}}"#, arguments(0)).into()
}

/// `tools/list` of 2026-07-28.
pub fn list() -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":17,"method":"tools/list","params":{{{META}}}}}"#).into()
}

/// Rows of what tables hold: short strings, an escape now and then, numbers of every spelling.
pub fn arguments(size: usize) -> String {
    let mut text =
        String::from(r#"{"query":"open orders of Zo\u00eb","region":"eu-west","limit":10"#);
    let mut number = 0;
    while text.len() + ROW < size {
        text.push_str(if number == 0 { r#","rows":["# } else { "," });
        write!(
            text,
            r#"{{"id":{},"state":"shipped","city":"Lyon","items":3,"weight":12.50,"note":"caf\u00e9"}}"#,
            100_000 + number
        )
        .expect("a String takes all");
        number += 1;
    }
    text.push_str(if number > 0 { "]}" } else { "}" });
    text
}

/// What a row of `arguments` takes.
const ROW: usize = 90;

/// The result of a tool, of about that size: text, as most tools answer.
pub fn result(size: usize) -> Bytes {
    const HEAD: &str = r#"{"resultType":"complete","content":[{"type":"text","text":""#;
    const TAIL: &str = r#""}]}"#;
    const TEXT: &str = "row 17: order 4711, shipped to Lyon, 3 items \u{2013} ";
    let mut text = String::from(HEAD);
    while text.len() + TEXT.len() + TAIL.len() < size {
        text.push_str(TEXT);
    }
    while text.len() + TAIL.len() < size {
        text.push('.');
    }
    text.push_str(TAIL);
    text.into()
}

/// A server's answer to its request of this id.
pub fn answer(id: &[u8], result: &[u8]) -> Bytes {
    const HEAD: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
    [HEAD, id, br#","result":"#, result, b"}"].concat().into()
}

/// A client's JSON, read as the gateway reads it.
pub fn parse(text: Bytes) -> Doc {
    Doc::parse(text, &NORTH).expect("it is JSON")
}

/// The headers of a client of 2026-07-28.
pub fn headers(method: Method, tool: Option<&str>) -> HeaderMap {
    let mut headers = lite_headers();
    let fixed = |text: &'static str| HeaderValue::from_static(text);
    headers.insert(http_header::ACCEPT, fixed("application/json, text/event-stream"));
    headers.insert(header::PROTOCOL_VERSION, fixed(Version::LATEST.as_str()));
    headers.insert(header::METHOD, fixed(method.as_str()));
    if let Some(name) = tool.and_then(|tool| HeaderValue::from_str(tool).ok()) {
        headers.insert(header::NAME, name);
    }
    headers
}

/// The headers that MCP-Lite asks for, and those that say who calls.
pub fn lite_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(http_header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::API_KEY, HeaderValue::from_static(KEY));
    headers.insert(header::EMPLOYEE, HeaderValue::from_static(EMPLOYEE));
    headers
}

// === The gateway ===

const CONFIG: &str = r#"version: hangu/v1
listen: "127.0.0.1:0"
admin: { listen: "127.0.0.1:0" }
audit: { file: /dev/null }
callers:
  bench: { keys: [{ env: KEY }], tenant: acme, identity: header, catalog_roles: [member] }
upstreams:
  orders: { url: "http://127.0.0.1:9/mcp", dialect: streamable-http, max_concurrency: 1024 }
  provider: { url: "http://127.0.0.1:9", dialect: mcp-lite, max_concurrency: 1024 }
"#;

/// A gateway's engines, before two upstreams of so many tools each, which count as listed.
///
/// Everything is on, but what is written of calls goes nowhere.
pub fn engines(tools: usize, rules: usize) -> Engines {
    let env = |name: &str| (name == "KEY").then(|| KEY.to_owned());
    let loaded = Config::read("bench.yaml", CONFIG.to_owned(), Path::new("."), &env);
    let config = loaded.config.ok_or(loaded.faults).expect("the configuration is good");
    let policies = policies(rules);
    let options = Options { instance: "bench".to_owned(), ..Options::default() };
    let app = App::new(config, policies.clone(), &options).expect("there is nothing to open");
    let engines = app.engines().clone();
    let catalog = Arc::new(catalog(&[SERVER, PROVIDER], tools));
    let rules = Arc::new(bind(&policies, &catalog));
    let before = engines.worlds.current();
    before.limiter.bind(limited(&catalog, &rules));
    let (directory, limiter) = (before.directory.clone(), before.limiter.clone());
    let world = World::new(catalog, before.upstreams.clone(), rules).with(
        before.policies(),
        directory,
        limiter,
    );
    engines.worlds.replace(world);
    for upstream in engines.upstreams.iter() {
        let is_lite = upstream.name.as_str() == PROVIDER;
        let era = if is_lite { Era::Lite } else { Era::Modern(Version::LATEST) };
        upstream.set_era(Some(era));
    }
    engines
}

/// The tools as limits know them.
pub fn limited<'a>(catalog: &'a Catalog, rules: &'a Set) -> impl Iterator<Item = limit::Tool<'a>> {
    catalog.tools().iter().filter_map(|tool| {
        let risk = rules.item(ItemIndex::new(tool.index))?.risk;
        Some(limit::Tool { name: &tool.qualified, upstream: tool.upstream.as_str(), risk })
    })
}
