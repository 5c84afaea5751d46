//! The compiled form: one for each list of steps, and nothing else is taken for it.

use proptest::prelude::*;

use super::*;
use crate::json::canonical;

fn canonical_of(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    canonical(text.as_bytes(), &mut out);
    out
}

#[test]
fn members_have_one_order_and_defaults_are_written_out() {
    let step = r#"{"type":"mcpCall","mcp":{"toolName":"any","saveAs":null,
        "inputBindings":{"b":{"value":{"z":1.0,"a":12345678901234567890},"source":"const"},
        "a":{"source":"page.order","path":""}},"serverKey":"mcp_order-query_7f3a2c91"},
        "stepIndex":1}"#;
    assert_eq!(
        steps_of(&written(&format!("[{step}]"))),
        r#"[{"mcp":{"failurePolicy":"required","inputBindings":{"a":{"source":"page.order"},"b":{"source":"const","value":{"z":1.0,"a":12345678901234567890}}},"serverKey":"mcp_order-query_7f3a2c91","toolName":"any"},"stepIndex":1,"type":"mcpCall"}]"#
    );
}

#[test]
fn steps_of_other_types_pass_byte_for_byte() {
    let other =
        "{ \"type\":\"click\" ,\n \"at\":[1.0,1e5, 12345678901234567890], \"\\u0061\":\"\\/\"}";
    let text = written(&format!("[{other},{}]", call(1, GOOD)));
    assert!(text.contains(other), "{text}");
    open(&text).unwrap();
}

#[test]
fn a_digest_is_the_tenants_and_the_keyrings() {
    let text = written(&format!("[{EXAMPLE}]"));
    let root = doc(text.clone());
    let opened = |keys: &Keys, tenant: &str| {
        Compiled::open(root.root(), &TenantId::new(tenant.to_owned()), keys).map(|_| ())
    };
    let ring = |primary, others| Keys::new(KeySecrets { primary, others });
    assert_eq!(opened(&keys(), "acme"), Ok(()));
    assert_eq!(opened(&keys(), "globex"), Err(NotCompiled::Differs));
    // Another replica with the same keyring, and one that has rotated since.
    let rotated = ring(secret(0xb4, 2), vec![secret(0xa3, 1)]);
    assert_eq!(opened(&rotated, "acme"), Ok(()));
    assert_eq!(opened(&ring(secret(0xb4, 2), Vec::new()), "acme"), Err(NotCompiled::UnknownKey));
    assert_eq!(opened(&ring(secret(0xa3, 2), Vec::new()), "acme"), Err(NotCompiled::Differs));
    let ours = keys();
    ours.rekey(KeySecrets { primary: secret(0xb4, 2), others: Vec::new() });
    assert_eq!(opened(&ours, "acme"), Err(NotCompiled::UnknownKey));
}

#[test]
fn what_json_does_not_tell_apart_is_one_document() {
    let step = call(1, r#""inputBindings":{"orderId":{"source":"const","value":"é\u00e9"}}"#);
    let text = written(&format!("[{step}]"));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    assert_ne!(pretty, text);
    open(&pretty).unwrap();
    open(&text.replace('é', "\\u00E9")).unwrap();
}

#[test]
fn what_has_not_the_form_is_refused() {
    let text = written(&format!("[{EXAMPLE}]"));
    for bad in [
        "[]".to_owned(),
        "{}".to_owned(),
        text.replace("\"v\":1", "\"v\":2"),
        text.replace("\"v\":1", "\"v\":1,\"w\":1"),
        text.replace("hmac-sha256:a3:", "hmac-sha256:0a3:"),
        text.replace("hmac-sha256:", "md5:"),
    ] {
        assert!(matches!(open(&bad), Err(NotCompiled::Form(_))), "{bad}");
    }
}

#[test]
fn no_byte_of_it_can_be_another() {
    let steps = [
        r#"{"type":"click","at":[10,"x"],"stepIndex":1}"#.to_owned(),
        call(
            2,
            r#""inputBindings":{"orderId":{"source":"const","value":"O-1"},"limit":{"source":"const","value":7}},"saveAs":"a""#,
        ),
        call(
            3,
            r#""inputBindings":{"orderId":{"source":"steps.a","path":"orders.0.id"}},"failurePolicy":"optional""#,
        ),
    ];
    let text = written(&format!("[{}]", steps.join(",")));
    open(&text).unwrap();
    let limits = JsonLimits { depth: 64, duplicates: Duplicates::Refuse, outline: 1 };
    let mut read = 0;
    for at in 0..text.len() {
        for other in *b"0a5 \"{}[],:\\fA-.e" {
            let mut changed = text.clone().into_bytes();
            if changed[at] == other {
                continue;
            }
            changed[at] = other;
            let Ok(doc) = Doc::parse(changed.into(), &limits) else { continue };
            read += 1;
            let opened = Compiled::open(doc.root(), &acme(), &keys());
            assert!(opened.is_err(), "{at} {}", char::from(other));
        }
    }
    assert!(read > 1_000, "{read}");
}

/// A list of steps, and the same with its members in another order.
fn lists() -> impl Strategy<Value = (String, String)> {
    let value = prop_oneof![
        Just("1.0".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just("null".to_owned()),
        "[a-zé ]{0,8}".prop_map(|text| format!("\"{text}\"")),
        Just(r#"{"b":[1e5,{}],"a":true}"#.to_owned()),
    ];
    let path = prop_oneof![Just(None), Just(Some("a.0.b")), Just(Some("/a~1b/0"))];
    let path = path
        .prop_map(|path| path.map_or_else(Vec::new, |path| vec![format!(r#""path":"{path}""#)]));
    let binding = prop_oneof![
        value
            .prop_map(|value| vec![r#""source":"const""#.to_owned(), format!("\"value\":{value}")]),
        path.prop_map(|path| [vec![r#""source":"page.order""#.to_owned()], path].concat()),
        Just(vec![r#""path":"q""#.to_owned(), r#""source":"page.url""#.to_owned()]),
    ];
    let inputs = proptest::collection::btree_map("[a-z]{1,6}", binding, 0..4);
    let step = (inputs, any::<bool>(), any::<bool>());
    proptest::collection::vec(step, 0..5).prop_map(|steps| {
        let mut lists = [Vec::new(), Vec::new()];
        for (number, (inputs, optional, saves)) in steps.into_iter().enumerate() {
            for (turned, list) in [false, true].into_iter().zip(&mut lists) {
                let object = |mut members: Vec<String>| {
                    if turned {
                        members.reverse();
                    }
                    format!("{{{}}}", members.join(if turned { " , " } else { "," }))
                };
                let inputs: Vec<String> = inputs
                    .iter()
                    .map(|(name, binding)| format!("\"{name}\":{}", object(binding.clone())))
                    .collect();
                let mut mcp = vec![
                    format!("\"serverKey\":\"{ORDERS}\""),
                    "\"toolName\":\"any\"".to_owned(),
                    format!("\"inputBindings\":{}", object(inputs)),
                ];
                if optional {
                    mcp.push("\"failurePolicy\":\"optional\"".to_owned());
                }
                if saves {
                    mcp.push(format!("\"saveAs\":\"v{number}\""));
                }
                list.push(object(vec![
                    format!("\"stepIndex\":{number}"),
                    "\"type\":\"mcpCall\"".to_owned(),
                    format!("\"mcp\":{}", object(mcp)),
                ]));
            }
        }
        let [one, other] = lists.map(|list| format!("[{}]", list.join(",")));
        (one, other)
    })
}

proptest! {
    #[test]
    fn the_order_of_members_is_of_no_matter((one, other) in lists()) {
        prop_assert_eq!(written(&one), written(&other));
    }

    #[test]
    fn what_is_compiled_compiles_to_itself((one, _) in lists()) {
        let text = written(&one);
        prop_assert_eq!(&written(&steps_of(&text)), &text);
        let opened = open(&text).unwrap();
        let (again, _) = opened.write(&acme(), &keys());
        prop_assert_eq!(again, text.into_bytes());
    }

    #[test]
    fn what_says_something_else_is_refused((one, _) in lists(), at in any::<prop::sample::Index>(), byte in 0u8..128) {
        let text = written(&one);
        let mut changed = text.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        let limits = JsonLimits { depth: 64, duplicates: Duplicates::Refuse, outline: 1 };
        let Ok(text_now) = String::from_utf8(changed) else { return Ok(()) };
        let Ok(doc) = Doc::parse(text_now.clone().into(), &limits) else { return Ok(()) };
        let same = canonical_of(&text) == canonical_of(&text_now);
        prop_assert_eq!(Compiled::open(doc.root(), &acme(), &keys()).is_ok(), same, "{}", text_now);
    }

    /// Nobody's steps stop the gateway.
    #[test]
    fn any_json_is_read_or_has_faults(text in "[\\[\\]{}\",:a-z0-9._/~ -]{0,120}") {
        let limits = JsonLimits { depth: 64, duplicates: Duplicates::Refuse, outline: 1 };
        if let Ok(doc) = Doc::parse(text.into(), &limits) {
            let _ = compile(doc.root(), &Shelf, 100);
            let _ = Compiled::open(doc.root(), &acme(), &keys());
        }
    }
}
