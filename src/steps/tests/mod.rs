//! The engine as a whole, over a few tools that are not there.

mod compiling;
mod forms;
mod running;
mod vectors;

use std::sync::LazyLock;

use bytes::Bytes;
use secrecy::SecretBox;

use super::*;
use crate::{
    json::{Doc, Duplicates, Limits as JsonLimits},
    model::{
        caller::TenantId,
        keys::{KeySecret, KeySecrets},
    },
};

const ORDERS: &str = "mcp_order-query_7f3a2c91";
const BOOKS: &str = "mcp_books_00000001";

/// The step of the contract, section 7.
const EXAMPLE: &str = r#"{ "stepIndex": 3, "type": "mcpCall",
  "mcp": { "serverKey": "mcp_order-query_7f3a2c91", "toolName": "query_order",
           "inputBindings": { "orderId": { "source": "page.url", "path": "orderId" } },
           "saveAs": "orderQueryResult", "failurePolicy": "required" } }"#;

/// The schema of a tool with tens of thousands of inputs, all of them required.
static WIDE: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<String> = (0..28_000).map(|n| format!("\"input{n}\"")).collect();
    let all: Vec<String> = names.iter().map(|name| format!("{name}:{{}}")).collect();
    format!(
        r#"{{"properties":{{{}}},"required":[{}],"additionalProperties":false}}"#,
        all.join(","),
        names.join(",")
    )
});

/// Two servers: one with tools, one that was never listed.
struct Shelf;

struct Schema(jsonschema::Validator);

impl Validator for Schema {
    fn check(&self, arguments: &[u8]) -> Result<(), Misfit> {
        let value = serde_json::from_slice(arguments).unwrap();
        self.0.validate(&value).map_err(|error| Misfit {
            pointer: error.instance_path().to_string(),
            message: error.to_string(),
        })
    }

    fn work(&self, length: usize) -> u64 {
        length as u64
    }
}

impl Tools for Shelf {
    type Validator = Schema;

    fn find(&self, server_key: &str, tool: &str) -> Result<Found, Unfound> {
        let schema = match (server_key, tool) {
            (ORDERS, "query_order") => {
                r##"{"type":"object","properties":{"orderId":{"type":"string"},
                    "limit":{"type":"integer","maximum":10},"filter":{"$ref":"#/$defs/f"}},
                    "required":["orderId"],"additionalProperties":false,
                    "$defs":{"f":{"type":"object","properties":{"state":{"enum":["a","b"]}}}}}"##
            }
            (ORDERS, "either") => {
                r#"{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},
                    "oneOf":[{"required":["a"]},{"required":["b"]}]}"#
            }
            (ORDERS, "start") => {
                r#"{"type":"object","properties":{"id":{"type":["integer","null"]},
                    "idempotencyKey":{"type":"string"}},"required":["id","idempotencyKey"]}"#
            }
            (ORDERS, "any") => "{}",
            (ORDERS, "wide") => &WIDE,
            (ORDERS, "new") => return Err(Unfound::NotApproved),
            (ORDERS, _) => return Err(Unfound::Tool),
            (BOOKS, _) => return Err(Unfound::NotListed),
            _ => return Err(Unfound::Server),
        };
        let key_input = (tool == "start").then(|| "idempotencyKey".into());
        let withheld = if tool == "any" { vec!["tenantId".into()] } else { Vec::new() };
        let digest = [u8::try_from(tool.len()).unwrap(); 32];
        Ok(Found { digest, schema: Some(schema.into()), key_input, withheld })
    }

    fn validator(&self, schema: &[u8]) -> Option<Schema> {
        let schema = serde_json::from_slice(schema).unwrap();
        Some(Schema(jsonschema::validator_for(&schema).unwrap()))
    }
}

fn doc(text: impl Into<Bytes>) -> Doc {
    let limits = JsonLimits { depth: 64, duplicates: Duplicates::Refuse, outline: 1 };
    Doc::parse(text.into(), &limits).unwrap()
}

/// Compiles a list of steps as it is written.
fn compiled(steps: &str) -> Result<Compiled, Vec<Fault>> {
    compile(doc(steps.to_owned()).root(), &Shelf, 100)
}

fn acme() -> TenantId {
    TenantId::new("acme")
}

fn secret(id: u32, byte: u8) -> KeySecret {
    KeySecret { id, secret: SecretBox::new(Box::new([byte; 32])) }
}

fn keys() -> Keys {
    Keys::new(KeySecrets { primary: secret(0xa3, 1), others: Vec::new() })
}

/// The compiled form of steps, for acme.
fn written(steps: &str) -> String {
    let (text, _) = compiled(steps).unwrap().write(&acme(), &keys());
    String::from_utf8(text).unwrap()
}

/// The list of steps in a compiled form.
fn steps_of(compiled: &str) -> String {
    let doc = doc(compiled.to_owned());
    String::from_utf8(doc.root().get("steps").unwrap().raw().to_vec()).unwrap()
}

fn open(text: &str) -> Result<Compiled, NotCompiled> {
    Compiled::open(doc(text.to_owned()).root(), &acme(), &keys())
}

/// An `mcpCall` of `query_order` with these members beside server and tool.
fn call(index: u64, members: &str) -> String {
    named(index, ORDERS, "query_order", members)
}

fn named(index: u64, server: &str, tool: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(
        r#"{{"stepIndex":{index},"type":"mcpCall","mcp":{{"serverKey":"{server}","toolName":"{tool}"{comma}{members}}}}}"#
    )
}

const GOOD: &str = r#""inputBindings":{"orderId":{"source":"const","value":"O-1"}}"#;
