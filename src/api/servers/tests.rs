//! What becomes of servers that are brought: by whom, with which credentials, and where what
//! keeps them fails.

mod failures;
mod house;

use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use self::house::{House, KEY, SECRET, URL, bearer};
use crate::error::Code;

#[tokio::test]
async fn a_server_is_registered_listed_and_shown_without_its_secret() {
    let house = House::new();
    let answer = house.ask("E1", Method::POST, "/v1/servers", &bearer(SECRET)).await.unwrap();
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(answer.header(header::LOCATION), Some(format!("/v1/servers/{KEY}").as_str()));
    assert_eq!(answer.header(header::ETAG), Some("\"1\""));
    let told = &answer.body;
    for (member, expected) in [
        ("serverKey", json!(KEY)),
        ("url", json!(URL)),
        ("owner", json!("E1")),
        ("own", json!(true)),
        ("auth", json!("bearer")),
        ("hasCredential", json!(true)),
        ("dialect", json!("auto")),
        ("spoken", json!("modern")),
        ("revision", json!("2026-07-28")),
        ("health", json!("ok")),
        ("lastError", Value::Null),
        ("toolCount", json!(2)),
        ("edition", json!(1)),
    ] {
        assert_eq!(told[member], expected, "{member}: {told}");
    }
    let shown = house.get("E1", &format!("/v1/servers/{KEY}")).await.unwrap();
    let tools = shown.body["tools"].as_array().unwrap();
    assert_eq!(tools[0]["name"], "query");
    assert!(tools[0]["schemaVersion"].as_str().unwrap().starts_with("sha256:"), "{tools:?}");
    assert!(tools[1]["fault"].is_string(), "a tool that cannot be used says why: {tools:?}");
    let listed = house.get("E1", "/v1/servers").await.unwrap();
    assert_eq!(listed.body["servers"].as_array().unwrap().len(), 1);
    for answer in [&answer, &shown, &listed] {
        assert!(!answer.body.to_string().contains(SECRET), "{}", answer.body);
    }
    assert_eq!(house.credential("E1").await.as_deref(), Some(SECRET));
    assert_eq!(house.asked(), [Some(SECRET.to_owned())], "asked with the credential");

    // Again: what it is now, and nothing of before.
    let open = json!({ "url": URL, "name": "Orders" });
    let answer = house.ask("E1", Method::POST, "/v1/servers", &open).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!((&answer.body["auth"], &answer.body["edition"]), (&json!("none"), &json!(2)));
    assert_eq!(house.credential("E1").await, None);
    assert_eq!(house.changes(), ["E1", "E1"]);
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let house = House::new();
    let bad = json!({ "url": "ftp://x", "nmae": 1, "auth": { "type": "bearer" } });
    let error = house.ask("E1", Method::POST, "/v1/servers", &bad).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgs);
    let faults: Value = serde_json::from_slice(error.faults().unwrap()).unwrap();
    let pointers: Vec<&str> =
        faults.as_array().unwrap().iter().map(|f| f["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/nmae", "/url", "/auth/token"]);
    assert_eq!(error.pointer(), Some("/nmae"));
    assert!(error.message().ends_with("(and 2 more faults)"), "{error}");
    let oauth = json!({ "url": URL, "auth": { "type": "oauth" } });
    let error = house.ask("E1", Method::POST, "/v1/servers", &oauth).await.unwrap_err();
    assert_eq!((error.code(), error.pointer()), (Code::InvalidArgs, Some("/auth/type")));
}

#[tokio::test]
async fn what_cannot_be_listed_leaves_nothing_that_was_not_there() {
    let house = House::new();
    house.fails("a REST endpoint, not JSON-RPC: `dialect: mcp-lite`");
    let error = house.ask("E1", Method::POST, "/v1/servers", &bearer(SECRET)).await.unwrap_err();
    assert_eq!(error.code(), Code::ExternalServiceError);
    assert!(error.message().contains("`dialect: mcp-lite`"), "{error}");
    assert_eq!(house.credential("E1").await, None);
    assert_eq!(house.get("E1", "/v1/servers").await.unwrap().body["servers"], json!([]));

    house.works();
    house.ask("E1", Method::POST, "/v1/servers", &bearer("first")).await.unwrap();
    house.fails("it refused your credential");
    let basic = json!({ "url": URL, "auth": { "type": "basic", "user": "u", "password": SECRET } });
    house.ask("E1", Method::POST, "/v1/servers", &basic).await.unwrap_err();
    assert_eq!(house.credential("E1").await.as_deref(), Some("first"));
    let told = house.get("E1", &format!("/v1/servers/{KEY}")).await.unwrap().body;
    assert_eq!((&told["auth"], &told["edition"]), (&json!("bearer"), &json!(1)));
    assert_eq!((&told["health"], &told["toolCount"]), (&json!("ok"), &json!(2)));

    // A refresh keeps what was listed, and says how it went.
    let path = format!("/v1/servers/{KEY}/refresh");
    let error = house.ask("E1", Method::POST, &path, &Value::Null).await.unwrap_err();
    assert_eq!(error.code(), Code::ExternalServiceError);
    let told = house.get("E1", &format!("/v1/servers/{KEY}")).await.unwrap().body;
    assert_eq!((&told["health"], &told["toolCount"]), (&json!("failing"), &json!(2)));
    assert_eq!(told["lastError"]["message"], "it refused your credential");
    house.works();
    let told = house.ask("E1", Method::POST, &path, &Value::Null).await.unwrap().body;
    assert_eq!((&told["health"], &told["lastError"]), (&json!("ok"), &Value::Null));
}

#[tokio::test]
async fn policy_says_who_brings_what_and_how_many() {
    let house = House::new();
    for (who, url, why) in [
        ("E4", URL, "none of your roles"),
        ("E1", "https://orders.example.org/mcp", "not among the hosts"),
        ("E1", "https://orders.example.com:8443/mcp", "not among the hosts"),
        ("G1", URL, "no policy of your company"),
    ] {
        let error =
            house.ask(who, Method::POST, "/v1/servers", &json!({ "url": url })).await.unwrap_err();
        assert_eq!((error.code(), error.reason()), (Code::PermissionDenied, Some("self_service")));
        assert!(error.message().contains(why), "{who} {url}: {error}");
    }
    assert!(house.asked().is_empty(), "no server heard of it");
    // Who may bring none at all has nothing read that he posts.
    let bad = json!({ "url": 7, "nothing": 1 });
    for path in ["/v1/servers", "/v1/servers/import"] {
        let error = house.ask("E4", Method::POST, path, &bad).await.unwrap_err();
        assert_eq!((error.code(), error.faults()), (Code::PermissionDenied, None), "{path}");
    }
    for number in 0..3 {
        let url = format!("https://orders.example.com/{number}");
        let answer = house.ask("E1", Method::POST, "/v1/servers", &json!({ "url": url })).await;
        let outcome = answer.map(|answer| answer.status).map_err(|error| error.code());
        let expected =
            if number < 2 { Ok(StatusCode::CREATED) } else { Err(Code::PermissionDenied) };
        assert_eq!(outcome, expected, "{number}: two may be had");
    }
    // What one has can be registered anew.
    let again = json!({ "url": "https://orders.example.com/1", "name": "again" });
    assert_eq!(house.ask("E1", Method::POST, "/v1/servers", &again).await.unwrap().status, 200);
}

#[tokio::test]
async fn what_is_not_ones_own_is_unknown_or_only_seen() {
    let house = House::new();
    house.ask("E1", Method::POST, "/v1/servers", &bearer(SECRET)).await.unwrap();
    let path = format!("/v1/servers/{KEY}");
    let all = |path: &str| {
        [
            (Method::GET, path.to_owned(), Value::Null),
            (Method::DELETE, path.to_owned(), Value::Null),
            (Method::POST, format!("{path}/refresh"), Value::Null),
            (Method::PUT, format!("{path}/credential"), json!({ "type": "bearer", "token": "t" })),
            (Method::DELETE, format!("{path}/credential"), Value::Null),
            (Method::PUT, format!("{path}/share"), json!({ "team": "payments" })),
            (Method::DELETE, format!("{path}/share"), Value::Null),
        ]
    };
    // Another's, unknown, no key at all: alike but for the name.
    for (who, path) in [
        ("E2", path.as_str()),
        ("E1", "/v1/servers/mcp_other_00000000"),
        ("E1", "/v1/servers/nothing"),
    ] {
        for (method, path, body) in all(path) {
            let error = house.ask(who, method.clone(), &path, &body).await.unwrap_err();
            assert_eq!(error.code(), Code::ServerNotConfigured, "{who} {method} {path}");
            assert!(error.message().starts_with("you have no server `"), "{error}");
        }
        let unread = json!({ "type": "none of these" });
        let set = house.ask(who, Method::PUT, &format!("{path}/credential"), &unread).await;
        assert_eq!(set.unwrap_err().code(), Code::ServerNotConfigured, "{who} {path}");
    }
    let team = |team: &str| json!({ "team": team });
    let share = format!("{path}/share");
    let error = house.ask("E1", Method::PUT, &share, &team("others")).await.unwrap_err();
    assert_eq!((error.code(), error.pointer()), (Code::PermissionDenied, Some("/team")));
    let error = house.ask("E1", Method::PUT, &share, &json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgs);
    let told = house.ask("E1", Method::PUT, &share, &team("payments")).await.unwrap().body;
    assert_eq!(told["team"], "payments");

    // A member sees it, brings his own credential, and changes nothing else.
    let told = house.get("E2", &path).await.unwrap().body;
    let expected = (&json!("E1"), &json!(false), &json!(false));
    assert_eq!((&told["owner"], &told["own"], &told["hasCredential"]), expected);
    for (method, path, body) in all(&path) {
        if path.ends_with("/credential") || method == Method::GET {
            continue;
        }
        let error = house.ask("E2", method.clone(), &path, &body).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{method} {path}");
    }
    let credential = format!("{path}/credential");
    let basic = json!({ "type": "basic", "user": "u", "password": "p" });
    let error = house.ask("E2", Method::PUT, &credential, &basic).await.unwrap_err();
    assert_eq!((error.code(), error.pointer()), (Code::InvalidArgs, Some("/type")));
    let own = json!({ "type": "bearer", "token": "second" });
    house.ask("E2", Method::PUT, &credential, &own).await.unwrap();
    assert_eq!(house.credential("E2").await.as_deref(), Some("second"));
    assert_eq!(house.credential("E1").await.as_deref(), Some(SECRET));
    // Of another team.
    let error = house.get("E3", &path).await.unwrap_err();
    assert_eq!(error.code(), Code::ServerNotConfigured);

    // Not shared any more: it is gone for the member, and his credential is his to take away.
    house.ask("E1", Method::DELETE, &share, &Value::Null).await.unwrap();
    assert_eq!(house.get("E2", &path).await.unwrap_err().code(), Code::ServerNotConfigured);
    house.ask("E2", Method::DELETE, &credential, &Value::Null).await.unwrap();
    assert_eq!(house.credential("E2").await, None);
}

#[tokio::test]
async fn who_may_not_share_shares_nothing() {
    let house = House::new();
    house.ask("E3", Method::POST, "/v1/servers", &bearer(SECRET)).await.unwrap();
    let path = format!("/v1/servers/{KEY}/share");
    let team = json!({ "team": "others" });
    let error = house.ask("E3", Method::PUT, &path, &team).await.unwrap_err();
    assert_eq!((error.code(), error.reason()), (Code::PermissionDenied, Some("self_service")));
}

#[tokio::test]
async fn one_address_is_one_server_and_each_has_his_own_credential() {
    let house = House::new();
    house.ask("E1", Method::POST, "/v1/servers", &bearer("first")).await.unwrap();
    let same = json!({
        "url": "https://ORDERS.example.com:443/mcp#x",
        "auth": { "type": "bearer", "token": "second" },
    });
    let told = house.ask("E2", Method::POST, "/v1/servers", &same).await.unwrap().body;
    assert_eq!(told["serverKey"], KEY);
    assert_eq!(house.credential("E1").await.as_deref(), Some("first"));
    assert_eq!(house.credential("E2").await.as_deref(), Some("second"));
    let path = format!("/v1/servers/{KEY}");
    let gone = house.ask("E2", Method::DELETE, &path, &Value::Null).await.unwrap().body;
    assert_eq!(gone, json!({ "serverKey": KEY, "deleted": true }));
    assert_eq!(house.credential("E2").await, None);
    assert_eq!(house.credential("E1").await.as_deref(), Some("first"));
    house.get("E1", &path).await.unwrap();
}

#[tokio::test]
async fn the_owner_may_open_it_by_another_kind_of_credential() {
    let house = House::new();
    house.ask("E1", Method::POST, "/v1/servers", &json!({ "url": URL })).await.unwrap();
    let path = format!("/v1/servers/{KEY}/credential");
    let headers = json!({ "type": "headers", "headers": { "X-Token": SECRET } });
    house.ask("E1", Method::PUT, &path, &headers).await.unwrap();
    let told = house.get("E1", &format!("/v1/servers/{KEY}")).await.unwrap().body;
    assert_eq!((&told["auth"], &told["hasCredential"]), (&json!("headers"), &json!(true)));
    let error = house.ask("E1", Method::PUT, &path, &json!({ "type": "none" })).await.unwrap_err();
    assert_eq!((error.code(), error.pointer()), (Code::InvalidArgs, Some("/type")));
    for _ in 0..2 {
        let told = house.ask("E1", Method::DELETE, &path, &Value::Null).await.unwrap().body;
        assert_eq!(told["hasCredential"], false);
    }
}

#[tokio::test]
async fn each_entry_of_a_file_stands_for_itself() {
    let house = House::new();
    let file = json!({ "mcpServers": {
        "orders": { "url": URL, "headers": { "Authorization": format!("Bearer {SECRET}") }, "disabled": false },
        "shell": { "command": "sh" },
        "elsewhere": { "url": "https://orders.example.org/mcp" },
    } });
    let told = house.ask("E1", Method::POST, "/v1/servers/import", &file).await.unwrap().body;
    let outcomes: Vec<_> = told["servers"].as_array().unwrap().iter().collect();
    assert_eq!(outcomes[0]["outcome"], "registered");
    assert_eq!((&outcomes[0]["serverKey"], &outcomes[0]["toolCount"]), (&json!(KEY), &json!(2)));
    assert_eq!(outcomes[0]["leftOut"], json!(["disabled"]));
    assert_eq!(outcomes[1]["error"]["code"], "invalid_args");
    assert_eq!(outcomes[1]["error"]["pointer"], "/mcpServers/shell/command");
    assert_eq!(outcomes[2]["error"]["code"], "permission_denied");
    assert_eq!(house.credential("E1").await.as_deref(), Some(SECRET));
    assert!(!told.to_string().contains(SECRET));
}

#[tokio::test]
async fn a_description_has_no_secret_and_is_taken_back_by_others() {
    let house = House::new();
    house.ask("E1", Method::POST, "/v1/servers", &bearer(SECRET)).await.unwrap();
    let path = format!("/v1/servers/{KEY}");
    let asset = house.get("E1", &format!("{path}/asset")).await.unwrap();
    assert!(asset.header(header::CONTENT_DISPOSITION).unwrap().contains(KEY));
    assert!(!asset.body.to_string().contains(SECRET), "{}", asset.body);
    assert_eq!(asset.body["server"]["serverKey"], KEY);
    assert_eq!(asset.body["tools"][0]["name"], "query");
    assert_eq!(asset.body["pins"][0]["tool"], "query");
    let error = house.get("E2", &format!("{path}/asset")).await.unwrap_err();
    assert_eq!(error.code(), Code::ServerNotConfigured);

    // It is not asked before there is something that opens it, and then at once.
    let told = house.ask("E2", Method::POST, "/v1/servers/import", &asset.body).await.unwrap().body;
    let entry = &told["servers"][0];
    assert_eq!(
        (&entry["outcome"], &entry["needsCredential"]),
        (&json!("registered"), &json!(true))
    );
    assert_eq!(house.asked().len(), 1);
    let told = house.get("E2", &path).await.unwrap().body;
    assert_eq!((&told["health"], &told["toolCount"]), (&json!("unknown"), &json!(0)));
    let own = json!({ "type": "bearer", "token": "second" });
    house.ask("E2", Method::PUT, &format!("{path}/credential"), &own).await.unwrap();
    let told = house.get("E2", &path).await.unwrap().body;
    assert_eq!((&told["health"], &told["toolCount"]), (&json!("ok"), &json!(2)));
    assert_eq!(house.asked()[1].as_deref(), Some("second"));
    // What another key says of itself is not believed.
    let mut forged = asset.body.clone();
    forged["server"]["serverKey"] = "mcp_orders_00000000".into();
    house.ask("E2", Method::POST, "/v1/servers/import", &forged).await.unwrap_err();
}
