//! Faces on definitions of every shape: what is published, what callers may send, and what their
//! servers get.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{mcp::Family, registry::read_definition};

fn definition(raw: &str) -> Definition {
    let doc = splice::document(&Bytes::copy_from_slice(raw.as_bytes())).unwrap();
    read_definition(doc.root()).unwrap()
}

fn tool(schema: &str) -> Definition {
    definition(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#))
}

fn hidden(name: &str) -> FaceParameter {
    FaceParameter { name: name.into(), hidden: true, ..FaceParameter::default() }
}

fn injected(name: &str, value: &str) -> FaceParameter {
    let value = HeaderTemplate::parse(value).unwrap();
    FaceParameter { value: Some(value), ..hidden(name) }
}

fn told(name: &str, description: &str) -> FaceParameter {
    let description = Some(description.into());
    FaceParameter { name: name.into(), description, ..FaceParameter::default() }
}

fn only(name: &str, words: &[&str]) -> FaceParameter {
    let allowed = Some(words.iter().map(|word| (*word).into()).collect());
    FaceParameter { name: name.into(), allowed, ..FaceParameter::default() }
}

fn face(parameters: &[FaceParameter]) -> Face {
    Face { parameters: parameters.to_vec(), ..Face::default() }
}

fn put(schema: &str, parameters: &[FaceParameter]) -> Result<Faced, FaceFault> {
    Faced::new(&tool(schema), &face(parameters))
}

/// The schema that is published, or why there is none.
fn published(schema: &str, parameters: &[FaceParameter]) -> String {
    match put(schema, parameters) {
        Ok(faced) => {
            let raw = std::str::from_utf8(&faced.raw).unwrap();
            let schema = raw.strip_prefix(r#"{"name":"t","inputSchema":"#).unwrap();
            schema.strip_suffix('}').unwrap().to_owned()
        }
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn what_is_hidden_leaves_the_schema_and_all_else_stays_as_it_was_written() {
    for (schema, left) in [
        (
            r#"{"type":"object","properties":{"a":{"type":"string"},"h":{"type":"string","x-mcp-header":"H"}},"x-own":1.0}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"}},"x-own":1.0}"#,
        ),
        (r#"{"properties":{"\u0068": {} , "a" : {} }}"#, r#"{"properties":{ "a" : {} }}"#),
        (r#"{"properties":{"h":{}}}"#, r#"{"properties":{}}"#),
        // What stands in an argument of that name is another thing.
        (
            r#"{"properties":{"a":{"properties":{"h":{}}},"h":{}}}"#,
            r#"{"properties":{"a":{"properties":{"h":{}}}}}"#,
        ),
        // Shapes that say nothing of it.
        ("true", "true"),
        ("{}", "{}"),
        (
            r#"{"type":"object","additionalProperties":false}"#,
            r#"{"type":"object","additionalProperties":false}"#,
        ),
        // Parts that all hold.
        (
            r#"{"allOf":[{"properties":{"h":{}}},{"properties":{"a":{},"h":{}}}]}"#,
            r#"{"allOf":[{"properties":{}},{"properties":{"a":{}}}]}"#,
        ),
        (
            r##"{"$ref":"#/$defs/Args","$defs":{"Args":{"type":"object","properties":{"h":{},"a":{}}}}}"##,
            r##"{"$ref":"#/$defs/Args","$defs":{"Args":{"type":"object","properties":{"a":{}}}}}"##,
        ),
        // What is never sent asks for nothing.
        (
            r#"{"properties":{"h":{}},"dependentRequired":{"h":["a"]}}"#,
            r#"{"properties":{},"dependentRequired":{}}"#,
        ),
        // Samples show no caller how.
        (
            r#"{"properties":{"h":{}},"examples":[{"h":1,"a":2}],"default":{"h":1}}"#,
            r#"{"properties":{},"examples":[{"a":2}],"default":{}}"#,
        ),
    ] {
        assert_eq!(published(schema, &[hidden("h")]), left, "{schema}");
    }
}

#[test]
fn what_is_injected_is_no_longer_required() {
    for (schema, left) in [
        (
            r#"{"properties":{"h":{},"a":{}},"required":["h", "a"]}"#,
            r#"{"properties":{"a":{}},"required":["a"]}"#,
        ),
        (r#"{"required":["h"]}"#, r#"{"required":[]}"#),
        (
            r#"{"properties":{"h":{}},"dependentRequired":{"a":["h","b"],"h":["c"]}}"#,
            r#"{"required":["c"],"properties":{},"dependentRequired":{"a":["b"]}}"#,
        ),
        (
            r#"{"properties":{"h":{}},"required":["h","c"],"dependencies":{"h":["c","d"]}}"#,
            r#"{"properties":{},"required":["c","d"],"dependencies":{}}"#,
        ),
        (
            r#"{"properties":{"h":{}},"minProperties":1,"maxProperties":3}"#,
            r#"{"properties":{},"minProperties":0,"maxProperties":2}"#,
        ),
    ] {
        assert_eq!(published(schema, &[injected("h", "$ctx.tenant")]), left, "{schema}");
    }
}

#[test]
fn what_a_schema_makes_depend_on_an_argument_is_not_published_without_it() {
    let entangled =
        |key: &str| format!("`h` cannot be hidden: `{key}` in its schema depends on it");
    for (schema, key) in [
        (r#"{"anyOf":[{"required":["h"]},{"required":["a"]}]}"#, "anyOf"),
        (r#"{"oneOf":[{"properties":{"h":{"const":1}}}]}"#, "oneOf"),
        (r#"{"if":{"properties":{"h":{"const":1}}},"then":{"required":["a"]}}"#, "if"),
        (r#"{"not":{"required":["h"]}}"#, "not"),
        (r#"{"allOf":[{"then":{"required":["h"]}}]}"#, "then"),
        (r#"{"dependentSchemas":{"a":{"required":["h"]}}}"#, "dependentSchemas"),
        (
            r##"{"$ref":"#/$defs/A","properties":{"x":{"$ref":"#/$defs/A"}},"$defs":{"A":{"properties":{"h":{}}}}}"##,
            "$ref",
        ),
    ] {
        assert_eq!(published(schema, &[injected("h", "x")]), entangled(key), "{schema}");
    }
    let refers = r##"{"properties":{"h":{"type":"string"},"a":{"$ref":"#/properties/h"}}}"##;
    let told = published(refers, &[injected("h", "x")]);
    assert!(told.starts_with("its schema cannot be published without what is hidden: "), "{told}");
    // Never sent, and another asks for it: that other could never be sent either.
    let needs = r#"{"properties":{"h":{}},"dependentRequired":{"a":["h"]}}"#;
    assert_eq!(published(needs, &[hidden("h")]), entangled("dependentRequired"));
}

#[test]
fn what_is_hidden_and_required_needs_a_value() {
    let required =
        |property: &str| format!(r#"{{"properties":{{"h":{property}}},"required":["h"]}}"#);
    let fault = put(&required("{}"), &[hidden("h")]).unwrap_err();
    assert_eq!(fault, FaceFault::NoValue("h".into()));
    let faced = put(&required(r#"{"default":{"a": 1.0}}"#), &[hidden("h")]).unwrap();
    let filled = faced.fill(None, |_| None).unwrap();
    assert_eq!(filled.unwrap(), r#"{"h":{"a": 1.0}}"#);
}

#[test]
fn descriptions_and_words_are_said_instead() {
    for (schema, parameter, left) in [
        (
            r#"{"properties":{"a":{"type":"string","description":"old","x":1}}}"#,
            told("a", "n\"ew"),
            r#"{"properties":{"a":{"type":"string","description":"n\"ew","x":1}}}"#,
        ),
        (
            r#"{"properties":{"a":{}}}"#,
            told("a", "new"),
            r#"{"properties":{"a":{"description":"new"}}}"#,
        ),
        (
            r#"{"properties":{"a":true}}"#,
            told("a", "new"),
            r#"{"properties":{"a":{"description":"new"}}}"#,
        ),
        (
            r#"{"properties":{"a":{"enum":["x","y", "z"],"type":"string"}}}"#,
            only("a", &["y", "x"]),
            r#"{"properties":{"a":{"enum":["y","x"],"type":"string"}}}"#,
        ),
        (
            r#"{"allOf":[{"properties":{"a":{"type":"string"}}}]}"#,
            only("a", &["y"]),
            r#"{"allOf":[{"properties":{"a":{"enum":["y"],"type":"string"}}}]}"#,
        ),
        // Older drafts look at nothing beside a reference.
        (
            r##"{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"string"}}}"##,
            only("a", &["y"]),
            r##"{"properties":{"a":{"allOf":[{"$ref":"#/$defs/A"}],"enum":["y"]}},"$defs":{"A":{"type":"string"}}}"##,
        ),
    ] {
        assert_eq!(published(schema, &[parameter]), left, "{schema}");
    }
    for schema in
        [r#"{"properties":{"a":{"type":"integer"}}}"#, r#"{"properties":{"a":{"enum":["x"]}}}"#]
    {
        let fault = put(schema, &[only("a", &["y"])]).unwrap_err();
        assert_eq!(fault, FaceFault::NoWord("a".into()), "{schema}");
    }
}

#[test]
fn what_is_said_in_vain_is_told_and_changes_nothing() {
    let schema = r#"{"properties":{"a":{"enum":["x"]}}}"#;
    let for_all = FaceParameter { if_known: true, ..injected("z", "v") };
    let faced = put(schema, &[told("b", "new"), hidden("c"), only("a", &["x", "y"]), for_all]);
    let faced = faced.unwrap();
    let vain = [
        Vain::Parameter("b".into()),
        Vain::Parameter("c".into()),
        Vain::Word("a".into(), "y".into()),
    ];
    assert_eq!(faced.vain, vain);
    // And yet nobody sends what was to be hidden.
    for name in ["c", "z"] {
        let sent = Bytes::from(json!({ name: 1 }).to_string());
        assert_eq!(faced.check(&sent).unwrap_err().pointer, format!("/{name}"));
    }
    assert_eq!(faced.fill(None, |_| None), Ok(None));
}

#[test]
fn names_and_descriptions_of_tools_are_said_instead() {
    let own = definition(r#"{ "title":"T","name" : "t","annotations":{"a":1.0} }"#);
    let name = Face { name: Some("u".into()), ..Face::default() };
    let described = Face { description: Some("d".into()), ..Face::default() };
    assert_eq!(
        Faced::new(&own, &name).unwrap().raw,
        r#"{ "title":"T","name" : "u","annotations":{"a":1.0} }"#
    );
    let faced = Faced::new(&own, &described).unwrap();
    assert_eq!(
        faced.raw,
        r#"{"description":"d", "title":"T","name" : "t","annotations":{"a":1.0} }"#
    );
    assert_eq!(
        faced.renamed("up__t"),
        r#"{"description":"d", "title":"T","name" : "up__t","annotations":{"a":1.0} }"#
    );
    assert!(!faced.concerns_arguments());
    let other = definition(r#"{"name":"t","description":"old"}"#);
    assert_eq!(Faced::new(&other, &described).unwrap().raw, r#"{"name":"t","description":"d"}"#);
}

#[test]
fn what_a_caller_sends_of_what_is_not_his_is_refused_however_it_is_spelled() {
    let faced = put(r#"{"properties":{"a/b":{}}}"#, &[hidden("a/b")]).unwrap();
    for sent in [r#"{"a/b":1}"#, r#"{"a\u002fb":1}"#, r#"{"x":1,"a\/b":null,"y":2}"#] {
        let fault = faced.check(&Bytes::from(sent)).unwrap_err();
        assert_eq!(fault.pointer, "/a~1b", "{sent}");
    }
    assert_eq!(faced.check(&Bytes::from(r#"{"a":{"b":1},"x":{"a/b":1}}"#)), Ok(()));
    assert!(faced.withholds("/a~1b") && faced.withholds("/a~1b/0") && !faced.withholds("/a~1bc"));
}

#[test]
fn values_are_put_behind_what_the_caller_wrote_in_the_arguments_own_type() {
    let schema = |kind: &str| format!(r#"{{"properties":{{"h":{{"type":{kind}}}}}}}"#);
    for (kind, value, given, sent) in [
        (r#""string""#, "a\"b", Some(r#"{"x":1.0}"#), Ok(r#"{"x":1.0,"h":"a\"b"}"#)),
        (r#""string""#, "7", Some("{ }"), Ok(r#"{ "h":"7"}"#)),
        (r#"["string","integer"]"#, "7", None, Ok(r#"{"h":"7"}"#)),
        (r#""integer""#, "7", Some("{}"), Ok(r#"{"h":7}"#)),
        (
            r#"["integer","null"]"#,
            "12345678901234567890",
            None,
            Ok(r#"{"h":12345678901234567890}"#),
        ),
        (r#""integer""#, "7.5", None, Err(true)),
        (r#""number""#, "7.5", None, Ok(r#"{"h":7.5}"#)),
        (r#""integer""#, "E1001", None, Err(true)),
        (r#""integer""#, "1,\"x\":2", None, Err(true)),
        (r#""boolean""#, "true", None, Ok(r#"{"h":true}"#)),
    ] {
        let faced = put(&schema(kind), &[injected("h", "$ctx.tenant")]).unwrap();
        let given = given.map(Bytes::from);
        let filled = faced.fill(given.as_ref(), |_| Some(value.to_owned()));
        let sent = sent.map(|sent| Some(Bytes::from(sent)));
        let sent = sent.map_err(|unfit| Unfilled { argument: "h".into(), unfit });
        assert_eq!(filled, sent, "{kind} {value}");
    }
    let faced = put(&schema(r#""string""#), &[injected("h", "$ctx.user.empId")]).unwrap();
    let nothing = Unfilled { argument: "h".into(), unfit: false };
    assert_eq!(faced.fill(None, |_| None), Err(nothing));
    for (kind, value, fault) in [
        (r#""object""#, "$ctx.tenant", FaceFault::Type("h".into())),
        (r#"["array","null"]"#, "x", FaceFault::Type("h".into())),
        (r#""integer""#, "ten", FaceFault::Value("h".into())),
    ] {
        assert_eq!(put(&schema(kind), &[injected("h", value)]).unwrap_err(), fault, "{kind}");
    }
}

// === In the catalog ===

fn upstream() -> crate::model::server::UpstreamName {
    crate::model::server::UpstreamName::parse("up").unwrap()
}

fn usual(_: &crate::model::server::UpstreamName, _: &str) -> crate::registry::Care {
    crate::registry::Care::USUAL
}

fn named(name: &str) -> Arc<Definition> {
    Arc::new(definition(&format!(r#"{{"name":"{name}","description":"d","inputSchema":{{}}}}"#)))
}

/// `own → published`, for a face that gives these names.
fn names(listed: &[&str], given: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    use crate::{model::call::Surface, registry::Registry};
    let registry = Registry::new([upstream()]);
    registry.listed(&upstream(), listed.iter().map(|name| named(name)).collect());
    let catalog = registry.catalog_with(usual, |_, own| {
        let (_, name) = given.iter().find(|(of, _)| *of == own)?;
        Some(Face { name: Some((*name).into()), ..Face::default() })
    });
    let path = Surface::Upstream(upstream());
    let shown = catalog.on(&path).map(|tool| {
        let name = tool.name_on(&path);
        assert!(Arc::ptr_eq(catalog.resolve(&path, name).unwrap(), tool));
        assert!(Arc::ptr_eq(catalog.tool(&upstream(), tool.name()).unwrap(), tool));
        assert_eq!(*tool.qualified, *format!("up/{}", tool.name()));
        assert!(Arc::ptr_eq(catalog.resolve(&Surface::Aggregate, &tool.alias).unwrap(), tool));
        let raw: serde_json::Value = serde_json::from_slice(tool.published(&path)).unwrap();
        assert_eq!(raw["name"], **name);
        format!("{}={name}={}", tool.name(), tool.alias)
    });
    let unfit = catalog.unfit().iter().map(|unfit| format!("{}: {}", unfit.tool, unfit.fault));
    (shown.collect(), unfit.collect())
}

#[test]
fn a_given_name_is_no_other_tools() {
    let taken = |tool: &str, name: &str| {
        vec![format!("{tool}: the name `{name}` is given to another tool")]
    };
    let long = "n".repeat(64);
    for (listed, given, shown, unfit) in [
        (&["a", "b"][..], &[("a", "x")][..], &["a=x=up__x", "b=b=up__b"][..], vec![]),
        (&["a", "b"], &[("a", "b"), ("b", "a")], &["a=b=up__b", "b=a=up__a"], vec![]),
        // A server that begins to list a tool of that name does not take it over.
        (&["b", "a"], &[("a", "b")], &["a=b=up__b"], taken("b", "b")),
        (&["a", "b"], &[("a", "x"), ("b", "x")], &["a=x=up__x"], taken("b", "x")),
    ] {
        let shown: Vec<_> = shown.iter().map(ToString::to_string).collect();
        assert_eq!(names(listed, given), (shown, unfit), "{listed:?} {given:?}");
    }
    let (shown, _) = names(&["a"], &[("a", &long)]);
    let alias = shown[0].rsplit('=').next().unwrap();
    assert!(alias.len() == 64 && alias.starts_with("up__nnn"), "{alias}");
}

#[test]
fn a_face_is_put_on_once_for_a_definition_and_anew_for_another() {
    use crate::registry::Registry;
    let registry = Registry::new([upstream()]);
    let look = |text: &str| {
        let face = Face { description: Some(text.into()), ..Face::default() };
        let catalog = registry.catalog_with(usual, |_, _| Some(face.clone()));
        catalog.tools()[0].face.clone().unwrap()
    };
    registry.listed(&upstream(), vec![named("a")]);
    let first = look("one");
    assert!(Arc::ptr_eq(&first, &look("one")));
    assert!(!Arc::ptr_eq(&first, &look("two")));
    assert!(registry.catalog().tools()[0].face.is_none());
    assert_eq!(Family::Tools.member(), "tools");
}

// === What holds for all ===

/// Arguments of `a`, `h` and `m` as a caller could write them.
fn arguments() -> impl Strategy<Value = String> {
    let value = prop::sample::select(vec!["null", "1", "\"x\"", "\"soft\"", "\"hard\"", "[]"]);
    let name = prop::sample::select(vec!["a", "h", "\\u0068", "m", "z"]);
    prop::collection::btree_map(name, value, 0..4).prop_map(|members| {
        let members: Vec<_> = members.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// A schema of `a`, `h` (which is a text) and `m`.
fn schemas() -> impl Strategy<Value = String> {
    let required = prop::sample::subsequence(vec!["\"a\"", "\"h\"", "\"m\""], 0..=3);
    let open = any::<bool>();
    let m = prop::sample::select(vec![
        r#"{"type":"string"}"#,
        r#"{"enum":["soft","hard",null]}"#,
        "{}",
        "true",
        r#"{"type":["string","null"]}"#,
    ]);
    let shape = prop::sample::select(vec!["plain", "allOf", "ref"]);
    let more = prop::sample::select(vec![
        "",
        r#","minProperties":2"#,
        r#","dependentRequired":{"h":["a"]}"#,
        r#","dependentRequired":{"a":["m"]}"#,
        r#","dependentRequired":{"m":["h"]}"#,
    ]);
    (required, open, m, shape, more).prop_map(|(required, open, m, shape, more)| {
        let inside = format!(
            r#"{{"type":"object","properties":{{"a":{{}},"h":{{"type":"string"}},"m":{m}}},"required":[{}],"additionalProperties":{open}{more}}}"#,
            required.join(",")
        );
        match shape {
            "plain" => inside,
            "allOf" => format!(r#"{{"allOf":[{inside}]}}"#),
            _ => format!(r##"{{"$ref":"#/$defs/A","$defs":{{"A":{inside}}}}}"##),
        }
    })
}

proptest! {
    /// What is published accepts exactly what reaches the server, and never what is not the
    /// caller's to give.
    #[test]
    fn what_is_published_is_what_is_let_through(
        schema in schemas(), given in arguments(), inject: bool, narrow: bool,
    ) {
        let own = tool(&schema);
        let mut parameters = vec![if inject { injected("h", "$ctx.tenant") } else { hidden("h") }];
        if narrow {
            parameters.push(only("m", &["soft"]));
        }
        let Ok(faced) = Faced::new(&own, &face(&parameters)) else { return Ok(()) };
        let text: serde_json::Value = serde_json::from_slice(&faced.raw).unwrap();
        let shown = text["inputSchema"].to_string();
        let given = Bytes::from(given);
        let value: serde_json::Value = serde_json::from_slice(&given).unwrap();
        let sends_hidden = value.get("h").is_some();
        let accepted = ArgumentSchema::compile(Some(shown.as_bytes())).unwrap().check(&given).is_ok();
        let through = faced.check(&given).is_ok() && {
            let filled = faced.fill(Some(&given), |_| Some("acme".to_owned())).unwrap();
            own.arguments.check(filled.as_ref().unwrap_or(&given)).is_ok()
        };
        if sends_hidden {
            prop_assert!(!through, "{given:?}");
        } else {
            prop_assert_eq!(accepted, through, "{} {} {:?}", schema, shown, given);
        }
        let properties = shown.matches("\"h\":{").count();
        prop_assert_eq!(properties, 0, "{}", shown);
    }
}
