//! Several gateways over one database count together.

use std::thread;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use super::{HIDE, TOOLS, quota, ready};
use crate::{
    process_support::{Dialect, Response, Setup, Upstream, tool, until},
    support::postgres,
};

/// The URL of a database of its own, where there is a server.
fn database() -> Option<String> {
    let server = postgres::shared()?;
    let name = format!("hangu_quotas_{:016x}", rand::random::<u64>());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut conn = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        conn.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    });
    Some(format!("{server}/{name}"))
}

#[test]
fn two_gateways_with_one_database_spend_one_budget() {
    let Some(url) = database() else { return };
    let up = Upstream::start(&[tool("dear"), tool("cheap"), tool("free")]);
    let setup = Setup::new()
        .config("store: { env: DATABASE }")
        .env("DATABASE", &url)
        .upstream("up", &up, "", TOOLS)
        .policy("quota.yaml", &quota("tenant", HIDE));
    let gateways = [setup.start(), setup.start()];
    gateways.iter().for_each(ready);
    let answers: Vec<Response> = thread::scope(|scope| {
        let calls: Vec<_> = (0..16)
            .map(|n| {
                let client = gateways[n % 2].client("/mcp/up", Dialect::ALL[n % 3]);
                scope.spawn(move || client.call("dear", json!({})))
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let words: Vec<String> = answers.iter().map(Response::word).collect();
    assert_eq!(words.iter().filter(|word| *word == "ok").count(), 5, "{words:?}");
    assert!(words.iter().all(|word| word == "ok" || word == "quota_exhausted"), "{words:?}");
    assert_eq!(up.calls().len(), 5);
    // Each learns what the other has spent, also for lists.
    for gateway in &gateways {
        let client = gateway.client("/mcp/up", Dialect::Modern);
        until("both lists follow", || client.list() == ["cheap", "free"]);
    }
    // The last units are spent once, whoever asks.
    let through = (0..40).filter(|n| {
        let client = gateways[n % 2].client("/mcp/up", Dialect::Lite);
        client.call("cheap", json!({})).word() == "ok"
    });
    assert_eq!(through.count(), 10);
    for gateway in &gateways {
        assert!(!gateway.log().contains("postgres://"), "{}", gateway.log());
    }
}
