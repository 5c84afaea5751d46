//! The document about the API, made of the table that it is served by.

use futures_util::FutureExt;
use http::Method;
use serde_json::{Map, Value, json};

use super::{ROUTES, Route, tokens::Need};

pub(super) const SHOW: Route = Route {
    method: Method::GET,
    path: "/admin/api/openapi.json",
    summary: "This document (OpenAPI 3.1).",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |_, _| async { Ok(document()) }.boxed(),
};

pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let entry = paths.entry(route.path).or_insert_with(|| json!({}));
        entry[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hangu admin API",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Error": error_schema() },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = route
        .query
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name, "in": "query", "required": parameter.required,
                "description": parameter.what, "schema": { "type": "string" },
            })
        })
        .collect();
    if let Some((_, name)) = route.path.split_once('{') {
        parameters.push(json!({
            "name": name.trim_end_matches('}'), "in": "path", "required": true,
            "schema": { "type": "string" },
        }));
    }
    let roles: &[&str] = match route.need {
        Need::Look => &["viewer", "operator", "approver", "security"],
        Need::Operate => &["operator"],
        Need::Approve => &["approver", "security"],
        Need::Secure => &["security"],
    };
    let error = json!({
        "description": "Why not.",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
    });
    let mut operation = json!({
        "summary": route.summary,
        "x-roles": roles,
        "responses": {
            "200": { "description": "The answer.", "content": { "application/json": {} } },
            "default": error,
        },
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(schema) = route.body.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "retryable", "next"],
            "properties": {
                "code": { "type": "string" },
                "message": { "type": "string" },
                "retryable": { "type": "boolean" },
                "next": { "type": "string" },
                "retryAfterMs": { "type": "integer" },
            },
        } },
    })
}
