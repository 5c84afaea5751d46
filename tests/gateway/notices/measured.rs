//! What `/metrics` tells of streams and of sessions.

use serde_json::json;

use super::{
    ERAS, Era, Listener, SECOND, Server, everything, gateway_with, in_session, session_of,
};
use crate::support::{Request, wait_for};

#[test]
fn streams_are_counted_and_sessions_measured() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway_with(&server, "", "poll: 60s, session_idle: 1s");
        let has = |start: &str, end: &str| {
            let metrics = gateway.metrics();
            metrics.lines().any(|line| line.starts_with(start) && line.ends_with(end))
        };
        let streams = |count: &str| has("hangu_streams_active{hangu_upstream=\"up\"}", count);
        wait_for("the gateway's own stream is counted", 5 * SECOND, || streams(" 1"));
        let watched = json!({ "resourceSubscriptions": ["a://one"] });
        let (listener, _) = Listener::modern(&gateway, "/mcp/up", "E1", "1", &watched);
        wait_for("a second one is counted", 5 * SECOND, || streams(" 2"));
        drop(listener);
        wait_for("it has gone", 5 * SECOND, || streams(" 1"));

        let session = session_of(&gateway, "E1");
        let params = json!({ "name": "open", "arguments": {} });
        assert_eq!(in_session(&gateway, &session, "E1", "tools/call", &params).status, 200);
        assert!(!has("mcp_server_session_duration_seconds_count", " 1"));
        let end = Request::new("DELETE", "/mcp/up", "")
            .header("MCP-Protocol-Version", "2025-11-25")
            .header("Mcp-Session-Id", &session)
            .header("SSO-Emp-Id", "E1");
        assert_eq!(end.ask(&gateway).status, 204);
        assert!(has("mcp_server_session_duration_seconds_count", " 1"), "{}", gateway.metrics());
        let at_server = || {
            has(
                r#"mcp_client_session_duration_seconds_count{mcp_protocol_version="2025-11-25",network_transport="tcp""#,
                "",
            )
        };
        if era == Era::Handshake {
            wait_for("the session at the server has ended", 15 * SECOND, at_server);
        } else {
            assert!(!at_server());
        }
    }
}
