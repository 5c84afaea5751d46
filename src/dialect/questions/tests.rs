//! Questions and answers, from era to era and back.

use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn an_elicitation_says_its_mode_where_the_revision_has_modes() {
    let modern = |params: &str| to_modern(Method::Elicit, Some(bytes(params))).unwrap();
    assert_eq!(modern(r#"{"message":"é"}"#), r#"{"mode":"form","message":"é"}"#);
    assert_eq!(modern(r#"{"mode":"form","a":1.0}"#), r#"{"mode":"form","a":1.0}"#);
    assert_eq!(
        modern(r#"{"mode":"url","elicitationId":"e","url":"https://a/"}"#),
        r#"{"mode":"url","url":"https://a/"}"#
    );
    let legacy = |version, params: &str| {
        to_legacy(Method::Elicit, Some(bytes(params)), version, "n1").unwrap()
    };
    let form = r#"{"mode":"form","message":"m"}"#;
    assert_eq!(legacy(Version::V2025_11_25, form), form);
    assert_eq!(legacy(Version::V2025_06_18, form), r#"{"message":"m"}"#);
    assert_eq!(
        legacy(Version::V2025_11_25, r#"{"mode":"url","url":"https://a/"}"#),
        r#"{"elicitationId":"n1","mode":"url","url":"https://a/"}"#
    );
    // Progress of a question has nowhere to go.
    for (params, expected) in [
        (r#"{"a":1,"_meta":{"progressToken":0}}"#, r#"{"a":1}"#),
        (r#"{"_meta":{"x":1,"progressToken":"p"},"a":1}"#, r#"{"_meta":{"x":1},"a":1}"#),
        (r#"{"_meta":{"x":1}}"#, r#"{"_meta":{"x":1}}"#),
    ] {
        let modern = to_modern(Method::CreateMessage, Some(bytes(params))).unwrap();
        assert_eq!(modern, expected);
    }
    // The others are the same in every revision.
    let sampling = bytes(r#"{"messages":[],"maxTokens":1}"#);
    assert_eq!(to_modern(Method::CreateMessage, Some(sampling.clone())), Some(sampling));
    assert_eq!(to_modern(Method::ListRoots, None), None);
}

#[test]
fn each_question_needs_its_capability() {
    for (method, params, needed) in [
        (Method::Elicit, r#"{"message":"m"}"#, Some(Capabilities::ELICITATION)),
        (Method::Elicit, r#"{"mode":"url"}"#, Some(Capabilities::ELICITATION_URL)),
        (Method::CreateMessage, "{}", Some(Capabilities::SAMPLING)),
        (
            Method::CreateMessage,
            r#"{"tools":[]}"#,
            Some(Capabilities::SAMPLING | Capabilities::SAMPLING_TOOLS),
        ),
        (Method::ListRoots, "{}", Some(Capabilities::ROOTS)),
        (Method::CallTool, "{}", None),
    ] {
        assert_eq!(needs(method, Some(&bytes(params))), needed, "{method:?} {params}");
    }
    assert_eq!(needs(Method::ListRoots, None), Some(Capabilities::ROOTS));
}

#[test]
fn a_result_that_asks_is_read_as_it_was_written() {
    let asked = [
        Asked {
            key: "q1".into(),
            method: Method::Elicit,
            params: Some(bytes(r#"{"message":"\u00e9"}"#)),
        },
        Asked { key: "q2".into(), method: Method::ListRoots, params: None },
    ];
    let body = asking(&asked, Some("s \"1\""));
    assert!(body.shape.asks && !body.shape.complete);
    let round = read(&body.raw).unwrap();
    assert_eq!(round.state.as_deref(), Some("s \"1\""));
    let read_back: Vec<_> = round.asked.iter().map(|a| (&*a.key, a.method, &a.params)).collect();
    assert_eq!(read_back[0], ("q1", Method::Elicit, &asked[0].params));
    assert_eq!(read_back[1], ("q2", Method::ListRoots, &None));
    let sealed = with_state(&body.raw, "token").unwrap();
    assert_eq!(read(&sealed.raw).unwrap().state.as_deref(), Some("token"));
    assert_eq!(read(&sealed.raw).unwrap().asked.len(), 2);
}

#[test]
fn a_result_that_asks_nothing_is_refused() {
    for raw in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{}}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{}}}"#,
        r#"{"resultType":"input_required","requestState":1}"#,
    ] {
        assert!(read(&bytes(raw)).is_err(), "{raw}");
    }
}

#[test]
fn answers_are_objects_that_fit_their_questions() {
    let all = answers(&bytes(r#"{"a":{"action":"accept"},"\u0062":{}}"#)).unwrap();
    assert_eq!(all[0], ("a".into(), bytes(r#"{"action":"accept"}"#)));
    assert_eq!(&*all[1].0, "b");
    assert_eq!(text(&write_answers(&all)), r#"{"a":{"action":"accept"},"b":{}}"#);
    assert!(answers(&bytes(r#"{"a":1}"#)).is_none() && answers(&bytes("[]")).is_none());
    for (method, answer, fits) in [
        (Method::Elicit, r#"{"action":"accept","content":{}}"#, true),
        (Method::Elicit, r#"{"action":"maybe"}"#, false),
        (Method::Elicit, r#"{"content":{}}"#, false),
        (Method::CreateMessage, r#"{"role":"assistant","content":{},"model":"m"}"#, true),
        (Method::CreateMessage, r#"{"content":{}}"#, false),
        (Method::ListRoots, r#"{"roots":[]}"#, true),
        (Method::ListRoots, r#"{"roots":{}}"#, false),
    ] {
        assert_eq!(answers_to(method, &bytes(answer)), fits, "{answer}");
    }
}

#[test]
fn links_that_must_be_followed_become_questions() {
    let data =
        r#"{"elicitations":[{"mode":"url","elicitationId":"x","url":"https://a/","message":"m"}]}"#;
    let error = RpcError {
        code: i64::from(rpc::URL_ELICITATION_REQUIRED),
        message: bytes("\"m\""),
        data: Some(bytes(data)),
    };
    let round = read(&links(&error).unwrap().raw).unwrap();
    assert_eq!(round.state, None);
    assert_eq!(
        text(round.asked[0].params.as_ref().unwrap()),
        r#"{"mode":"url","url":"https://a/","message":"m"}"#
    );
    assert!(links(&RpcError { data: None, ..error }).is_none());
    let missing = missing(Capabilities::ELICITATION_URL, "m");
    assert_eq!(required(&missing).unwrap(), r#"{"elicitation":{"url":{}}}"#);
}

#[test]
fn only_known_extensions_go_on() {
    for (declared, kept, carries) in [
        (r#"{"sampling":{}}"#, &[][..], r#"{"sampling":{}}"#),
        (r#"{"a":1,"extensions":{"x":{}}}"#, &[], r#"{"a":1}"#),
        (
            r#"{"extensions":{"x":{},"y":{"z":1}},"b":{}}"#,
            &["y"],
            r#"{"extensions":{"y":{"z":1}},"b":{}}"#,
        ),
        (r#"{"extensions":{}}"#, &["y"], "{}"),
    ] {
        assert_eq!(text(&carried(&bytes(declared), kept)), carries);
    }
}

#[test]
fn a_state_takes_the_place_of_the_servers_or_is_put_in() {
    let stated = |result: &str| {
        let body = with_state(&bytes(result), "s").unwrap();
        assert!(body.shape.asks, "{result}");
        text(&body.raw).to_owned()
    };
    assert_eq!(
        stated(r#"{"resultType":"input_required","requestState":"x","a":1.0}"#),
        r#"{"resultType":"input_required","requestState":"s","a":1.0}"#
    );
    assert_eq!(
        stated(r#"{"resultType":"input_required","inputRequests":{}}"#),
        r#"{"requestState":"s","resultType":"input_required","inputRequests":{}}"#
    );
}

#[test]
fn an_answer_to_an_elicitation_says_what_was_done() {
    for (answer, expected) in [
        (r#"{"action":"accept"}"#, Some("accept")),
        (r#"{"action":1}"#, None),
        ("{}", None),
        ("x", None),
    ] {
        assert_eq!(action(&bytes(answer)).as_deref(), expected, "{answer}");
    }
}
