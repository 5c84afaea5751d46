//! Many clients that use the same ids and tokens at the same time: each gets its own answer and
//! its own progress, and its servers never meet one id twice.

use std::{collections::HashSet, thread, time::Duration};

use serde_json::json;

use crate::support::{
    Answer, Client, Gateway, Request, Speaks, Upstream, client::open_session, member,
};

const CLIENTS: usize = 12;
const ROUNDS: usize = 4;

/// Tells of its progress under the token it was given, with the words of its caller.
fn talkative(speaks: Speaks) -> Upstream {
    Upstream::scripted(speaks, |request| {
        let words = json!(request.arguments());
        let progress = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{{{{token}}}},\"progress\":1,\"message\":{words}}}}}\n\n"
        );
        let end = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":{{{{id}}}},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":{words}}}]}}}}\n\n"
        );
        // Long enough that all of them run at once.
        Answer::events([progress.clone(), progress, end]).every(Duration::from_millis(15))
    })
}

#[test]
fn nobody_hears_what_another_asked() {
    for speaks in [Speaks::Stateless, Speaks::Handshake("2025-11-25")] {
        let upstream = talkative(speaks);
        let gateway = Gateway::before(&upstream);
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let gateway = &gateway;
                scope.spawn(move || ask(gateway, number));
            }
        });
        let calls = upstream.calls();
        assert_eq!(calls.len(), CLIENTS * ROUNDS);
        for path in [&["id"][..], &["params", "_meta", "progressToken"]] {
            let given: HashSet<_> = calls.iter().map(|call| call.member(path).unwrap()).collect();
            assert_eq!(given.len(), calls.len(), "{path:?}: a server met one twice");
        }
    }
}

/// The same id and the same token each time, whoever asks.
fn ask(gateway: &Gateway, number: usize) {
    let modern = number.is_multiple_of(2);
    let session = (!modern).then(|| open_session(gateway, "2025-11-25"));
    let meta = match modern {
        true => {
            r#","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#
        }
        false => "",
    };
    for round in 0..ROUNDS {
        let own = format!("{number}/{round}.");
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"slow","arguments":{{"say":"{own}"}},"_meta":{{"progressToken":"p"{meta}}}}}}}"#
        );
        let request = match &session {
            Some(session) => Request::handshake(body).header("Mcp-Session-Id", session),
            None => Request::stateless(&body),
        };
        let mut client = Client::of(gateway);
        client.send(&request);
        assert_eq!(client.head().status, 200);
        let mut events = Vec::new();
        while let Some(event) = client.event() {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            // The first event of a stream that can be taken up again is no message.
            if !data.is_empty() {
                events.push(data.to_owned());
            }
        }
        assert_eq!(events.len(), 3, "{events:?}");
        for event in &events {
            assert!(event.contains(&format!(r#"\"{own}\""#)), "{own}: {event}");
        }
        for progress in &events[..2] {
            let token = member(progress, &["params", "progressToken"]);
            assert_eq!(token.as_deref(), Some(r#""p""#), "{progress}");
        }
        assert_eq!(member(&events[2], &["id"]).as_deref(), Some("1"));
    }
}
