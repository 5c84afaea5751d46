//! A tool's `inputSchema`, compiled once, asked on each call.
//!
//! JSON Schema 2020-12 by default and the older drafts where `$schema` names one. Nothing is
//! ever fetched: a reference that leaves the document makes the schema unusable.

use std::{fmt, sync::OnceLock};

use bytes::Bytes;
use jsonschema::{Retrieve, Uri, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

/// The largest schema that is compiled, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// What a tool's arguments must look like.
pub struct ArgumentSchema(Form);

enum Form {
    /// Every object.
    Anything,
    Compiled(Validator),
    /// Compiled when somebody first needs it: a compiled schema is many times its text, and most
    /// tools that are known are called by nobody.
    Later {
        text: Bytes,
        compiled: OnceLock<Result<Box<ArgumentSchema>, SchemaFault>>,
    },
}

/// Where arguments are wrong, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON pointer into the arguments; empty for the arguments as a whole.
    pub pointer: String,
    /// What is wrong there; may quote the argument.
    pub message: String,
    /// The same without a word of any argument.
    pub masked: String,
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum SchemaFault {
    #[error("its inputSchema is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("its inputSchema is not a schema: {0}")]
    Unusable(String),
}

impl ArgumentSchema {
    /// Compiles a schema; `None` accepts every object.
    pub fn compile(schema: Option<&[u8]>) -> Result<Self, SchemaFault> {
        let Some(schema) = schema else { return Ok(Self(Form::Anything)) };
        if schema.len() > MAX_BYTES {
            return Err(SchemaFault::TooLarge);
        }
        let unusable = |error: String| SchemaFault::Unusable(error.chars().take(200).collect());
        let value: Value =
            serde_json::from_slice(schema).map_err(|error| unusable(error.to_string()))?;
        if is_plain_object(&value) {
            return Ok(Self(Form::Anything));
        }
        jsonschema::options()
            .with_retriever(Closed)
            .build(&value)
            .map(|validator| Self(Form::Compiled(validator)))
            .map_err(|error| unusable(error.to_string()))
    }

    /// The same of one that was compiled before, when it was listed.
    pub fn known(schema: Option<Bytes>) -> Self {
        Self(match schema {
            None => Form::Anything,
            Some(text) => Form::Later { text, compiled: OnceLock::new() },
        })
    }

    /// Checks arguments that are known to be a JSON object. A null at the top stands for an
    /// argument that is not given, as it does where arguments are repeated in headers: clients
    /// fill in what their model left out, and schemas seldom say `null`.
    pub fn check(&self, arguments: &[u8]) -> Result<(), Mismatch> {
        let validator = match &self.0 {
            Form::Anything => return Ok(()),
            Form::Compiled(validator) => validator,
            Form::Later { text, compiled } => {
                let compile = || Self::compile(Some(text)).map(Box::new);
                return match compiled.get_or_init(compile) {
                    Ok(schema) => schema.check(arguments),
                    Err(fault) => Err(Mismatch::of_schema(fault)),
                };
            }
        };
        let mut value: Value = serde_json::from_slice(arguments).map_err(|error| Mismatch {
            pointer: String::new(),
            message: format!("the arguments cannot be read: {error}"),
            masked: "the arguments cannot be read".to_owned(),
        })?;
        // The common case costs no error object.
        if validator.is_valid(&value) {
            return Ok(());
        }
        let Err(error) = validator.validate(&value) else { return Ok(()) };
        let mismatch = Mismatch {
            pointer: pointer_of(&error),
            message: error.to_string().chars().take(300).collect(),
            masked: error.masked().to_string().chars().take(300).collect(),
        };
        let given = value.as_object().map_or(0, serde_json::Map::len);
        if let Some(members) = value.as_object_mut() {
            members.retain(|_, argument| !argument.is_null());
        }
        let nulls = value.as_object().is_some_and(|members| members.len() < given);
        if nulls && validator.is_valid(&value) { Ok(()) } else { Err(mismatch) }
    }
}

impl Mismatch {
    /// No arguments fit what cannot be read.
    fn of_schema(fault: &SchemaFault) -> Self {
        let message = format!("the tool takes nothing: {fault}");
        Self { pointer: String::new(), masked: message.clone(), message }
    }
}

/// What is wrong: of an argument that is missing, where it would be.
fn pointer_of(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    match error.kind() {
        ValidationErrorKind::Required { property: Value::String(name) } => {
            format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
        }
        _ => place,
    }
}

/// `{"type": "object"}` says no more than the protocol does.
fn is_plain_object(schema: &Value) -> bool {
    schema.as_object().is_some_and(|members| {
        members.iter().all(|(key, value)| match key.as_str() {
            "type" => value == "object",
            "description" | "title" | "$comment" => true,
            _ => false,
        })
    })
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_any = matches!(self.0, Form::Anything);
        f.write_str(if is_any { "ArgumentSchema(any)" } else { "ArgumentSchema" })
    }
}

/// Refuses to fetch anything.
struct Closed;

impl Retrieve for Closed {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let scheme = uri.scheme().as_str();
        Err(format!("it refers to another document ({scheme}:…), and nothing is fetched").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, arguments: &str) -> Result<(), String> {
        ArgumentSchema::compile(Some(schema.as_bytes()))
            .unwrap()
            .check(arguments.as_bytes())
            .map_err(|mismatch| mismatch.pointer)
    }

    #[test]
    fn a_schema_that_is_compiled_later_says_the_same() {
        let schema = br#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}"#;
        let later = ArgumentSchema::known(Some(Bytes::from_static(schema)));
        let now = ArgumentSchema::compile(Some(schema)).unwrap();
        for arguments in ["{}", r#"{"a":1}"#, r#"{"a":"x"}"#, r#"{"a":null}"#] {
            let arguments = arguments.as_bytes();
            for _ in 0..2 {
                assert_eq!(later.check(arguments), now.check(arguments));
            }
        }
        let broken = ArgumentSchema::known(Some(Bytes::from_static(br#"{"type":"nothing"}"#)));
        assert!(broken.check(b"{}").unwrap_err().message.starts_with("the tool takes nothing"));
        assert_eq!(ArgumentSchema::known(None).check(b"{}"), Ok(()));
    }

    #[test]
    fn arguments_are_checked_against_both_drafts() {
        const NEW: &str = r#"{"type":"object","properties":{"a":{"type":"integer"},
            "p":{"prefixItems":[{"type":"string"}]}},"required":["a"]}"#;
        const OLD: &str = r#"{"$schema":"http://json-schema.org/draft-07/schema#",
            "type":"object","properties":{"a":{"enum":["x"]},"t":{"items":[{"type":"string"}]}},
            "definitions":{"n":{"type":"string"}}}"#;
        for (schema, arguments, expected) in [
            (NEW, r#"{"a":1}"#, Ok(())),
            (NEW, r#"{"a":1.0}"#, Ok(())),
            (NEW, r#"{"a":12345678901234567890123}"#, Ok(())),
            (NEW, r#"{}"#, Err("/a")),
            (NEW, r#"{"a":"1"}"#, Err("/a")),
            (NEW, r#"{"a":1,"p":[2]}"#, Err("/p/0")),
            (NEW, r#"{"a":1,"p":null}"#, Ok(())),
            (NEW, r#"{"a":null}"#, Err("/a")),
            (NEW, r#"{"a":1,"p":[null]}"#, Err("/p/0")),
            (NEW, r#"{"a":"1","p":null}"#, Err("/a")),
            (OLD, r#"{"a":"x"}"#, Ok(())),
            (OLD, r#"{"a":"y"}"#, Err("/a")),
            (OLD, r#"{"t":[1]}"#, Err("/t/0")),
        ] {
            assert_eq!(check(schema, arguments), expected.map_err(String::from), "{arguments}");
        }
    }

    #[test]
    fn a_number_no_double_can_hold_is_still_a_number() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"number"}}}"#;
        assert_eq!(check(schema, r#"{"n":1E400}"#), Ok(()));
    }

    #[test]
    fn nothing_is_fetched() {
        for reference in
            ["http://169.254.169.254/latest/", "file:///proc/self/environ", "https://x.example/s"]
        {
            let schema = format!(r#"{{"properties":{{"a":{{"$ref":"{reference}"}}}}}}"#);
            let fault = ArgumentSchema::compile(Some(schema.as_bytes())).unwrap_err();
            assert!(matches!(fault, SchemaFault::Unusable(_)), "{fault}");
        }
    }
}
