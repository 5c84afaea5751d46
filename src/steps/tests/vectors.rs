//! What was compiled once is read for ever, and compiles to the same bytes.

use std::{fs, path::Path as FilePath};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::model::ids::from_hex;

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    tenant: String,
    key_id: u32,
    /// What the purpose `steps` gives of the keyring's key.
    secret: String,
    steps: Box<RawValue>,
    compiled: String,
}

#[test]
fn format_1_is_made_and_read_as_ever() {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steps");
    let text = fs::read_to_string(folder.join("format-1.json")).unwrap();
    let Vectors { vectors } = serde_json::from_str(&text).unwrap();
    assert!(vectors.len() >= 4);
    for vector in vectors {
        let secret = SecretBox::new(Box::new(from_hex(&vector.secret).unwrap()));
        let primary = KeySecret { id: vector.key_id, secret };
        let keys = Keys::new(KeySecrets { primary, others: Vec::new() });
        let tenant = TenantId::new(vector.tenant);
        let (text, _) = compiled(vector.steps.get()).unwrap().write(&tenant, &keys);
        assert_eq!(String::from_utf8(text).unwrap(), vector.compiled, "{}", vector.name);
        let read = Compiled::open(doc(vector.compiled).root(), &tenant, &keys);
        assert!(read.is_ok(), "{}: {read:?}", vector.name);
    }
}
