//! `hangu steps`: the real command against a gateway.

use std::{fs, process::Output};

use super::*;
use crate::support::command;

/// Runs the command as E2.
fn hangu(gateway: &Gateway, args: &[&str], input: &str) -> Output {
    let url = format!("http://{}", gateway.address());
    let variables = [("HANGU_URL", &*url), ("HANGU_API_KEY", KEY), ("HANGU_EMP_ID", "E2")];
    command::hangu("steps", args, &variables, input)
}

#[track_caller]
fn ended(output: &Output, code: i32) -> String {
    let (out, error) = command::ended(output, code);
    if out.is_empty() { error } else { out }
}

#[test]
fn what_one_command_compiles_the_other_runs() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let inputs = json!({ "orderId": { "source": "page.url", "path": "orderId" } });
    let step = step(3, &key, "query", inputs, json!({ "saveAs": "order" }));
    let compiled = ended(&hangu(&gateway, &["compile", "-"], &step.to_string()), 0);
    for form in [json!([step]), json!({ "steps": [step] })] {
        let same = ended(&hangu(&gateway, &["compile", "-"], &form.to_string()), 0);
        assert_eq!(same, compiled);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("compiled.json");
    fs::write(&file, &compiled).unwrap();
    let file = file.to_str().unwrap();
    let context = r#"{"url":"https://shop.example/?orderId=O-1"}"#;
    let said = ended(&hangu(&gateway, &["run", file, "--context", context], ""), 0);
    for words in ["completed", "   3  ok           query", r#"order = {"given":{"orderId":"O-1"}}"#]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let page = folder.path().join("page.json");
    fs::write(&page, context).unwrap();
    let page = format!("@{}", page.to_str().unwrap());
    let args = ["run", "-", "--context", &page, "--step-index", "3", "--format", "json"];
    let told: Value = serde_json::from_str(&ended(&hangu(&gateway, &args, &compiled), 0)).unwrap();
    assert_eq!(told["steps"][0]["state"], "ok");
    let run_id = told["runId"].as_str().unwrap();
    let args = ["run", file, "--context", context, "--run-id", run_id];
    assert!(ended(&hangu(&gateway, &args, ""), 0).contains(run_id));
    assert_eq!(one.calls().len(), 3);
}

#[test]
fn what_is_wrong_is_said_and_ends_otherwise() {
    let one = server();
    let gateway = gateway(&[("one", &one)], "");
    let key = key_of(&gateway, "one");
    let steps = json!([
        step(1, &key, "query", json!({}), json!({})),
        step(2, &key, "none", json!({}), json!({}))
    ]);
    let said = ended(&hangu(&gateway, &["compile", "-"], &steps.to_string()), 1);
    for place in ["/steps/0/mcp/inputBindings: ", "/steps/1/mcp/toolName: "] {
        assert!(said.contains(&format!("\n  {place}")), "{said}");
    }
    let inputs = json!({ "orderId": { "source": "page.url", "path": "orderId" } });
    let compiled =
        compiled(&gateway, &json!([step(1, &key, "query", inputs, json!({}))])).to_string();
    let said = ended(&hangu(&gateway, &["run", "-"], &compiled), 1);
    assert!(said.contains("failed") && said.contains("invalid_args: step 1: "), "{said}");
    let said = ended(&hangu(&gateway, &["run", "-"], &compiled.replace("query", "echo")), 1);
    assert!(said.contains("they were changed since"), "{said}");
    for (args, input) in [
        (&["compile", "-"][..], "{"),
        (&["compile", "/no/such/file"][..], ""),
        (&["run", "-", "--context", "{"][..], "{}"),
        (&["run", "-", "--variables", "@/no/such/file"][..], "{}"),
    ] {
        ended(&hangu(&gateway, args, input), 2);
    }
}
