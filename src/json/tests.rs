//! What a document is, what it is not, and what is read from it.

use std::iter;

use proptest::{collection::vec, prelude::*};
use serde::de::IgnoredAny;

use super::{
    sample::{sample, whims},
    *,
};

const LIMITS: Limits = Limits { depth: 64, duplicates: Duplicates::Refuse, outline: 2 };

fn parse(text: impl AsRef<[u8]>) -> Result<Doc, Fault> {
    Doc::parse(Bytes::copy_from_slice(text.as_ref()), &LIMITS)
}

fn doc(text: &str) -> Doc {
    parse(text).unwrap_or_else(|fault| panic!("{fault}: {text}"))
}

#[test]
fn what_the_grammar_allows_is_a_document() {
    use Kind::*;
    let check = |text: &str, kind| {
        assert_eq!(doc(text).root().kind(), kind, "{text}");
        assert_eq!(doc(&format!("[{text}]")).root().kind(), Array, "{text}");
        assert_eq!(doc(&format!(r#"{{"a":{text}}}"#)).root().kind(), Object, "{text}");
    };
    check("{}", Object);
    check("{ }", Object);
    check("[]", Array);
    check("[\t\r\n ]", Array);
    check(" \n [ 1 , 2 ] \t ", Array);
    check(r#" { "a" : 1 , "b" : [ ] } "#, Object);
    check("true", True);
    check("false", False);
    check("null", Null);
    check("0", Number);
    check("-0", Number);
    check("-0.0", Number);
    check("0.10", Number);
    check("1e2", Number);
    check("1E+02", Number);
    check("1.5e-10", Number);
    check("1E400", Number);
    check("12345678901234567890123456789", Number);
    check(r#""""#, String);
    check(r#""\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00""#, String);
    check(r#""\ud800""#, String);
    check(r#""\udc00\ud800x""#, String);
    check(r#""a string of more than sixteen bytes""#, String);
    check(r#""sixteen bytes in""#, String);
    check("\"\u{7f}\u{80}\u{2028}😀\"", String);
    check(&format!("\"{}\"", "long ".repeat(5000)), String);
}

#[test]
fn what_the_grammar_does_not_allow_is_refused_where_it_shows() {
    let check = |text: &[u8], kind: FaultKind, offset| {
        assert_eq!(parse(text).unwrap_err(), Fault { kind, offset }, "{}", text.escape_ascii());
    };
    let syntax = |text: &str, offset| {
        let fault = parse(text).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Syntax(_)), "{text}: {fault}");
        assert_eq!(fault.offset, offset, "{text}: {fault}");
    };
    syntax("", 0);
    syntax("  ", 0);
    syntax("\u{feff}1", 0);
    syntax("{", 1);
    syntax("[", 1);
    syntax("[1", 2);
    syntax("[1,", 3);
    syntax("[1,]", 3);
    syntax("[,1]", 1);
    syntax("[1 2]", 3);
    syntax("[1}", 2);
    syntax("]", 0);
    syntax(r#"{"a":1]"#, 6);
    syntax(r#"{"a":1,}"#, 7);
    syntax(r#"{"a" 1}"#, 5);
    syntax(r#"{"a"}"#, 4);
    syntax(r#"{"a":}"#, 5);
    syntax("{1:2}", 1);
    syntax("{a:2}", 1);
    syntax("'a'", 0);
    syntax("tru", 0);
    syntax("True", 0);
    syntax("nul", 0);
    syntax("NaN", 0);
    syntax("Infinity", 0);
    syntax("-", 1);
    syntax("-x", 1);
    syntax("+1", 0);
    syntax("01", 0);
    syntax("-01", 1);
    syntax(".5", 0);
    syntax("1.", 2);
    syntax("1.e2", 2);
    syntax("1e", 2);
    syntax("1e+", 3);
    syntax("[1.5.2]", 4);
    syntax("[0x10]", 2);
    syntax("// no\n1", 0);
    syntax("\0", 0);
    syntax("\u{c}1", 0);
    syntax("[1\u{c}]", 2);
    syntax("\u{a0}1", 0);
    syntax(r#"""#, 1);
    syntax(r#""abc"#, 4);
    syntax(r#""abc\"#, 4);
    syntax(r#""abc\""#, 6);
    syntax(r#""\x""#, 1);
    syntax(r#""\U0041""#, 1);
    syntax(r#""\u12""#, 1);
    syntax(r#""\u12g4""#, 1);
    syntax(r#""\u+123""#, 1);
    syntax(r#""more than eight \u00"#, 17);
    syntax("\"a\nb\"", 2);
    syntax("\"a\0\"", 2);
    syntax("\"\\n\u{1f}\"", 3);
    syntax("\"twelve bytes\tand more\"", 13);
    syntax(&format!("\"{}\t\"", "x".repeat(5000)), 5001);
    syntax(&format!("\"\\n{}\t\"", "x".repeat(5000)), 5003);
    check(b"1 2", FaultKind::Trailing, 2);
    check(b"{}x", FaultKind::Trailing, 2);
    check(b"1\x0c", FaultKind::Trailing, 1);
    check(b"1 \0", FaultKind::Trailing, 2);
    check(b"[]]", FaultKind::Trailing, 2);
    check(b"\"\xff\"", FaultKind::Utf8, 1);
    check(b"[\"abc\", \"\xc3\"]", FaultKind::Utf8, 9);
    check(b"\"\xed\xa0\x80\"", FaultKind::Utf8, 1);
    check(b"\"\xc0\x80\"", FaultKind::Utf8, 1);
}

#[test]
fn a_name_may_come_once_in_an_object() {
    let twice = |text: &str, offset| {
        let fault = parse(text).unwrap_err();
        assert_eq!(fault, Fault { kind: FaultKind::DuplicateKey, offset }, "{text}");
        let allow = Limits { duplicates: Duplicates::Allow, ..LIMITS };
        assert!(Doc::parse(Bytes::copy_from_slice(text.as_bytes()), &allow).is_ok(), "{text}");
    };
    twice(r#"{"a":1,"a":2}"#, 7);
    twice(r#"{"":1,"":2}"#, 6);
    twice(r#"{"name":1,"n\u0061me":2}"#, 10);
    twice(r#"{"n\u0061me":1,"name":2}"#, 15);
    twice(r#"{"n\u0061me":1,"\u006eame":2}"#, 15);
    twice(r#"{"\/":1,"/":2}"#, 8);
    twice(r#"{"\ud83d\ude00":1,"😀":2}"#, 18);
    twice(r#"{"\ud800":1,"\uD800":2}"#, 12);
    twice(r#"{"a":1,"b":{},"a":2}"#, 14);
    twice(r#"[[[[[{"x":{"a":1,"b":[{}],"a":2}}]]]]]"#, 26);
    twice(r#"{"a long name, longer than a word":1,"a long name, longer than a word":2}"#, 37);
    let once = |text: &str| assert!(parse(text).is_ok(), "{text}");
    once(r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#);
    once(r#"[{"a":1},{"a":1}]"#);
    once(r#"{"a":1,"A":2,"a\u0000":3,"":4}"#);
    once(r#"{"\ud800":1,"\ud801":2,"\ufffd":3}"#);
    once(r#"{"e\u0301":1,"é":2}"#);
    once(r#"{"12345678":1,"123456780":2,"012345678":3,"12345678\u0000":4}"#);
}

#[test]
fn names_are_compared_in_large_objects_too() {
    for count in [1, 40, 47, 48, 49, 50, 95, 96, 97, 500] {
        let members = |escaped: bool| {
            let head = if escaped { "\\u006b" } else { "k" };
            (0..count).map(|n| format!(r#""{head}ey{n}":{{"key0":[]}},"#)).collect::<String>()
        };
        for escaped in [false, true] {
            let unique = format!(r#"{{{}"z":0}}"#, members(escaped));
            assert!(parse(&unique).is_ok(), "{unique}");
            for again in [0, count / 2, count - 1] {
                for spelling in ["key", "\\u006bey"] {
                    let twice = format!(r#"{{{}"{spelling}{again}":0}}"#, members(escaped));
                    let kind = parse(&twice).unwrap_err().kind;
                    assert_eq!(kind, FaultKind::DuplicateKey, "{twice}");
                }
            }
        }
    }
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    let limits = |depth| Limits { depth, ..LIMITS };
    let check = |text: std::string::String, depth| {
        let text = Bytes::from(text);
        assert!(Doc::parse(text.clone(), &limits(depth)).is_ok());
        let fault = Doc::parse(text, &limits(depth - 1)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Depth);
    };
    check("[]".into(), 1);
    check("[[],{}]".into(), 2);
    check(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), 100_000);
    check(format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000)), 10_000);
    let flat = format!("[{}0]", "0,".repeat(500_000));
    assert!(Doc::parse(flat.into(), &limits(1)).is_ok());
    assert!(Doc::parse("1".into(), &limits(0)).is_ok());
}

#[test]
fn payloads_are_slices_of_the_text() {
    let numbers =
        "[117.63331139400017,9007199254740991.0,12345678901234567890,1.0,1e2,-0,0.10,1E400]";
    let text = Bytes::from(format!(r#"{{"params":{{"arguments":{{"n" : {numbers}}}}}}}"#));
    let doc = Doc::parse(text.clone(), &LIMITS).unwrap();
    let arguments = doc.root().get("params").and_then(|params| params.get("arguments")).unwrap();
    assert_eq!(arguments.bytes(), format!(r#"{{"n" : {numbers}}}"#));
    assert_eq!(arguments.bytes().as_ptr(), text[arguments.offset()..].as_ptr());
    assert_eq!(arguments.get("n").unwrap().raw(), numbers.as_bytes());
    let (key, _) = arguments.members().next().unwrap();
    assert_eq!(key.bytes(), "n");
    assert_eq!(doc.text(), &text);
}

#[test]
fn of_several_members_of_one_name_the_last_is_found() {
    let text = r#"{"a":1,"b":2,"\u0061":3,"c":{"d":1,"d":2}}"#;
    for outline in 0..3 {
        let limits = Limits { duplicates: Duplicates::Allow, outline, ..LIMITS };
        let doc = Doc::parse(text.into(), &limits).unwrap();
        assert_eq!(doc.root().get("a").and_then(Value::as_i64), Some(3));
        let inner = doc.root().get("c").and_then(|c| c.get("d")).and_then(Value::as_i64);
        assert_eq!(inner, Some(2));
    }
}

#[test]
fn names_are_recognised_however_they_are_escaped() {
    let check = |inside: &str, name: &str| {
        let doc = doc(&format!(r#"{{"{inside}":1}}"#));
        let (key, _) = doc.root().members().next().unwrap();
        assert_eq!(key.raw(), inside.as_bytes());
        assert_eq!(key.unescaped(), name, "{inside}");
        assert!(key.is(name), "{inside}");
        assert!(doc.root().get(name).is_some(), "{inside}");
        assert!(!key.is(&format!("{name}x")) && !key.is("x"), "{inside}");
    };
    check("name", "name");
    check("", "");
    check(r"n\u0061me", "name");
    check(r"\u006eame", "name");
    check(r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t");
    check(r"a\nb", "a\nb");
    check(r"\u0000", "\0");
    check(r"Zo\u00eb", "Zoë");
    check(r"\uD83d\uDe00!", "😀!");
    let lone = doc(r#"{"\ud83d":"\ude00\ud83d\u0041"}"#);
    let (key, value) = lone.root().members().next().unwrap();
    assert_eq!(key.unescaped(), "\u{fffd}");
    assert!(!key.is("\u{fffd}"));
    assert_eq!(value.as_str().unwrap(), "\u{fffd}\u{fffd}A");
    assert!(!value.is_str("\u{fffd}\u{fffd}A"));
}

#[test]
fn a_value_reads_as_what_it_is_only() {
    let check = |text: &str, string: Option<&str>, int, bool| {
        let doc = doc(text);
        let root = doc.root();
        assert_eq!((root.as_i64(), root.as_bool()), (int, bool), "{text}");
        assert_eq!(root.as_str().as_deref(), string, "{text}");
        assert_eq!(root.is_str(string.unwrap_or("")), string.is_some(), "{text}");
        assert_eq!(root.is_null(), text == "null", "{text}");
        assert!(root.members().next().is_none() && root.elements().next().is_none(), "{text}");
        assert!(root.get("a").is_none(), "{text}");
    };
    check(r#""a\tb""#, Some("a\tb"), None, None);
    check(r#""""#, Some(""), None, None);
    check(r#""1""#, Some("1"), None, None);
    check("true", None, None, Some(true));
    check("false", None, None, Some(false));
    check("null", None, None, None);
    check("-0", None, Some(0), None);
    check("9223372036854775807", None, Some(i64::MAX), None);
    check("-9223372036854775808", None, Some(i64::MIN), None);
    check("9223372036854775808", None, None, None);
    check("1.0", None, None, None);
    check("1e2", None, None, None);
    check("{}", None, None, None);
    check("[]", None, None, None);
    let object = doc(r#"{"a":1}"#);
    assert!(object.root().elements().next().is_none());
    assert!(doc("[1]").root().members().next().is_none());
}

#[test]
fn the_spelling_of_a_number_tells_integers_from_fractions() {
    use NumberForm::*;
    let check = |text: &str, form| assert_eq!(doc(text).root().number_form(), form, "{text}");
    check("1", Some(Integer));
    check("-0", Some(Integer));
    check("123456789012345678901234567890", Some(Integer));
    check("1.0", Some(Whole));
    check("0.0e-5", Some(Whole));
    check("1e2", Some(Whole));
    check("1.50e1", Some(Whole));
    check("100e-2", Some(Whole));
    check("1E99999999999999999999", Some(Whole));
    check("0e-99999999999999999999", Some(Whole));
    check("1.5", Some(Fractional));
    check("1.55e1", Some(Fractional));
    check("100e-3", Some(Fractional));
    check("1e-99999999999999999999", Some(Fractional));
    check(r#""1""#, None);
}

/// Everything that can be read, in words.
fn tell(value: Value<'_>, out: &mut Vec<std::string::String>) {
    let text = std::str::from_utf8(value.raw()).unwrap();
    out.push(format!("{:?} {text} {:?}", value.kind(), value.as_str()));
    for (key, value) in value.members() {
        out.push(key.unescaped().into_owned());
        tell(value, out);
    }
    value.elements().for_each(|value| tell(value, out));
}

proptest! {
    #[test]
    fn what_is_written_right_is_read_right(sample in sample(true), whims in whims()) {
        let text = sample.write(&whims);
        let doc = parse(&text).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let back: serde_json::Value = serde_json::from_slice(doc.root().raw()).unwrap();
        prop_assert_eq!(&value, &back);
        if let Some(members) = value.as_object() {
            let read: Vec<_> = doc.root().members().map(|(key, value)| {
                (key.unescaped().into_owned(), serde_json::from_slice(value.raw()).unwrap())
            }).collect();
            let members: Vec<_> = members.clone().into_iter().collect();
            prop_assert_eq!(read, members);
        }
    }

    #[test]
    fn the_outline_changes_nothing_but_speed(sample in sample(false), whims in whims()) {
        let text = Bytes::from(sample.write(&whims));
        let mut told = (0..7).map(|outline| {
            let limits = Limits { outline, duplicates: Duplicates::Allow, ..LIMITS };
            let doc = Doc::parse(text.clone(), &limits).unwrap();
            let mut out = Vec::new();
            tell(doc.root(), &mut out);
            out
        });
        let first = told.next();
        prop_assert!(told.all(|next| Some(&next) == first.as_ref()));
    }

    #[test]
    fn duplicates_are_found_at_any_depth(sample in sample(false), whims in whims()) {
        let found = parse(sample.write(&whims)).map_err(|fault| fault.kind).err();
        let expected = sample.has_duplicates().then_some(FaultKind::DuplicateKey);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_damaged_text_is_refused_when_another_parser_refuses_it(
        sample in sample(true),
        whims in whims(),
        damage in vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(),
            prop::sample::select(b"{}[],:\"\\ue0-+.19tfn \n\t\x00\xff".to_vec()),
        ]), 1..3),
    ) {
        let mut text = sample.write(&whims).into_bytes();
        for (at, byte) in damage {
            let at = at.index(text.len());
            text[at] = byte;
        }
        agrees(&text)?;
    }

    #[test]
    fn any_tokens_are_refused_when_another_parser_refuses_them(
        tokens in vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"b\"", "\\", "\\u", "0", "1", "-", ".",
            "e", "12", "true", "null", " ", "\n", "\"\\ud800\"", "\"é\"", "{\"x\":", "[1,",
        ]), 0..12),
    ) {
        agrees(tokens.concat().as_bytes())?;
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
        canonical(&bytes, &mut Vec::new());
    }
}

/// Both parsers say the same of a text, duplicate names aside.
fn agrees(text: &[u8]) -> Result<(), TestCaseError> {
    let limits = Limits { duplicates: Duplicates::Allow, ..LIMITS };
    let ours = Doc::parse(Bytes::copy_from_slice(text), &limits);
    let theirs = std::str::from_utf8(text).ok().map(serde_json::from_str::<IgnoredAny>);
    let theirs = theirs.is_some_and(|result| result.is_ok());
    prop_assert_eq!(ours.is_ok(), theirs, "{}: {:?}", text.escape_ascii(), ours.err());
    if let Err(fault) = ours {
        prop_assert!(fault.offset <= text.len());
    }
    Ok(())
}

#[test]
fn a_string_is_written_with_as_few_escapes_as_may_be() {
    let check = |text: &str, json: &str| {
        let mut out = b"=".to_vec();
        write_str(&mut out, text);
        assert_eq!(std::str::from_utf8(&out).unwrap(), format!("={json}"));
        assert!(doc(json).root().is_str(text));
    };
    check("", r#""""#);
    check("plain", r#""plain""#);
    check("\"\\/", r#""\"\\/""#);
    check("\u{8}\t\n\u{c}\r", r#""\b\t\n\f\r""#);
    check("\0\u{b}\u{1f}", r#""\u0000\u000b\u001f""#);
    check("\u{7f}é\u{2028}😀", "\"\u{7f}é\u{2028}😀\"");
    for len in 0..200 {
        let plain: std::string::String = iter::repeat_n('x', len).collect();
        check(&format!("{plain}\n{plain}"), &format!(r#""{plain}\n{plain}""#));
    }
}
