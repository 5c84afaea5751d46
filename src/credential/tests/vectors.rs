//! What was sealed once is read for ever: the vectors were made by another implementation.

use std::{fs, os::unix::fs::PermissionsExt};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::*;
use crate::model::ids::hex;

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    key: String,
    tenant: String,
    kind: String,
    record: Vec<String>,
    schema: u16,
    text: String,
    sealed: String,
}

fn fixture(name: &str) -> String {
    fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sealing").join(name),
    )
    .unwrap()
}

fn ring() -> (TempDir, Keeper) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.json");
    fs::write(&path, fixture("keyring-1.json")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let keeper = keeper(folder.path());
    (folder, keeper)
}

#[test]
fn what_format_1_sealed_opens() {
    let (_folder, keeper) = ring();
    let kms = keeper.kms(Arc::new(keeper.open().unwrap()));
    let Vectors { vectors } = serde_json::from_str(&fixture("format-1.json")).unwrap();
    assert!(vectors.len() >= 5);
    for vector in vectors {
        let record: Vec<&str> = vector.record.iter().map(String::as_str).collect();
        let context = Context {
            tenant: &vector.tenant,
            kind: &vector.kind,
            record: &record,
            schema: vector.schema,
        };
        let sealed = STANDARD.decode(&vector.sealed).unwrap();
        assert_eq!(key_of(&sealed).unwrap(), vector.key);
        let text = open(&*kms, &context, &sealed).unwrap();
        assert_eq!(*text, STANDARD.decode(&vector.text).unwrap());
        if vector.kind == "credential" {
            let whose = Whose {
                tenant: TenantId::new(vector.tenant),
                owner: Owner::parse(record[0]).unwrap(),
                server_key: record[1].into(),
            };
            let opened = Credential::open(&*kms, &whose, &sealed).unwrap();
            assert!(shown(&opened).contains("vector"), "{opened:?}");
        }
    }
}

/// Were a label or a salt changed, sessions, digests and stored answers would be lost.
#[test]
fn secrets_are_derived_as_they_always_were() {
    let (_folder, keeper) = ring();
    let ring = keeper.open().unwrap();
    let of = |purpose| {
        let secrets = ring.secrets(purpose).unwrap();
        assert_eq!((secrets.primary.id, secrets.others[0].id), (0x9f8e_7d6c, 0x1a2b_3c4d));
        let start: [u8; 8] = secrets.primary.secret.expose_secret()[..8].try_into().unwrap();
        String::from_utf8(hex::<8, 16>(start).to_vec()).unwrap()
    };
    let derived = Purpose::ALL.map(of);
    assert_eq!(derived, DERIVED);
}

const DERIVED: [&str; 8] = [
    "a13df2e9a9b5b4e7", // storage
    "ad0db6c8571ccb95", // digests
    "6087c818abd52be4", // tokens
    "c1738fa9eccca6b5", // replays
    "5259a27463a23b5c", // approvals
    "2646f0adc18b22a4", // checkpoints
    "2beda5810316a676", // steps
    "8fd5bcb0594a7319", // identity
];
