//! What a document is, what it is not, and what is read from it.

use super::*;

const LIMITS: Limits = Limits { depth: 64, duplicates: Duplicates::Refuse, outline: 2 };

#[test]
fn members_are_found_inside_and_beyond_the_outline() {
    let text = r#" { "a" : {"b":{"c":[1,"x",{"d":null}]}}, "e" : true } "#;
    for outline in 0..6 {
        let doc = Doc::parse(Bytes::from_static(text.as_bytes()), &Limits { outline, ..LIMITS });
        let doc = doc.unwrap();
        let array = doc.root().get("a").and_then(|a| a.get("b")).and_then(|b| b.get("c")).unwrap();
        let raws: Vec<_> = array.elements().map(|value| value.bytes()).collect();
        assert_eq!(raws, ["1", r#""x""#, r#"{"d":null}"#]);
        assert_eq!(doc.root().get("e").and_then(Value::as_bool), Some(true));
        assert!(doc.root().get("b").is_none());
    }
}
