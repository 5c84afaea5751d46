//! What the tests of the running gateway share: the gateway itself, a server whose answers a
//! test writes, and a client that can send anything. No expectation stands here.

pub mod answer;
pub mod asker;
pub mod client;
pub mod command;
pub mod gateway;
pub mod postgres;
pub mod upstream;

use std::{collections::HashMap, thread, time::Duration};

use serde_json::value::RawValue;
use tokio::time::Instant;

pub use answer::{Answer, Signal};
pub use asker::Asker;
pub use client::{Client, Reply, Request};
pub use gateway::Gateway;
pub use upstream::{Received, Speaks, Upstream};

/// The tool of most calls; the fixtures' servers list it.
pub const ECHO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"x":1}}}"#;

/// The body of an ordinary good result.
pub const OK: &str =
    r#"{"jsonrpc":"2.0","id":{{id}},"result":{"content":[{"type":"text","text":"ok"}]}}"#;

/// The same where the dialect has no envelope.
pub const LITE_OK: &str = r#"{"content":[{"type":"text","text":"ok"}],"isError":false}"#;

/// The text of a member, as it was written: `member(body, &["error", "code"])`.
pub fn member(text: &str, path: &[&str]) -> Option<String> {
    let mut text = text;
    for name in path {
        let members: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
        text = members.get(*name)?.get();
    }
    Some(text.trim().to_owned())
}

/// Waits until something holds; says what, where it does not come true.
pub fn wait_for(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
