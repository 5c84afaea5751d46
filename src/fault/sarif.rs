//! Faults as SARIF 2.1.0, for code hosts and editors. Only what such a reader shows: results,
//! their places and rules; no fixes, since a suggestion is a sentence and not an edit.

use serde_json::{Value, json};

use super::{Fault, FaultCode, Page, Report, Severity, Span};

pub(super) fn render(report: &Report) -> String {
    let mut codes: Vec<FaultCode> = report.faults.iter().map(|fault| fault.code).collect();
    codes.sort();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().map(|code| rule(*code)).collect();
    let results: Vec<Value> = report.faults.iter().map(|fault| result(fault, &codes)).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "hangu",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    log.to_string() + "\n"
}

fn rule(code: FaultCode) -> Value {
    let mut rule = json!({
        "id": code.as_str(),
        "name": format!("{code:?}"),
        "defaultConfiguration": { "level": level(code.severity()) },
    });
    if let (Some(page), Some(rule)) = (Page::of(code), rule.as_object_mut()) {
        let text = page.text.replace('\n', " ");
        rule.insert("shortDescription".into(), json!({ "text": page.title }));
        rule.insert("fullDescription".into(), json!({ "text": text }));
        let help = format!("hangu explain {code}");
        rule.insert("help".into(), json!({ "text": help }));
    }
    rule
}

fn result(fault: &Fault, codes: &[FaultCode]) -> Value {
    let message = match &fault.suggestion {
        Some(suggestion) => format!("{}; {suggestion}", fault.message),
        None => fault.message.clone(),
    };
    let mut result = json!({
        "ruleId": fault.code.as_str(),
        "ruleIndex": codes.iter().position(|code| *code == fault.code),
        "level": level(fault.severity()),
        "message": { "text": message },
        "locations": [place(&fault.at, fault.snippet())],
    });
    if let Some(result) = result.as_object_mut().filter(|_| !fault.related.is_empty()) {
        let related = fault.related.iter().enumerate().map(|(id, related)| {
            // Another fault may have made the line a secret, so none of it is shown here.
            let mut place = place(&related.at, None);
            if let Some(place) = place.as_object_mut() {
                place.insert("id".into(), json!(id));
                place.insert("message".into(), json!({ "text": related.message }));
            }
            place
        });
        result.insert("relatedLocations".into(), related.collect());
    }
    result
}

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn place(at: &Span, snippet: Option<&str>) -> Value {
    let mut place = json!({ "artifactLocation": { "uri": uri(&at.source.name) } });
    if let Some(place) = place.as_object_mut().filter(|_| at.line > 0) {
        let column = at.column.max(1);
        let mut region = json!({
            "startLine": at.line,
            "startColumn": column,
            "endColumn": column.saturating_add(at.length.max(1)),
        });
        if let (Some(text), Some(region)) = (snippet, region.as_object_mut()) {
            region.insert("snippet".into(), json!({ "text": text }));
        }
        place.insert("region".into(), region);
    }
    json!({ "physicalLocation": place })
}

/// A path as a reference: relative to wherever the command ran, or absolute.
fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.strip_prefix("./").unwrap_or(path).bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fault::{Faults, Format, Source};

    #[test]
    fn a_fault_is_a_result_with_its_rule_and_place() {
        let source = Arc::new(Source {
            name: "policies/a b.yaml".into(),
            text: "rules:\n  - risk: [read_lo]\n".into(),
        });
        let at = Span { source: source.clone(), line: 2, column: 12, length: 7 };
        let mut faults = Faults::new();
        let fault = faults.add(FaultCode::UnknownRisk, &at, "unknown risk level `read_lo`");
        fault.suggest("did you mean `read_low`?").relate(&at, "here");
        faults.add(FaultCode::Unreadable, &Span::file("/etc/x"), "cannot be read");
        let report = Report { faults: faults.into_sorted(), files: 2 };
        let log: Value = serde_json::from_str(&report.render(Format::Sarif)).unwrap();
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        let driver = &run["tool"]["driver"];
        assert_eq!(driver["name"], "hangu");
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(driver["rules"][index]["id"], result["ruleId"]);
            assert!(driver["rules"][index]["shortDescription"]["text"].is_string());
            assert!(matches!(result["level"].as_str(), Some("error" | "warning")));
            assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        }
        let whole = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(whole["artifactLocation"]["uri"], "file:///etc/x");
        assert!(whole.get("region").is_none(), "a file as a whole has no lines");
        let place = &results[1]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "policies/a%20b.yaml");
        let region = &place["region"];
        assert_eq!(
            (&region["startLine"], &region["startColumn"], &region["endColumn"]),
            (&json!(2), &json!(12), &json!(19))
        );
        assert_eq!(results[1]["relatedLocations"][0]["message"]["text"], "here");
    }
}
