//! `tls:` of an upstream: files that can be used, and what each of them may lack.

use std::{fs, path::Path};

use super::{LEAST, config, faults::faults, read, told};
use crate::upstream::ClientFiles;

/// A folder with the files of the cases.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let pair = |name: &str, from: i32, until: i32| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["gateway".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        write(&format!("{name}.pem"), &params.self_signed(&key).unwrap().pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    };
    pair("good", 2020, 4096);
    pair("other", 2020, 4096);
    pair("old", 2020, 2021);
    pair("new", 4000, 4096);
    write("text.pem", "hunter2\n");
    write("empty.pem", "");
    write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write("cut.pem", "-----BEGIN CERTIFICATE-----\nhunter2\n");
    write("broken.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    folder
}

fn with(body: &str, folder: &Path) -> String {
    let body = body.replace("IN/", &format!("{}/", folder.display()));
    LEAST.replace("{ url: \"http://127.0.0.1:7001/mcp\" }", &body)
}

fn https(tls: &str) -> String {
    format!("{{ url: \"https://a.example/\", tls: {{ {tls} }} }}")
}

#[test]
fn a_certificate_its_key_and_roots_are_files() {
    let folder = folder();
    for (tls, shows, ca) in [
        ("client_cert: IN/good.pem, client_key: IN/good.key", true, false),
        ("ca: IN/other.pem", false, true),
        ("client_cert: IN/good.pem, client_key: IN/good.key, ca: IN/other.pem", true, true),
    ] {
        let config = config(&with(&https(tls), folder.path()));
        let files = config.upstreams[0].tls.as_ref().unwrap();
        assert_eq!((files.client.is_some(), files.ca.is_some()), (shows, ca), "{tls}");
        if let Some(ClientFiles { certificate, key }) = &files.client {
            assert!(certificate.ends_with("good.pem") && key.ends_with("good.key"));
        }
        let key = fs::read_to_string(folder.path().join("good.key")).unwrap();
        let inside = key.lines().nth(1).unwrap();
        let shown = config.shown()["upstreams"]["crm"]["tls"].to_string();
        assert_eq!(shown.contains("good.key"), shows, "{shown}");
        assert!(!shown.contains(inside) && !format!("{config:?}").contains(inside));
    }
}

#[test]
fn a_file_that_cannot_be_used_is_told_with_its_place() {
    let folder = folder();
    let gone = "cannot be read: No such file or directory (os error 2)";
    for (tls, expected) in [
        (
            "client_cert: IN/no.pem, client_key: IN/good.key",
            format!("Y001 CERT `IN/no.pem` {gone}"),
        ),
        ("client_cert: IN/good.pem, client_key: IN/no.key", format!("Y001 KEY `IN/no.key` {gone}")),
        ("ca: IN/no.pem", format!("Y001 CA `IN/no.pem` {gone}")),
        ("ca: IN/", "Y001 CA `IN/` cannot be read: Is a directory (os error 21)".to_owned()),
        (
            "client_cert: IN/text.pem, client_key: IN/good.key",
            "Y007 CERT `IN/text.pem` holds no certificate in PEM".to_owned(),
        ),
        (
            "client_cert: IN/good.key, client_key: IN/good.key",
            "Y007 CERT `IN/good.key` holds no certificate in PEM".to_owned(),
        ),
        (
            "client_cert: IN/cut.pem, client_key: IN/good.key",
            "Y007 CERT `IN/cut.pem` holds no certificate in PEM".to_owned(),
        ),
        (
            "client_cert: IN/broken.pem, client_key: IN/good.key",
            "Y007 CERT `IN/broken.pem` holds what is no certificate".to_owned(),
        ),
        (
            "client_cert: IN/good.pem, client_key: IN/text.pem",
            "Y007 KEY `IN/text.pem` holds no private key in PEM".to_owned(),
        ),
        (
            "client_cert: IN/good.pem, client_key: IN/good.pem",
            "Y007 KEY `IN/good.pem` holds no private key in PEM".to_owned(),
        ),
        (
            "client_cert: IN/good.pem, client_key: IN/broken.key",
            "Y007 KEY `IN/broken.key` holds a key of a kind that TLS does not use".to_owned(),
        ),
        (
            "client_cert: IN/good.pem, client_key: IN/other.key",
            "C009 KEY the key in `IN/other.key` is not the certificate's".to_owned(),
        ),
        (
            "client_cert: IN/old.pem, client_key: IN/old.key",
            "C102 CERT this certificate has expired: servers will refuse it".to_owned(),
        ),
        (
            "client_cert: IN/new.pem, client_key: IN/new.key",
            "C102 CERT this certificate is not good yet: servers will refuse it".to_owned(),
        ),
        ("ca: IN/empty.pem", "Y007 CA `IN/empty.pem` holds no certificate in PEM".to_owned()),
        (
            "ca: IN/broken.pem",
            "Y007 CA `IN/broken.pem` holds a certificate that vouches for nobody".to_owned(),
        ),
        ("client_cert: IN/good.pem", "Y005 IT `client_key` is missing".to_owned()),
        ("client_key: IN/good.key, ca: IN/good.pem", "Y005 IT `client_cert` is missing".to_owned()),
        ("", "Y005 IT `tls` says nothing".to_owned()),
        ("client_cert: 7, ca: IN/good.pem", "Y006 CERT expected a text, found a number".to_owned()),
        (
            "client_crt: IN/good.pem, ca: IN/good.pem",
            "Y004 NAME unknown key `client_crt`".to_owned(),
        ),
    ] {
        let text = with(&https(tls), folder.path());
        let line = text.lines().nth(5).unwrap();
        let after = |key: &str| line.find(key).map_or(0, |at| at + key.len() + 1);
        let mut expected = expected.replace("IN/", &format!("{}/", folder.path().display()));
        for (word, column) in [
            (" CERT ", after("client_cert: ")),
            (" KEY ", after("client_key: ")),
            (" CA ", after(" ca: ")),
            (" IT ", after("tls: ")),
            (" NAME ", after("tls: { ")),
        ] {
            expected = expected.replace(word, &format!(" 6:{column} "));
        }
        assert_eq!(told(&read(&text).faults), [expected], "{tls}");
    }
}

#[test]
fn it_is_of_servers_that_are_reached_over_tls() {
    let folder = folder();
    let http = "`tls` is about `https`: over `http` nobody is shown a certificate";
    let command = "`tls` is about a `url`: nobody connects to a `command`";
    for (body, expected) in [
        ("{ url: \"http://a/\", tls: { ca: IN/good.pem } }", format!("C009 6:33 {http}")),
        (
            "{ urls: [\"https://a/\", \"http://b/\"], tls: { ca: IN/good.pem } }",
            format!("C009 6:50 {http}"),
        ),
        ("{ command: x, tls: { ca: IN/no.pem } }", format!("C009 6:27 {command}")),
        (
            "{ url: \"https://a/\", tls: IN/good.pem }",
            "Y006 6:34 expected a mapping, found a text".to_owned(),
        ),
    ] {
        assert_eq!(faults(&with(body, folder.path())), [expected], "{body}");
    }
}
