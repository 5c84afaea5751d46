//! The document about the API, made of the table that it is served by.

use futures_util::FutureExt;
use http::Method;
use serde_json::{Map, Value, json};

use super::{
    ROUTES, Route,
    tokens::{Need, Role},
};

pub(super) const SHOW: Route = Route {
    id: "showDocument",
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
            "description": "What operators ask of a running gateway, and tell it to do. `x-roles` \
                            of an operation says which roles a token needs, besides `admin.token`, \
                            which may do everything; `x-action` under which name it is recorded.",
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
    parameters.extend(route.parts().map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    }));
    let roles = Role::NAMED.into_iter().filter(|role| role.may(route.need)).map(Role::as_str);
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "security": [{ "token": [] }],
        "x-roles": roles.collect::<Vec<_>>(),
        "responses": {
            "200": {
                "description": "The answer.",
                "content": { "application/json": { "schema": { "type": "object" } } },
            },
            "401": refused("Nobody has this token, or none is presented."),
            "403": refused("The token's role may not do this."),
            "429": refused("Too many wrong tokens came from this address."),
            "default": refused("Why not."),
        },
    });
    // What is recorded under the token's name.
    if let Some(action) = route.action {
        operation["x-action"] = action.into();
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(schema) = route.body.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn refused(description: &str) -> Value {
    json!({
        "description": description,
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
    })
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
