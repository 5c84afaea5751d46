//! What a line says, and how it is written.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};

use super::*;
use crate::json::{Doc, Duplicates, Limits};

const LIMITS: Limits = Limits { depth: 4, duplicates: Duplicates::Refuse, outline: 1 };

/// A value written by RFC 8785, by way of a general serializer.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| key.encode_utf16().collect::<Vec<_>>());
            let members: Vec<String> = members
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

async fn logged(facts: &Facts) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hangu.jsonl");
    let audit = start(&file);
    audit.durable(&Record::intent(facts, NOW, Duration::ZERO)).await.unwrap();
    audit.append(&call(facts));
    audit.stop().await.unwrap();
    verify(&read(&file)).unwrap();
    read(&file).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_call_is_told_with_all_that_is_known_of_it() {
    let lines = logged(&write_facts()).await;
    let record: Value = serde_json::from_str(&lines[2]).unwrap();
    let digest = keys().args_hash(&TenantId::new("acme"), b"{}").to_string();
    let expected = serde_json::json!({
        "argsHash": digest, "bytesIn": 300, "bytesOut": 200, "callSource": "mcp",
        "chain": record["chain"], "code": "rate_limited", "decision": "allow", "dialect": "mcp",
        "durationUs": 184, "event": "call", "id": record["id"], "idempotency": "stored",
        "instance": "gw-1", "limits": ["user-rate"], "method": "tools/call",
        "outcome": "throttled", "overhead_us": 184, "pin": format!("sha256:{}", "ab".repeat(32)),
        "principal": {
            "auth": "header", "caller": "corp-gateway", "empId": "E1009",
            "roles": ["admin", "member"]
        },
        "reason": "rule_allow", "revision": "3f9a1c20b7d4", "risk": "write_high",
        "rules": ["admin-purge"], "seq": 3, "serverKey": "mcp_crm_1f0c77ab",
        "source": {"address": "10.0.0.7"}, "spanId": "0f".repeat(8), "status": 200,
        "tenant": "acme", "tool": "crm/contacts.purge",
        "toolCallId": "0198f2aa-bbcc-7ddd-8eee-ffff00001111", "traceId": "4b".repeat(16),
        "ts": "2026-11-30T09:14:07.481Z", "upstream": "crm", "v": 1,
        "version": env!("CARGO_PKG_VERSION")
    });
    assert_eq!(record, expected);
    assert_eq!(record["chain"]["id"], format!("gw-1/{NOW}"));
}

#[tokio::test]
async fn an_intent_has_no_outcome_and_the_id_of_its_call() {
    let facts = Facts { outcome: None, code: None, ..write_facts() };
    let lines = logged(&facts).await;
    let [intent, call]: [Value; 2] = [1, 2].map(|at| serde_json::from_str(&lines[at]).unwrap());
    assert_eq!(intent["event"], "intent");
    assert_eq!(intent["toolCallId"], call["toolCallId"]);
    assert_ne!(intent["id"], call["id"]);
    for absent in ["outcome", "durationUs", "overhead_us", "bytesOut"] {
        assert_eq!(intent.get(absent), None, "{absent}");
    }
}

#[tokio::test]
async fn lines_are_canonical_and_what_is_unknown_is_left_out() {
    let mut odd = write_facts();
    odd.cost = Some(1);
    odd.degraded_to = Some("crm/contacts.mark".into());
    let quota = |id: &str| QuotaUse { id: id.into(), used: 7, budget: 100 };
    odd.quota = vec![quota("month-cost"), quota("day-cost")];
    odd.rules.push("quote\" back\\ tab\t bell\u{7} é \u{1f600}".into());
    let mut looked = write_facts();
    looked.shadow = Some((DecisionKind::Deny, "rule_deny"));
    let arguments = br#"{"\ud83d\ude00":1,"\uff00":"q\"","a":1.0,"b":-0,"c":12,"d":[1],"e":{},
        "g":"x\u2028y","h":9007199254740993,"i":"\u0007"}"#;
    let doc = Doc::parse(arguments.as_slice().into(), &LIMITS).unwrap();
    for (key, value) in doc.root().members() {
        looked.arguments.add(&format!("/{}", key.unescaped()), false, Some(value));
    }
    looked.arguments.add("/none", false, None);
    for facts in [odd, looked, Facts::default()] {
        for line in logged(&facts).await {
            let value: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(canonical(&value), line);
            assert!(!line.contains("null") && !line.contains("[]"), "{line}");
        }
    }
}

#[tokio::test]
async fn arguments_that_rules_looked_at_are_told_of_the_call_alone() {
    let mut facts = write_facts();
    let doc = Doc::parse((&br#"[1.0,-7,"x\u2028y","eu"]"#[..]).into(), &LIMITS).unwrap();
    for (index, value) in doc.root().elements().enumerate() {
        facts.arguments.add(&format!("/{index}"), false, Some(value));
    }
    facts.arguments.add("/key", true, Some(doc.root()));
    facts.shadow = Some((DecisionKind::Deny, "rule_deny"));
    let lines = logged(&facts).await;
    let [intent, call]: [Value; 2] = [1, 2].map(|at| serde_json::from_str(&lines[at]).unwrap());
    assert_eq!(intent.get("argFacts"), None);
    let told = serde_json::json!({
        "/0": {"number": "1.0"}, "/1": -7, "/2": {"characters": 3}, "/3": "eu",
        "/key": {"withheld": true}
    });
    assert_eq!(call["argFacts"], told);
    assert_eq!(call["shadow"], serde_json::json!({"decision": "deny", "reason": "rule_deny"}));
}

#[tokio::test]
async fn waiting_is_not_the_gateways_time() {
    let facts = Facts { waited: Duration::from_micros(100), ..write_facts() };
    let record: Value = serde_json::from_str(&logged(&facts).await[2]).unwrap();
    assert_eq!((&record["durationUs"], &record["overhead_us"]), (&184.into(), &84.into()));
}

#[tokio::test]
async fn forged_text_makes_no_line() {
    let name = "x\nCRITICAL audit ok user=boss\u{1b}[2J\u{2028}\u{85}\u{202e}";
    let facts = Facts { tool: None, tool_asked: Some(name.into()), ..write_facts() };
    let lines = logged(&facts).await;
    assert_eq!(lines.len(), 4);
    let record: Value = serde_json::from_str(&lines[2]).unwrap();
    assert_eq!(
        record["tool"], "x\nCRITICAL audit ok user=boss\u{1b}[2J\u{fffd}\u{fffd}\u{fffd}",
        "escaped as JSON does it, and without what JSON would leave as it is"
    );
    assert!(lines[2].contains("x\\nCRITICAL") && lines[2].contains("\\u001b[2J"));
}

#[tokio::test]
async fn long_text_of_a_caller_is_cut() {
    let facts = Facts { tool: None, tool_asked: Some("é".repeat(1000).into()), ..write_facts() };
    let record: Value = serde_json::from_str(&logged(&facts).await[2]).unwrap();
    assert_eq!(record["tool"], "é".repeat(128));
}

#[tokio::test]
async fn an_employee_can_be_told_by_hash_only() {
    let disk = Shaky::default();
    let config = Config { employee: EmployeeForm::Hash, ..Config::new("unused", "gw-1") };
    let clock = Clock::manual(NOW);
    let storage = Box::new(disk.clone());
    let audit =
        Audit::with_storage(config, keys(), clock, Arc::new(()), storage, Tail::default()).unwrap();
    audit.append(&call(&write_facts()));
    audit.stop().await.unwrap();
    let employee = EmployeeId::parse("E1009").unwrap();
    let hash = keys().principal(&TenantId::new("acme"), &employee).to_string();
    assert_eq!(verify(&disk.text()).unwrap()[1]["principal"]["hash"], hash);
    assert!(!disk.text().contains("E1009"));
}

#[tokio::test]
async fn the_chain_shows_what_was_done_to_the_log() {
    let disk = Shaky::default();
    let audit = start_on(&disk, 100, Arc::new(()));
    for _ in 0..5 {
        audit.append(&call(&write_facts()));
    }
    audit.stop().await.unwrap();
    let text = disk.text();
    assert_eq!(verify(&text).unwrap().len(), 7);

    let lines: Vec<&str> = text.lines().collect();
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    assert!(verify(&swapped.join("\n")).unwrap_err().starts_with("out of order"));
    let mut cut = lines.clone();
    cut.remove(3);
    assert!(verify(&cut.join("\n")).unwrap_err().starts_with("out of order"));
    let altered = text.replacen("crm/contacts.purge", "crm/contacts.search", 1);
    assert!(verify(&altered).unwrap_err().starts_with("altered"));
    let renumbered = text.replacen("\"seq\":3", "\"seq\":30", 1);
    assert!(verify(&renumbered).unwrap_err().starts_with("altered"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_producers_leave_no_gap() {
    let disk = Shaky::default();
    let audit = Arc::new(start_on(&disk, 16_384, Arc::new(())));
    let mut producers = JoinSet::new();
    for _ in 0..8 {
        let audit = audit.clone();
        producers.spawn(async move {
            let facts = write_facts();
            for _ in 0..100 {
                audit.append(&call(&facts));
                audit.durable(&Record::intent(&facts, NOW, Duration::ZERO)).await.unwrap();
            }
        });
    }
    producers.join_all().await;
    audit.stop().await.unwrap();
    let records = verify(&disk.text()).unwrap();
    assert_eq!(records.len(), 8 * 200 + 2);
    assert_eq!(events(&records).iter().filter(|event| **event == "intent").count(), 800);
    assert!(disk.0.lock().syncs < 800, "records that wait together share a sync");
}

#[tokio::test]
async fn ten_thousand_records_are_a_matter_of_moments() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hangu.jsonl");
    let audit = start(&file);
    let facts = write_facts();
    let begun = Instant::now();
    for _ in 0..10_000 {
        audit.append(&call(&facts));
    }
    audit.flush().await.unwrap();
    // Generous: this is an unoptimised build, and the machine has other things to do.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(verify(&read(&file)).unwrap().len(), 10_001);
}
