//! A tool's `inputSchema`, compiled once, asked on each call.
//!
//! JSON Schema 2020-12 by default and the older drafts where `$schema` names one. Nothing is
//! ever fetched: a reference that leaves the document makes the schema unusable.
//!
//! The schema is a server's text and the arguments are a client's, and a core's one thread holds
//! one against the other. So both are bounded, and so is their product: what a schema unfolds to
//! is counted (`weight.rs`), and arguments that are too long for that are refused, never let
//! through unchecked. Patterns run in time linear to the text. Those that cannot, with a
//! look-around or a reference back, may try so many ways and no more.

mod weight;

use std::{fmt, sync::OnceLock};

use bytes::Bytes;
use jsonschema::{
    PatternOptions, Retrieve, Uri, ValidationError, Validator, error::ValidationErrorKind,
};
use serde_json::Value;

/// The largest schema that is compiled, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// What holding arguments against a schema may cost: bytes of arguments times parts of the schema.
/// It is some seconds of a core where all is made to take as long as it can, and a hundred times
/// what honest schemas and arguments come to.
const MAX_WORK: u64 = 1 << 32;

/// The size that a pattern may have once it is compiled, in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// What a pattern may keep to be fast, in bytes.
const PATTERN_MEMORY: usize = 256 << 10;

/// How many ways may be tried for one text where a pattern needs it.
const MAX_WAYS: usize = 1_000;

/// So many parts of a schema that takes no ways count as much.
const WAYS_WEIGHT: u64 = 4 * MAX_WAYS as u64;

/// What a tool's arguments must look like.
pub struct ArgumentSchema(Form);

enum Form {
    /// Every object.
    Anything,
    Compiled(Compiled),
    /// Compiled when somebody first needs it: a compiled schema is many times its text, and most
    /// tools that are known are called by nobody.
    Later {
        text: Bytes,
        compiled: OnceLock<Result<Box<ArgumentSchema>, SchemaFault>>,
    },
}

struct Compiled {
    validator: Validator,
    /// Parts that one value may be held against.
    weight: u64,
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
    #[error(
        "its inputSchema refers to its parts so often, or nests them so deeply, that arguments \
         cannot be held against it"
    )]
    Tangled,
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
        let weigh = |pattern| weight::weigh(&value, pattern).ok_or(SchemaFault::Tangled);
        let weight = weigh(1)?;
        let linear = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(PATTERN_MEMORY);
        let options = || jsonschema::options().with_retriever(Closed);
        if let Ok(validator) = options().with_pattern_options(linear).build(&value) {
            return Ok(Self(Form::Compiled(Compiled { validator, weight })));
        }
        // Either no schema at all, or one with patterns that need more.
        let clever = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_WAYS)
            .size_limit(MAX_PATTERN)
            .dfa_size_limit(PATTERN_MEMORY);
        let built = options().with_pattern_options(clever).build(&value);
        let validator = built.map_err(|error| unusable(error.to_string()))?;
        Ok(Self(Form::Compiled(Compiled { validator, weight: weigh(WAYS_WEIGHT)? })))
    }

    /// What it costs to hold arguments of a length against it.
    pub fn work(&self, length: usize) -> u64 {
        match &self.0 {
            Form::Compiled(compiled) => compiled.weight.saturating_mul(length as u64),
            Form::Later { text, compiled } => match compiled_once(text, compiled) {
                Ok(schema) => schema.work(length),
                Err(_) => 0,
            },
            Form::Anything => 0,
        }
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
        let Compiled { validator, weight } = match &self.0 {
            Form::Anything => return Ok(()),
            Form::Compiled(compiled) => compiled,
            Form::Later { text, compiled } => {
                return match compiled_once(text, compiled) {
                    Ok(schema) => schema.check(arguments),
                    Err(fault) => Err(Mismatch::of_schema(fault)),
                };
            }
        };
        if weight.saturating_mul(arguments.len() as u64) > MAX_WORK {
            let message = "the arguments are too long to be held against this tool's schema, \
                           which has too many parts for that";
            let (pointer, message) = (String::new(), message.to_owned());
            return Err(Mismatch { pointer, masked: message.clone(), message });
        }
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

fn compiled_once<'a>(
    text: &Bytes,
    compiled: &'a OnceLock<Result<Box<ArgumentSchema>, SchemaFault>>,
) -> Result<&'a ArgumentSchema, &'a SchemaFault> {
    let compile = || ArgumentSchema::compile(Some(text)).map(Box::new);
    compiled.get_or_init(compile).as_ref().map(|schema| &**schema)
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
    fn a_pattern_that_tries_many_ways_ends() {
        let items = |pattern: &str| {
            let items = format!(r#"{{"type":"string","pattern":"{pattern}"}}"#);
            format!(r#"{{"properties":{{"a":{{"type":"array","items":{items}}}}}}}"#)
        };
        // Each text is another, or what is known of one would serve for all.
        let texts = |count: usize| {
            let all: Vec<_> = (0..count).map(|n| format!("\"{}!{n}\"", "a".repeat(18))).collect();
            format!(r#"{{"a":[{}]}}"#, all.join(","))
        };
        // No way back is needed, one is looked for, and one is never found.
        for (pattern, count, expected) in [
            ("^(a+)+$", 20_000, Err("/a/0")),
            ("^(?=a)(a|a)*$", 4_000, Err("/a/0")),
            (r"^((a|a)*\\2b|a*![0-9]+)$", 4_000, Err("/a/0")),
            // What would take too long is not let through.
            (r"^((a|a)*\\2b|a*![0-9]+)$", 60_000, Err("")),
        ] {
            let outcome = check(&items(pattern), &texts(count));
            assert_eq!(outcome, expected.map_err(String::from), "{pattern}");
        }
        // A look-around is as good as it was.
        let password = items("^(?=.*[0-9])(?=.*[a-z]).{8,}$");
        assert_eq!(check(&password, r#"{"a":["abcdefg1","1bcdefgh"]}"#), Ok(()));
        assert_eq!(check(&password, r#"{"a":["abcdefg1","abcdefgh"]}"#), Err("/a/1".into()));
    }

    #[test]
    fn a_schema_that_unfolds_without_end_is_none() {
        let definition = |n: usize| {
            let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, n + 1);
            format!(r#""d{n}":{{"allOf":[{}]}}"#, vec![next; 200].join(","))
        };
        let definitions: Vec<_> = (0..6).map(definition).collect();
        let schema = format!(
            r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d6":{{"minLength":1}}}}}}"##,
            definitions.join(",")
        );
        let fault = ArgumentSchema::compile(Some(schema.as_bytes())).unwrap_err();
        assert_eq!(fault, SchemaFault::Tangled);
    }

    #[test]
    fn arguments_are_held_against_many_parts_as_long_as_that_ends() {
        let parts = vec![r#"{"minLength":1}"#; 10_000].join(",");
        let schema = format!(r#"{{"properties":{{"a":{{"items":{{"allOf":[{parts}]}}}}}}}}"#);
        let texts = |count: usize| format!(r#"{{"a":[{}]}}"#, vec![r#""t""#; count].join(","));
        assert_eq!(check(&schema, &texts(100)), Ok(()));
        assert_eq!(check(&schema, &texts(100_000)), Err(String::new()));
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
