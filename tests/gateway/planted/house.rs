//! A gateway with everything that it can have, and all that comes out of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hkdf::Hkdf;
use serde_json::Value;
use sha2::Sha256;

use super::{
    Search,
    kinds::{search, secret},
    servers::{Echo, Listing, echo, tools},
};
use crate::{
    oauth::{Pair, consent::PUBLIC},
    process_support::{
        Answer, Client, Dialect, Home, Process, Response, Setup, Upstream, exchange, free_address,
    },
    stdio_server,
};

/// Who may be told secrets by an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Nothing,
    /// The caller of a tool gets what the server says, whatever that is.
    Everything,
    These(&'static [&'static str]),
}

struct Out {
    place: String,
    bytes: Vec<u8>,
    told: Told,
}

pub struct House {
    pub fixed: Echo,
    pub lite: Echo,
    pub own: Echo,
    pub legacy: Echo,
    /// Servers that employees bring.
    pub brought: Echo,
    /// One that takes granted tokens.
    pub granted: Pair,
    /// How those give listings.
    pub listing: Listing,
    pub collector: Upstream,
    pub hook: Upstream,
    pub home: Home,
    pub gateway: Process,
    pub search: Search,
    outs: Vec<Out>,
    /// Servers that take tokens of the gateway, by its secret, its key and a key of a file.
    _others: [Pair; 3],
}

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  share: { roles: [member] }
  default: { risk: read_low, pin: first_use }
rules:
  - { id: eyes, effect: require_approval, tools: [\"*/purge\"], approval: { roles: [owner], expires: 15m } }
";

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member], teams: [payments] }
  E2: { tenant: acme, roles: [member, owner], teams: [payments] }
  E3: { tenant: acme, roles: [member], teams: [payments] }
";

const CALLER: &str = "planter:
    keys: [{ env: CALLER_KEY }, { file: caller.key }, { env: EXPIRED_KEY, expires: 2020-01-01T00:00:00Z }]
    tenant: acme
    identity: header
    catalog_roles: [member]
    call_sources: [agent, script]";

const TOOLS: &str = "write: { risk: write_low, idempotency: optional }, \
                     purge: { risk: write_low, idempotency: none }";

/// Whatever fails, the next call is made all the same.
const MORE: &str = "breaker: off, timeout: 5s";

/// What servers have been sent, and have given away in results.
const ARRIVED: [&str; 16] = [
    "the header of an upstream",
    "the header of an upstream from a file",
    "a named secret",
    "an employee's token",
    "an employee's password",
    "an employee's header",
    "a sealed header of options",
    "the variable of a process",
    "a server's session",
    "planted-token-",
    "an argument",
    "an argument that waits for a yes",
    "an argument under a key",
    "an argument of a prompt",
    "the context of a run",
    "result",
];

/// Key material, as nobody would draw it.
const MATERIAL: [u8; 32] = *b"\x80the material of a key of tests!";
const HOOK: [u8; 32] = *b"\x81 the key that signs the notices";

impl House {
    pub fn start() -> Self {
        let collector = Upstream::start(&[]);
        collector.on(|_| Some(Answer::body(200, "application/x-protobuf", "")));
        let hook = Upstream::start(&[]);
        hook.on(|_| Some(Answer::body(200, "text/plain", "")));
        let session = secret("a server's session");
        let [fixed, lite, own, brought] = [(); 4].map(|()| Echo::start(None));
        let legacy = Echo::start(Some(&session));
        let [token, signed, pem, granted] = [(); 4].map(|()| Pair::start());
        let listing = Listing::default();
        for pair in [&token, &signed, &pem, &granted] {
            pair.up.lists(&tools());
            echo(&pair.up, &listing, None);
        }
        granted.rules.lock().open_lists = true;
        let more = |text: &str| format!("{text}, {MORE}");
        let headers = "headers: { X-Provider-Key: { env: STATIC }, X-File: { file: header.txt }, \
                       X-Named: { secret: named } }";
        let lite_headers = "headers: { X-Provider-Key: { env: STATIC } }, dialect: mcp-lite";
        let client = "auth: { type: client_credentials, client_id: hangu,";
        let child = format!(
            "{{ command: {}, poll: 1s, env: {{ {}: indiscreet, KEPT: {{ env: KEPT }} }} }}",
            stdio_server::command(),
            stdio_server::MODE,
        );
        let setup = Setup::new()
            .config(&format!(
                "keyring: {{ file: keyring.json }}\negress: {{ allow: [127.0.0.1] }}\n\
                 public_url: {PUBLIC}\n\
                 approvals: {{ webhook: {{ url: \"{}\", secret: {{ file: hook.txt }} }} }}\n\
                 issuers: {{ corp: {{ issuer: \"https://sso.example\", audience: gw, tenant: acme, \
                 jwks: \"http://{}/keys\" }} }}",
                hook.url(),
                free_address(),
            ))
            .caller(CALLER)
            .policy("self-service.yaml", POLICY)
            .policy("directory.yaml", DIRECTORY)
            .admin_more(
                "token: { env: ADMIN }, tokens: { sec: { token: { env: SEC }, role: security } }",
            )
            .upstream("fixed", &fixed.up, &more(headers), TOOLS)
            .upstream("rest", &lite.up, &more(lite_headers), TOOLS)
            .upstream("own", &own.up, &more("auth: { type: employee }"), TOOLS)
            .upstream(
                "legacy",
                &legacy.up,
                &more("headers: { X-Provider-Key: { env: STATIC } }"),
                TOOLS,
            )
            .upstream(
                "token",
                &token.up,
                &more(&format!("{client} client_secret: {{ env: CLIENT }} }}")),
                TOOLS,
            )
            .upstream("signed", &signed.up, &more(&format!("{client} key: gateway }}")), TOOLS)
            .upstream(
                "pem",
                &pem.up,
                &more(&format!("{client} key: {{ file: key.pem }} }}")),
                TOOLS,
            )
            .upstream("granted", &granted.up, &more("auth: { type: oauth }"), TOOLS)
            .upstream_at(
                "dead",
                &format!("http://{}/mcp", free_address()),
                &more("headers: { X-Provider-Key: { env: STATIC } }"),
                TOOLS,
            )
            .upstream_entry("child", &child);
        let variables = [
            ("CALLER_KEY", "the caller's key"),
            ("EXPIRED_KEY", "a key that has expired"),
            ("ADMIN", "the admin token"),
            ("SEC", "the security token"),
            ("STATIC", "the header of an upstream"),
            ("CLIENT", "the gateway's client secret"),
            ("KEPT", "the variable of a process"),
            // Of the command line.
            ("HANGU_API_KEY", "the caller's key"),
            ("HANGU_ADMIN_TOKEN", "the admin token"),
            ("HANGU_SERVER_SECRET", "an employee's token"),
        ];
        let setup = variables
            .iter()
            .fold(setup, |setup, (name, kind)| setup.env(name, &secret(kind)))
            .env("HANGU_EMP_ID", "E3")
            .env("RUST_LOG", "trace")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address()))
            .env(
                "OTEL_EXPORTER_OTLP_HEADERS",
                &format!("authorization=Bearer%20{}", secret("the collector's token")),
            )
            .env("OTEL_BSP_SCHEDULE_DELAY", "200");
        let home = setup.write();
        let mut search = search();
        search.add("the webhook's key", &HOOK);
        write_keys(&home, &mut search);
        let gateway = home.serve(&[]);
        Self {
            fixed,
            lite,
            own,
            legacy,
            brought,
            granted,
            listing,
            collector,
            hook,
            home,
            gateway,
            search,
            outs: Vec::new(),
            _others: [token, signed, pem],
        }
    }

    /// A client with the planted key, for an employee.
    pub fn client(&self, path: &str, dialect: Dialect, who: &str) -> Client {
        Client::new(self.gateway.address, path, dialect)
            .key(&secret("the caller's key"))
            .employee(who)
    }

    /// Asks under `/v1`, and keeps what is said.
    pub fn ask(&mut self, who: &str, method: &str, path: &str, body: &str, told: Told) -> Response {
        let key = secret("the caller's key");
        let mut headers = vec![("X-Api-Key", &*key), ("SSO-Emp-Id", who)];
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        let address = self.gateway.address;
        let answer = exchange(address, method, path, &headers, body.as_bytes()).unwrap();
        self.said(&format!("{method} {path} by {who}"), &answer, told);
        answer
    }

    /// Asks the admin API, and keeps what is said.
    pub fn admin(&mut self, token: &str, method: &str, path: &str, body: &str) -> Response {
        let bearer = format!("Bearer {}", secret(token));
        let headers = [("Content-Type", "application/json"), ("Authorization", &*bearer)];
        let answer = exchange(self.gateway.admin, method, path, &headers, body.as_bytes()).unwrap();
        self.said(&format!("{method} {path} with {token}"), &answer, Told::Nothing);
        answer
    }

    /// Runs a command, and keeps what it says.
    pub fn run(&mut self, args: &[&str]) -> String {
        let said = self.home.run(args);
        self.out(&format!("hangu {}", args.join(" ")), said.clone(), Told::Nothing);
        said
    }

    /// Keeps an answer.
    pub fn said(&mut self, what: &str, answer: &Response, told: Told) {
        let head: String =
            answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let bytes = [head.as_bytes(), b"\n", &answer.body].concat();
        self.out(&format!("the answer {} to {what}", answer.status), bytes, told);
    }

    pub fn out(&mut self, place: &str, bytes: impl Into<Vec<u8>>, told: Told) {
        self.outs.push(Out { place: place.to_owned(), bytes: bytes.into(), told });
    }

    /// Ends the gateway, and looks everywhere.
    #[track_caller]
    pub fn judge(mut self) {
        // Before and after its end: what a store writes ahead is gone with it.
        let folder = self.home.path("");
        self.read(&folder);
        self.gateway.signal(15);
        self.gateway.wait();
        // What was written before the end arrives after it.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let log = self.gateway.log();
        assert!(log.contains("\"level\":\"TRACE\""), "everything is logged");
        for line in log.lines() {
            self.out("the log", line, Told::Nothing);
        }
        let exported = self.collector.requests("");
        assert!(exported.iter().any(|sent| sent.body.contains("tools/call")), "there are traces");
        for sent in exported {
            self.out("a batch of spans", sent.body, Told::Nothing);
        }
        for sent in self.hook.requests("") {
            self.out("a notice", sent.body, Told::Nothing);
        }
        self.read(&folder);
        for name in ["hangu.db", "hangu.db-wal", "audit/hangu.jsonl"] {
            assert!(self.outs.iter().any(|out| out.place == name), "{name} is looked at");
        }
        let mut arrived = BTreeSet::new();
        let mut leaks: BTreeMap<(&str, &str), (u32, String)> = BTreeMap::new();
        for out in &self.outs {
            for (name, place) in self.search.found(&out.bytes) {
                let may = match out.told {
                    Told::Everything => {
                        arrived.insert(name);
                        true
                    }
                    Told::Nothing => false,
                    Told::These(names) => names.contains(&name),
                };
                if !may {
                    let around = &out.bytes[place.saturating_sub(200)..];
                    let around = String::from_utf8_lossy(&around[..around.len().min(300)]);
                    let first = || (0, around.into_owned());
                    leaks.entry((&out.place, name)).or_insert_with(first).0 += 1;
                }
            }
        }
        for kind in ARRIVED {
            assert!(arrived.contains(kind), "`{kind}` arrived where it belongs");
        }
        let told: Vec<String> = leaks
            .iter()
            .map(|((place, name), (times, first))| format!("{place}: {name} ({times}): {first}"))
            .collect();
        assert!(told.is_empty(), "{} leaks\n{}", told.len(), told.join("\n\n"));
    }

    /// Every file but those that are secrets themselves.
    fn read(&mut self, folder: &Path) {
        const OWN: [&str; 5] = ["keyring.json", "hook.txt", "key.pem", "header.txt", "caller.key"];
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.read(&path);
            } else if path.is_file() {
                let name = path.strip_prefix(self.home.path("")).unwrap().display().to_string();
                if !OWN.contains(&&*name) {
                    self.out(&name, fs::read(&path).unwrap(), Told::Nothing);
                }
            }
        }
    }
}

fn write_keys(home: &Home, search: &mut Search) {
    let write = |name: &str, text: &str| {
        fs::write(home.path(name), text).unwrap();
        fs::set_permissions(home.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("caller.key", &secret("the caller's key from a file"));
    write("header.txt", &secret("the header of an upstream from a file"));
    write("hook.txt", &format!("whsec_{}", STANDARD.encode(HOOK)));
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    write("key.pem", &key.serialize_pem());
    // In PKCS #8 the number itself stands here, before the public half.
    search.add("the key of a file", &key.serialized_der()[36..68]);
    let at = "2026-12-01T00:00:00Z";
    let ring: Value = serde_json::json!({ "version": 1, "keys": [{ "id": "1a2b3c4d",
        "state": "primary", "created": at, "since": at, "material": STANDARD.encode(MATERIAL) }] });
    write("keyring.json", &ring.to_string());
    search.add("the key material", &MATERIAL);
    let derive = |salt: Option<&[u8]>, from: &[u8], label: &[u8]| {
        let mut secret = [0; 32];
        Hkdf::<Sha256>::new(salt, from).expand(label, &mut secret).unwrap();
        secret
    };
    for purpose in ["storage", "digests", "tokens", "replays", "approvals", "steps", "identity"] {
        let secret = derive(Some(b"hangu keyring v1"), &MATERIAL, purpose.as_bytes());
        search.add("a secret of the keyring", &secret);
        if purpose == "identity" {
            let number = derive(None, &secret, b"hangu identity P-256\0");
            search.add("the gateway's own key", &number);
        }
    }
}
