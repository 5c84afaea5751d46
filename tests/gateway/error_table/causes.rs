//! What can go wrong, and how to bring it about.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::stage::{Ask, Speaks, Stage, UPSTREAM_TEXT};
use crate::process_support::{Answer, FIXED_KEY, Response, text_result};

/// How a cause is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// With the object of the taxonomy, under the request's id.
    Ours,
    /// The same, and nobody knows an id: the message was not read.
    Unread,
    /// On standard MCP in the server's own words.
    Theirs,
    /// With what the protocol lays down for the error, where it does.
    Protocol,
    /// By the status alone.
    Silent,
}

type Provoke = Box<dyn Fn(&Stage, Speaks) -> Option<Response>>;

pub struct Cause {
    pub name: String,
    pub telling: Telling,
    /// Nothing where it cannot happen.
    pub provoke: Provoke,
}

pub fn all() -> Vec<Cause> {
    let mut list = List(Vec::new());
    callers(&mut list);
    requests(&mut list);
    policy(&mut list);
    limits(&mut list);
    idempotency(&mut list);
    providers(&mut list);
    servers(&mut list);
    list.0
}

struct List(Vec<Cause>);

impl List {
    fn add(
        &mut self,
        name: &str,
        telling: Telling,
        provoke: impl Fn(&Stage, Speaks) -> Option<Response> + 'static,
    ) {
        self.0.push(Cause { name: name.to_owned(), telling, provoke: Box::new(provoke) });
    }

    /// A request that is the same in every dialect.
    fn ask(&mut self, name: &str, ask: Ask) {
        self.add(name, Telling::Ours, move |stage, speaks| Some(ask.send(stage, speaks)));
    }

    /// One that is refused before its body is read.
    fn unread(&mut self, name: &str, ask: Ask) {
        self.add(name, Telling::Unread, move |stage, speaks| Some(ask.send(stage, speaks)));
    }
}

/// A number that nobody had.
fn fresh() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn echo() -> Ask {
    Ask::call("echo")
}

fn callers(list: &mut List) {
    list.unread("no key", echo().without("X-Api-Key"));
    list.unread("an unknown key", echo().header("X-Api-Key", "nobody's"));
    list.unread("an expired key", echo().header("X-Api-Key", "acme-old-key-of-the-tests---"));
    list.unread("an employee whom the caller may not name", {
        echo().header("X-Api-Key", FIXED_KEY)
    });
    list.unread("an employee's id that is none", echo().header("SSO-Emp-Id", "a b"));
    list.unread("two employees", echo().twice("SSO-Emp-Id", "E2"));
    list.unread("an employee of another tenant", echo().header("SSO-Emp-Id", "G1"));
    list.ask("no employee", echo().without("SSO-Emp-Id"));
    list.ask("a caller without an employee", {
        echo().without("SSO-Emp-Id").header("X-Api-Key", "acme-other-key-of-the-tests-")
    });
    for (name, token) in
        [("no key and no token", None), ("a token that is none", Some("Bearer x.y.z"))]
    {
        list.add(name, Telling::Unread, move |stage, speaks| {
            let ask = echo().without("X-Api-Key").without("SSO-Emp-Id");
            let ask = token.map_or(ask.clone(), |token| ask.header("Authorization", token));
            Some(ask.send_to(&stage.tokens, speaks))
        });
    }
}

fn requests(list: &mut List) {
    list.unread("a path that leads nowhere", echo().at("/nowhere"));
    list.unread("an upstream that is none", echo().at("/mcp/nobody"));
    for (name, body) in [
        ("a body that is no JSON", "{\"jsonrpc\""),
        ("an empty body", ""),
        ("a body that is a text", "\"x\""),
    ] {
        list.add(name, Telling::Unread, move |stage, speaks| {
            Some(echo().raw(stage, speaks, "POST", body.as_bytes()))
        });
    }
    list.add("a body that is too large", Telling::Unread, |stage, speaks| {
        Some(echo().with(json!({ "x": "x".repeat(9_000) })).send(stage, speaks))
    });
    list.unread("another content type", echo().header("Content-Type", "text/plain"));
    list.unread("an origin that may not call", echo().header("Origin", "https://evil.example"));
    list.add("a method that is none of the path's", Telling::Unread, |stage, speaks| {
        Some(echo().raw(stage, speaks, "PUT", b""))
    });
    list.add("nested too deeply", Telling::Unread, |stage, speaks| {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let (_, _, body) = echo().with(json!({ "x": "DEEP" })).written(speaks);
        let body = body.to_string().replace("\"DEEP\"", &deep);
        Some(echo().raw(stage, speaks, "POST", body.as_bytes()))
    });
    list.add("a method that nobody knows", Telling::Ours, |stage, speaks| {
        let ask = Ask::of("tools/nothing", json!({}));
        (speaks != Speaks::Lite).then(|| ask.send(stage, speaks))
    });
    list.add("a session that is none", Telling::Ours, |stage, speaks| {
        let ask = echo().header("Mcp-Session-Id", "nobody's");
        matches!(speaks, Speaks::Era(_)).then(|| ask.send(stage, speaks))
    });
    list.add("a revision that nobody speaks", Telling::Protocol, |stage, speaks| {
        let ask = echo().header("MCP-Protocol-Version", "2099-01-01");
        (speaks != Speaks::Lite).then(|| ask.send(stage, speaks))
    });
    list.add("a header that says something else than the body", Telling::Ours, |stage, speaks| {
        let ask = echo().header("Mcp-Name", "other");
        (speaks == Speaks::Modern).then(|| ask.send(stage, speaks))
    });
    list.add("a refused notification", Telling::Silent, |stage, speaks| {
        let ask = Ask::of("notifications/cancelled", json!({ "requestId": 99 })).notification();
        (speaks != Speaks::Lite).then(|| ask.send(stage, speaks))
    });
    list.ask("a call without a name", Ask::of("tools/call", json!({ "arguments": {} })));
    list.ask("arguments that are no object", echo().with(json!([1])));
    list.ask("an argument that is missing", Ask::call("typed"));
    list.ask("an argument of another type", Ask::call("typed").with(json!({ "n": "one" })));
    list.add("a cursor that is none", Telling::Ours, |stage, speaks| {
        Some(Ask::of("tools/list", json!({ "cursor": "nobody's" })).send(stage, speaks))
    });
}

fn policy(list: &mut List) {
    list.ask("an unknown tool", Ask::call("nobody"));
    list.ask("a hidden tool", Ask::call("hidden"));
    list.ask("arguments that policy does not allow", Ask::call("region"));
    list.ask("a call that needs approval", Ask::call("asks"));
    list.add("a resource that is not there", Telling::Ours, |stage, speaks| {
        let ask = Ask::of("resources/read", json!({ "uri": "file:///nobody" }));
        (speaks != Speaks::Lite)
            .then(|| ask.header("Mcp-Name", "file:///nobody").send(stage, speaks))
    });
}

fn limits(list: &mut List) {
    list.add("a rate that is spent", Telling::Ours, |stage, speaks| {
        stage.up.on(|_| None);
        let _ = Ask::call("rated").send(stage, speaks);
        Some(Ask::call("rated").send(stage, speaks))
    });
    list.add("no slot left", Telling::Ours, |stage, speaks| {
        stage.up_waits(Duration::from_millis(300));
        thread::scope(|scope| {
            scope.spawn(|| Ask::call("slot").send(stage, Speaks::Lite));
            thread::sleep(Duration::from_millis(120));
            Some(Ask::call("slot").send(stage, speaks))
        })
    });
    list.add("an address that called too often", Telling::Unread, |stage, speaks| {
        Some(echo().send_to(&stage.address, speaks))
    });
}

fn keyed(tool: &str, key: &str) -> Ask {
    Ask::call(tool).header("Idempotency-Key", key)
}

fn idempotency(list: &mut List) {
    list.ask("a write without a key", Ask::call("pay"));
    list.ask("a key that is too long", keyed("pay", &"k".repeat(300)));
    list.add("a key of other arguments", Telling::Ours, |stage, speaks| {
        stage.up.on(|_| None);
        let key = format!("k{}", fresh());
        let _ = keyed("pay", &key).send(stage, speaks);
        Some(keyed("pay", &key).with(json!({ "n": 2 })).send(stage, speaks))
    });
    list.add("a call that still runs", Telling::Ours, |stage, speaks| {
        stage.up_waits(Duration::from_millis(350));
        let key = format!("k{}", fresh());
        thread::scope(|scope| {
            scope.spawn(|| keyed("pay", &key).send(stage, speaks));
            thread::sleep(Duration::from_millis(120));
            Some(keyed("pay", &key).send(stage, speaks))
        })
    });
    list.add("a write of unknown outcome", Telling::Ours, |stage, speaks| {
        stage.up_answers(Answer::Raw(Vec::new()));
        Some(keyed("pay", &format!("k{}", fresh())).send(stage, speaks))
    });
    list.add("a key of unknown outcome", Telling::Ours, |stage, speaks| {
        stage.up_answers(Answer::Raw(Vec::new()));
        let key = format!("k{}", fresh());
        let _ = keyed("pay", &key).send(stage, speaks);
        Some(keyed("pay", &key).send(stage, speaks))
    });
    list.add("a write whose intent cannot be kept", Telling::Ours, |stage, speaks| {
        Some(Ask::call("unsure").send_to(&stage.full, speaks))
    });
}

/// Statuses of a provider that speaks MCP-Lite.
fn providers(list: &mut List) {
    for status in [400, 401, 403, 404, 409, 413, 422, 429, 500, 503] {
        list.add(&format!("a provider says {status}"), Telling::Ours, move |stage, speaks| {
            let body = json!({ "detail": UPSTREAM_TEXT });
            stage.lite_answers(Answer::json(status, &body));
            Some(echo().at("/mcp/rest").send(stage, speaks))
        });
    }
    list.add("a provider's own error object", Telling::Ours, |stage, speaks| {
        let body = json!({ "error": { "code": "conflict", "message": "it exists" } });
        stage.lite_answers(Answer::json(409, &body));
        Some(echo().at("/mcp/rest").send(stage, speaks))
    });
    list.add("a provider asks to wait", Telling::Ours, |stage, speaks| {
        let answer = Answer::json(429, &json!({})).with_header("Retry-After", "3");
        stage.lite_answers(answer);
        Some(echo().at("/mcp/rest").send(stage, speaks))
    });
    list.add("a provider's answer is no result", Telling::Ours, |stage, speaks| {
        stage.lite_answers(Answer::body(200, "text/html", UPSTREAM_TEXT));
        Some(echo().at("/mcp/rest").send(stage, speaks))
    });
}

/// Servers of standard MCP.
fn servers(list: &mut List) {
    for status in [401, 403, 404, 429, 500, 503] {
        list.add(&format!("a server says {status}"), Telling::Ours, move |stage, speaks| {
            stage.up_answers(Answer::body(status, "text/plain", UPSTREAM_TEXT));
            Some(echo().send(stage, speaks))
        });
    }
    for (name, answer) in [
        ("a server answers with a page", Answer::body(200, "text/html", UPSTREAM_TEXT)),
        ("a server answers with nothing", Answer::body(200, "application/json", "")),
        ("a server breaks off", Answer::Raw(Vec::new())),
        ("a server speaks no HTTP", Answer::Raw(b"SSH-2.0-x\r\n".to_vec())),
    ] {
        list.add(name, Telling::Ours, move |stage, speaks| {
            stage.up_answers(answer.clone());
            Some(echo().send(stage, speaks))
        });
    }
    for code in [-32602, -32603, -32001, 42] {
        list.add(&format!("a server's error {code}"), Telling::Theirs, move |stage, speaks| {
            let error = json!({ "code": code, "message": "it says so", "data": { "why": 1 } });
            stage.up_says(200, "error", error);
            Some(echo().send(stage, speaks))
        });
    }
    list.add("a server asks somebody who cannot be asked", Telling::Protocol, |stage, speaks| {
        let ask = json!({ "method": "elicitation/create", "params": {
            "mode": "form", "message": "Which?",
            "requestedSchema": { "type": "object", "properties": {} },
        } });
        let result: Value = json!({
            "resultType": "input_required", "inputRequests": { "q": ask }, "requestState": "s",
        });
        match speaks {
            // What such a client declares reaches the server, which says so itself.
            Speaks::Modern | Speaks::Lite => {
                let data = json!({ "requiredCapabilities": { "elicitation": {} } });
                let error = json!({ "code": -32021, "message": "it must ask", "data": data });
                stage.up_says(400, "error", error);
            }
            Speaks::Era(_) => stage.up_says(200, "result", result),
        }
        Some(echo().send(stage, speaks))
    });
    list.add("a server that does not answer in time", Telling::Ours, |stage, speaks| {
        stage.up_waits(Duration::from_millis(900));
        Some(echo().send(stage, speaks))
    });
    list.add("a call that takes too long in all", Telling::Ours, |stage, speaks| {
        // Only who asks for progress can be kept waiting by it.
        stage.up.on_call(|seen| {
            let token = &seen.params["_meta"]["progressToken"];
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": token, "progress": 1 } });
            Answer::Events(Duration::from_millis(300), vec![progress.to_string(); 6])
        });
        let ask = echo().at("/mcp/capped").meta("progressToken", "p".into());
        (speaks != Speaks::Lite).then(|| ask.send(stage, speaks))
    });
    list.add("a request above the server's size", Telling::Ours, |stage, speaks| {
        let ask = echo().at("/mcp/small").with(json!({ "x": "x".repeat(2_000) }));
        Some(ask.send(stage, speaks))
    });
    list.add("an answer above the size", Telling::Ours, |stage, speaks| {
        stage.up.on_call(|seen| seen.result(text_result(&"x".repeat(3_000))));
        Some(echo().at("/mcp/small").send(stage, speaks))
    });
    list.ask("a server that is gone", echo().at("/mcp/gone"));
    list.ask("a server that was never there", echo().at("/mcp/never"));
}
