//! The OpenAPI document that is served: whether programs can rely on it.

use std::collections::HashSet;

use serde_json::Value;

use super::{VIEWER, setup, told};
use crate::process_support::{Upstream, tool};

/// What is wrong with a document, by the OpenAPI 3.1 specification.
fn faults(document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let version = document["openapi"].as_str().unwrap_or_default();
    if !version.starts_with("3.1.") {
        faults.push(format!("openapi: `{version}`"));
    }
    for name in ["title", "version"] {
        if document["info"][name].as_str().is_none_or(str::is_empty) {
            faults.push(format!("info.{name} is missing"));
        }
    }
    let (mut ids, none) = (HashSet::new(), serde_json::Map::new());
    for (path, operations) in document["paths"].as_object().unwrap_or(&none) {
        if !path.starts_with('/') {
            faults.push(format!("{path} does not begin with a slash"));
        }
        for (method, operation) in operations.as_object().unwrap_or(&none) {
            let place = format!("{method} {path}");
            if !["get", "put", "post", "delete"].contains(&method.as_str()) {
                faults.push(format!("{place}: no such method is served"));
            }
            let id = operation["operationId"].as_str().unwrap_or_default();
            if id.is_empty() || !ids.insert(id) {
                faults.push(format!("{place}: operationId `{id}` is empty or another's too"));
            }
            if operation["summary"].as_str().is_none_or(str::is_empty) {
                faults.push(format!("{place}: no summary"));
            }
            parameters(&place, path, operation, &mut faults);
            responses(&place, operation, &mut faults);
            body(&place, method, operation, &mut faults);
            security(&place, document, operation, &mut faults);
        }
    }
    if ids.is_empty() {
        faults.push("there are no operations".to_owned());
    }
    references(document, document, &mut faults);
    faults
}

fn parameters(place: &str, path: &str, operation: &Value, faults: &mut Vec<String>) {
    let (mut declared, mut seen) = (HashSet::new(), HashSet::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let text = |name: &str| parameter[name].as_str().unwrap_or_default().to_owned();
        let (name, of) = (text("name"), text("in"));
        if name.is_empty() || !seen.insert((name.clone(), of.clone())) {
            faults.push(format!("{place}: parameter `{name}` is nameless, or there twice"));
        }
        if !jsonschema::draft202012::meta::is_valid(&parameter["schema"]) {
            faults.push(format!("{place}: parameter `{name}` has no schema"));
        }
        match of.as_str() {
            "query" => {}
            "path" if parameter["required"] == true => drop(declared.insert(name)),
            _ => faults.push(format!("{place}: parameter `{name}` is in `{of}`, or optional")),
        }
    }
    let given = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let given: HashSet<String> = given.map(str::to_owned).collect();
    if given != declared {
        faults.push(format!("{place}: its path has {given:?}, declared are {declared:?}"));
    }
}

fn responses(place: &str, operation: &Value, faults: &mut Vec<String>) {
    let none = serde_json::Map::new();
    let responses = operation["responses"].as_object().unwrap_or(&none);
    for wanted in ["200", "401", "403", "default"] {
        if !responses.contains_key(wanted) {
            faults.push(format!("{place}: no response `{wanted}`"));
        }
    }
    for (status, response) in responses {
        let is_status = status.len() == 3 && status.parse().is_ok_and(|n: u16| n < 600);
        if !is_status && status != "default" {
            faults.push(format!("{place}: `{status}` is no status"));
        }
        if response["description"].as_str().is_none_or(str::is_empty) {
            faults.push(format!("{place}: response `{status}` has no description"));
        }
        let schema = &response["content"]["application/json"]["schema"];
        if !jsonschema::draft202012::meta::is_valid(schema) || !schema.is_object() {
            faults.push(format!("{place}: response `{status}` has no schema"));
        }
    }
}

fn body(place: &str, method: &str, operation: &Value, faults: &mut Vec<String>) {
    let Some(body) = operation.get("requestBody") else { return };
    let schema = &body["content"]["application/json"]["schema"];
    if !schema.is_object() || !jsonschema::draft202012::meta::is_valid(schema) {
        faults.push(format!("{place}: its body's schema is none"));
    }
    if ["get", "delete"].contains(&method) {
        faults.push(format!("{place}: such a request has no body"));
    }
}

fn security(place: &str, document: &Value, operation: &Value, faults: &mut Vec<String>) {
    let wanted = operation["security"].as_array().filter(|wanted| !wanted.is_empty());
    let Some(wanted) = wanted else {
        return faults.push(format!("{place}: anybody may ask"));
    };
    for scheme in wanted.iter().filter_map(Value::as_object).flat_map(|wanted| wanted.keys()) {
        if document["components"]["securitySchemes"].get(scheme).is_none() {
            faults.push(format!("{place}: there is no security scheme `{scheme}`"));
        }
    }
    if operation["x-roles"].as_array().is_none_or(Vec::is_empty) {
        faults.push(format!("{place}: no role may do it"));
    }
}

/// Each reference leads somewhere.
fn references(document: &Value, part: &Value, faults: &mut Vec<String>) {
    match part {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str().filter(|_| name == "$ref") {
                    Some(to) => {
                        let place = to.strip_prefix('#').and_then(|it| document.pointer(it));
                        if place.is_none() {
                            faults.push(format!("`{to}` leads nowhere"));
                        }
                    }
                    None => references(document, value, faults),
                }
            }
        }
        Value::Array(elements) => {
            elements.iter().for_each(|element| references(document, element, faults));
        }
        _ => {}
    }
}

#[test]
fn the_document_is_sound() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    let document = told(&gateway, VIEWER, "GET", "/admin/api/openapi.json");
    assert_eq!(faults(&document), [""; 0], "{document:#}");
    // And what is not is found.
    let pins = "/paths/~1admin~1api~1pins~1approve/post";
    let revoke = "/paths/~1admin~1api~1credentials~1{tenant}~1{employee}/delete";
    for (place, broken, says) in [
        (format!("{pins}/operationId"), Value::from("drain"), "another's too"),
        (format!("{revoke}/parameters/0/name"), "who".into(), "its path has"),
        (format!("{revoke}/parameters/0/required"), false.into(), "or optional"),
        (format!("{pins}/security/0"), serde_json::json!({ "key": [] }), "no security scheme"),
        (format!("{pins}/responses/200/description"), "".into(), "no description"),
        (format!("{pins}/responses"), serde_json::json!({}), "no response `default`"),
        (
            format!("{pins}/requestBody/content/application~1json/schema/type"),
            7.into(),
            "its body's schema is none",
        ),
        ("/components/schemas".to_owned(), serde_json::json!({}), "leads nowhere"),
    ] {
        let mut document = document.clone();
        *document.pointer_mut(&place).unwrap_or_else(|| panic!("nothing at {place}")) = broken;
        let found = faults(&document);
        assert!(found.iter().any(|fault| fault.contains(says)), "{place}: {found:?}");
    }
}
