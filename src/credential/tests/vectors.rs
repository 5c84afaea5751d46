//! What was sealed once is read for ever: the vectors were made by another implementation.
//!
//! A file of vectors is never made anew, and nothing in it is changed. Where what is sealed gets
//! another form, the next version adds `…-2.json` with vectors of that, and a case to the tests
//! here, and goes on reading the old ones.

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
    /// What a credential says.
    opens: Option<String>,
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

/// Opens each of a file, and says which credentials were among them.
fn opened(file: &str) -> Vec<(Whose, Credential)> {
    let (_folder, keeper) = ring();
    let kms = keeper.kms(Arc::new(keeper.open().unwrap()));
    let Vectors { vectors } = serde_json::from_str(&fixture(file)).unwrap();
    let mut credentials = Vec::new();
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
            assert!(vector.opens.is_none_or(|opens| opens == shown(&opened)), "{opened:?}");
            credentials.push((whose, opened));
        }
    }
    credentials
}

#[test]
fn what_format_1_sealed_opens() {
    let credentials = opened("format-1.json");
    assert_eq!(credentials.len(), 3);
    assert!(credentials.iter().all(|(_, opened)| shown(opened).contains("vector")));
}

#[test]
fn credentials_of_every_kind_open_and_are_written_as_ever() {
    let credentials = opened("credentials-1.json");
    for kind in CredentialKind::ALL {
        assert!(credentials.iter().any(|(_, opened)| opened.kind() == kind), "{kind:?}");
    }
    // What is sealed now has the text of then.
    let (_folder, keeper) = ring();
    let kms = keeper.kms(Arc::new(keeper.open().unwrap()));
    let Vectors { vectors } = serde_json::from_str(&fixture("credentials-1.json")).unwrap();
    assert_eq!(vectors.len(), credentials.len());
    for (vector, (whose, credential)) in vectors.iter().zip(&credentials) {
        let sealed = credential.seal(&*kms, whose).unwrap();
        let record: Vec<&str> = vector.record.iter().map(String::as_str).collect();
        let (tenant, kind) = (&*vector.tenant, &*vector.kind);
        let context = Context { tenant, kind, record: &record, schema: vector.schema };
        let text = open(&*kms, &context, &sealed).unwrap();
        assert_eq!(*text, STANDARD.decode(&vector.text).unwrap(), "{:?}", vector.record);
    }
    // An owner's own settings are such a text, too.
    let of = |employee: &str| {
        let employee = EmployeeId::parse(employee).unwrap();
        let place =
            oauth::OwnSettings::place(TenantId::new("acme"), employee, "mcp_granted_00c0ffee");
        let kept = credentials.iter().find(|(whose, _)| *whose == place).unwrap();
        let settings = oauth::OwnSettings::of(&kept.1).unwrap();
        assert_eq!(shown(&settings.to_credential().unwrap()), shown(&kept.1));
        settings
    };
    let named = of("E1001");
    let client = named.client.unwrap();
    assert_eq!((&*client.id, named.scope.as_deref()), ("mine", Some("read write")));
    let oauth::ClientProof::Secret(secret) = client.proof else { panic!("{:?}", client.proof) };
    assert_eq!(secret.expose_secret(), "vector own");
    assert!(of("E1002").client.is_none());
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
