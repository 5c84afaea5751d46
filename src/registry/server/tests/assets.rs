//! A server's description as a file: what later versions must still read, and what is refused.

use super::*;
use crate::mcp::Family;

/// As the first version wrote it.
const GOLDEN: &str = include_str!("../../../../tests/fixtures/asset/v1.json");

fn read(file: &str) -> Result<Asset, Vec<InputFault>> {
    read_asset(file.to_owned().into(), &registrant(), &OptionLimits::default())
}

#[test]
fn a_file_is_read_and_written_again_to_the_byte() {
    let asset = read(GOLDEN).unwrap_or_else(|faults| panic!("{:#?}", told(&faults)));
    let archive = asset.archive.as_ref().unwrap();
    let registration = &asset.registration;
    assert_eq!(registration.url.as_str(), "https://order-query.example.com/mcp?region=eu");
    assert_eq!((registration.auth, registration.revision), (AuthKind::Bearer, 0));
    assert_eq!(registration.options.headers.len(), 2);
    assert_eq!(archive.of(Family::Tools).len(), 2);
    assert_eq!(archive.families[Family::Prompts as usize], Some(Vec::new()));
    assert_eq!(archive.families[Family::Templates as usize], None);
    assert_eq!(archive.spoken, Some(Spoken::Handshake(Some(Version::V2025_11_25))));
    let pin = &asset.pins[0];
    assert_eq!((&*pin.tool, pin.versions.len()), ("query_order", 2));
    assert_eq!(pin.approved, Some(pin.versions[1].digest));
    assert!(pin.versions[0].definition.is_some() && pin.versions[1].definition.is_none());
    let kept = Kept { registration: registration.clone(), archive: asset.archive.clone() };
    let again = write_asset(&kept, &asset.pins);
    assert_eq!(String::from_utf8_lossy(&again), GOLDEN);
    // A server that was never asked is one, too.
    let bare = Kept { archive: None, ..kept };
    let again = read(&String::from_utf8_lossy(&write_asset(&bare, &[]))).unwrap();
    assert_eq!((again.archive, again.pins), (None, Vec::new()));
    assert_eq!(again.registration, bare.registration);
}

#[test]
fn a_file_that_was_changed_is_refused_with_the_place() {
    for (from, to, expected) in [
        (
            "asset/v1",
            "asset/v9",
            "/version unknown version `hangu/asset/v9`; known is `hangu/asset/v1`",
        ),
        ("\"tools\": [", "\"tols\": [", "/tols unknown member `tols`; did you mean `tools`?"),
        ("region=eu\"", "region=us\"", "/server/serverKey the address has another serverKey: "),
        (
            "region=eu\"",
            "token=eu\"",
            "/server/url the address holds a secret in its parameter `token`",
        ),
        ("\"auth\": \"bearer\"", "\"auth\": \"x\"", "/server/auth unknown type `x`"),
        (
            "\"x-region\":\"eu\"",
            "\"x-api-key\":\"S3CRET\"",
            "/server/options/headers/x-api-key `x-api-key` is a secret",
        ),
        (
            "\"timeout\":\"20s\"",
            "\"timeout\":\"20h\"",
            "/server/options/timeout a time above 0 and up to 1m",
        ),
        (
            "\"serves\": [\"tools\"",
            "\"serves\": [\"tols\"",
            "/serves/0 nothing that a server serves",
        ),
        ("\"spoken\": \"handshake\"", "\"spoken\": \"french\"", "/spoken no dialect and revision"),
        ("\"listedMs\": 1790000000000", "\"listedMs\": -1", "/listedMs expected a time"),
        ("{\"uri\":\"file:///a\",\"name\":\"a\"}", "7", "/resources/0 expected a JSON object"),
        ("\"approved\": \"sha256:", "\"approved\": \"sha1:", "/pins/0/approved not a digest"),
        (
            "\"definition\": {\"name\":\"query_order\",\"inputSchema\":{\"type\":\"object\"}}",
            "\"definition\": {\"name\":\"query_order\",\"inputSchema\":{\"type\":\"string\"}}",
            "/pins/0/versions/0/definition the definition has another digest",
        ),
        (
            "\"tool\": \"list_orders\"",
            "\"tool\": \"other\"",
            "/pins/1/versions/0/definition the definition is another tool's",
        ),
        (
            "\"seenMs\": 1780000000000",
            "\"seenMs\": \"x\"",
            "/pins/0/versions/0/seenMs expected a time",
        ),
    ] {
        assert!(GOLDEN.contains(from), "{from}");
        let faults = told(&read(&GOLDEN.replacen(from, to, 1)).expect_err(to));
        assert!(faults.iter().any(|fault| fault.starts_with(expected)), "{to}: {faults:#?}");
        assert!(!faults.concat().contains("S3CRET"));
    }
    assert_eq!(told(&read("{").unwrap_err()).len(), 1);
    assert_eq!(
        told(&read("{}").unwrap_err()),
        ["/version `version` is missing; known is `hangu/asset/v1`"]
    );
}

#[test]
fn what_was_encoded_is_decoded() {
    let archive = read(GOLDEN).unwrap().archive.unwrap();
    let again = Archive::decode(archive.encode()).unwrap();
    assert_eq!(again, Archive { listed_ms: 0, ..archive.clone() });
    assert!(again.says_same(&archive));
    assert_eq!(Archive::decode(Archive::default().encode()).unwrap(), Archive::default());
    for broken in ["", "[]", "{\"tools\":[", "7"] {
        assert!(Archive::decode(Bytes::from_static(broken.as_bytes())).is_err(), "{broken}");
    }
}
