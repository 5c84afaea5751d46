//! The canonical form: vectors, and what holds for every document.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::json::{
    Doc, Duplicates, Limits,
    sample::{Sample, number, sample, whims},
};

fn canon(text: &str) -> String {
    let limits = Limits { depth: 64, duplicates: Duplicates::Allow, outline: 0 };
    let doc = Doc::parse(Bytes::copy_from_slice(text.as_bytes()), &limits).unwrap();
    let mut out = b"=".to_vec();
    canonical(doc.root().raw(), &mut out);
    String::from_utf8(out).unwrap().split_off(1)
}

#[track_caller]
fn check(text: &str, form: &str) {
    assert_eq!(canon(text), form, "{text}");
    assert_eq!(canon(form), form, "again: {text}");
}

#[test]
fn white_space_goes_and_members_are_sorted() {
    check("{}", "{}");
    check(" [ ] ", "[]");
    check("{ \"b\" : 1 , \"a\" : [ 1 , { } , \"x\" ] }", r#"{"a":[1,{},"x"],"b":1}"#);
    check(r#"[3,1,2]"#, "[3,1,2]");
    check(
        r#"{"b":{"d":1,"c":2},"a":{"f":1,"e":{"h":1,"g":2}}}"#,
        r#"{"a":{"e":{"g":2,"h":1},"f":1},"b":{"c":2,"d":1}}"#,
    );
    check(r#"{"a":{"z":1},"A":2,"":3,"aa":4}"#, r#"{"":3,"A":2,"a":{"z":1},"aa":4}"#);
    check(r#"{"10":1,"9":2,"1":3}"#, r#"{"1":3,"10":1,"9":2}"#);
    check("[true,false,null]", "[true,false,null]");
}

#[test]
fn names_sort_by_their_utf16_code_units() {
    let names = ["\\r", "1", "\u{80}", "\u{f6}", "\u{20ac}", "\u{1f600}", "\u{fb33}", "\u{ffff}"];
    let object = |names: &mut dyn Iterator<Item = &str>| {
        let members: Vec<_> = names.map(|name| format!("\"{name}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let sorted = object(&mut names.into_iter());
    check(&object(&mut names.into_iter().rev()), &sorted);
    let escaped = ["\\uffff", "\\ud83d\\ude00", "\\u20AC", "\\u00f6", "\\ufb33", "\\u0080"];
    check(&object(&mut escaped.into_iter().chain(["\\u0031", "\\u000d"])), &sorted);
    // A lone surrogate is its code unit: above its lesser half of a pair, below U+E000.
    check(
        r#"{"\ue000":0,"\udFFF":0,"😀":0,"\ud800":0}"#,
        "{\"\\ud800\":0,\"😀\":0,\"\\udfff\":0,\"\u{e000}\":0}",
    );
}

#[test]
fn strings_are_escaped_as_little_as_may_be() {
    check(r#""""#, r#""""#);
    check(r#""plain""#, r#""plain""#);
    check(r#""\u0041\/\u00E9""#, "\"A/é\"");
    check(r#""\u0022\u005c\u0008\u0009\u000a\u000c\u000d""#, r#""\"\\\b\t\n\f\r""#);
    check(r#""\"\\\b\t\n\f\r""#, r#""\"\\\b\t\n\f\r""#);
    check(r#""\u0000\u001F\u000B""#, r#""\u0000\u001f\u000b""#);
    check(r#""\u007f\u2028\ud83d\ude00""#, "\"\u{7f}\u{2028}😀\"");
    check(r#""\uD83D\uD83D\uDE00\uDE00x""#, "\"\\ud83d😀\\ude00x\"");
    check(r#"{"\u006e":"\/"}"#, r#"{"n":"/"}"#);
}

#[test]
fn numbers_are_exact_decimals() {
    for zero in ["0", "-0", "0.0", "-0.000", "0e5", "0E-999999999999999999999999", "-0e+7"] {
        check(zero, "0");
    }
    for one in ["1", "1.0", "1e0", "1E+00", "10e-1", "0.1e1", "0.001e3", "1000e-003"] {
        check(one, "1");
    }
    check("-1.0", "-1");
    check("1e2", "100");
    check("100", "100");
    check("0.10", "0.1");
    check("117.63331139400017", "117.63331139400017");
    check("9007199254740991.0", "9007199254740991");
    check("9007199254740993", "9007199254740993");
    check("12345678901234567890", "12345678901234567890");
    check("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827");
    check("123456789012345678901", "123456789012345678901");
    check("100000000000000000000", "100000000000000000000");
    check("1000000000000000000000", "1e+21");
    check("1234567890123456789012", "1.234567890123456789012e+21");
    check("-123456789012345678901", "-123456789012345678901");
    check("-1234567890123456789012", "-1.234567890123456789012e+21");
    check("0.000001", "0.000001");
    check("0.0000012", "0.0000012");
    check("0.0000001", "1e-7");
    check("1.20e-7", "1.2e-7");
    check("123.456e-10", "1.23456e-8");
    check("1E400", "1e+400");
    check("1.5e300", "1.5e+300");
    check("10e399", "1e+400");
    check("5e-324", "5e-324");
    check("1e999999999999", "1e+999999999999");
    check("1e999999999999999999", "1e+999999999999999999");
    check("10e999999999999999999", "1e+1000000000000000000");
    check("0.1e1000000000000000000", "1e+999999999999999999");
    check("0.1e-999999999999999999", "1e-1000000000000000000");
    check("10e-1000000000000000000", "1e-999999999999999999");
    check("12e099999999999999999999999", "1.2e+100000000000000000000000");
    check("0.12e100000000000000000000000", "1.2e+99999999999999999999999");
    check("12e-100000000000000000000000", "1.2e-99999999999999999999999");
    check("1.2e-99999999999999999999999", "1.2e-99999999999999999999999");
}

#[test]
fn a_short_number_stays_short() {
    let text = format!("[{}]", ["1e999999999", "-1E-999999999"].join(","));
    assert!(canon(&text).len() < text.len() + 8);
}

#[test]
fn members_of_one_name_keep_their_order() {
    check(r#"{"b":1,"a":2,"b":3,"a":4}"#, r#"{"a":2,"a":4,"b":1,"b":3}"#);
}

#[test]
fn nesting_costs_no_stack() {
    let deep = format!("{}1{}", r#"{"b":0,"a":"#.repeat(20_000), "}".repeat(20_000));
    let mut out = Vec::new();
    canonical(deep.as_bytes(), &mut out);
    assert!(out.starts_with(br#"{"a":{"a":{"a":"#) && out.ends_with(br#","b":0},"b":0}"#));
    assert_eq!(out.len(), deep.len());
}

proptest! {
    #[test]
    fn one_document_has_one_form(sample in sample(true), one in whims(), other in whims()) {
        let form = canon(&sample.write(&one));
        prop_assert_eq!(&form, &canon(&sample.write(&other)));
        prop_assert_eq!(&form, &canon(&form));
    }

    #[test]
    fn the_form_says_the_same_as_the_document(sample in sample(true), whims in whims()) {
        let sample = without_numbers(sample);
        let text = sample.write(&whims);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let back: serde_json::Value = serde_json::from_str(&canon(&text)).unwrap();
        prop_assert_eq!(value, back);
    }

    #[test]
    fn different_numbers_have_different_forms(a in number(), b in number()) {
        prop_assert_eq!(canon(&a.write(&[0])) == canon(&b.write(&[0])), exact(&a) == exact(&b));
    }

    #[test]
    fn doubles_are_spelled_as_rfc_8785_does(bits in any::<u64>()) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        // Both of them the shortest digits that give this double; here as a fraction times a
        // power of ten, there by the rules of ECMAScript.
        let form = canon(&format!("{double:e}"));
        prop_assert_eq!(form.parse::<f64>().unwrap(), double + 0.0);
        let size = double.abs();
        let plain = size == 0.0 || (1e-6..1e21).contains(&size);
        prop_assert_eq!(form.contains('e'), !plain);
        if plain {
            prop_assert_eq!(form, format!("{}", double + 0.0));
        }
    }

    #[test]
    fn a_canonical_text_is_copied(sample in sample(true), whims in whims()) {
        let form = canon(&sample.write(&whims));
        let mut out = Vec::with_capacity(form.len());
        canonical(form.as_bytes(), &mut out);
        prop_assert_eq!(out.capacity(), form.len());
        prop_assert_eq!(out, form.into_bytes());
    }
}

fn without_numbers(sample: Sample) -> Sample {
    match sample {
        Sample::Number { .. } => Sample::Name("null"),
        Sample::Array(elements) => {
            Sample::Array(elements.into_iter().map(without_numbers).collect())
        }
        Sample::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, without_numbers(value)));
            Sample::Object(members.collect())
        }
        other => other,
    }
}

/// Sign, digits and power of ten of a number, with as few digits as it has.
fn exact(sample: &Sample) -> (bool, u64, i64) {
    let &Sample::Number { negative, mut digits, mut power } = sample else { unreachable!() };
    if digits == 0 {
        return (false, 0, 0);
    }
    while digits % 10 == 0 {
        digits /= 10;
        power += 1;
    }
    (negative, digits, power)
}
