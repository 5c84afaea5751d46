//! Programs that keep keys, and what becomes of keys while they are away.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use super::*;

/// Keeps keys by writing four letters before them, which is no secret, and writes down what it
/// was asked.
const PROGRAM: &str = r#"#!/bin/sh
read -r line
printf '%s\n' "$line" >> "$1/asked"
[ -e "$1/away" ] && exit 1
[ -e "$1/refuses" ] && { printf '{"error":"access\\tdenied"}\n'; exit 0; }
field() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
case "$line" in
  *'"op":"wrap"'*) printf '{"keyId":"arn:key/1","wrapped":"AAAA%s"}\n' "$(field key)" ;;
  *'"op":"unwrap"'*) printf '{"key":"%s"}\n' "$(field wrapped | cut -c5-)" ;;
  *'"op":"keyId"'*) printf '{"keyId":"arn:key/1"}\n' ;;
  *) printf '{}\n' ;;
esac
sleep 600
"#;

struct Outside {
    folder: TempDir,
    exec: Exec,
}

impl Outside {
    fn new(program: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kms");
        fs::write(&path, program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let args = vec![folder.path().display().to_string()];
        // By its shell: another thread that starts a process may hold the file open for writing.
        let exec = Exec {
            program: "/bin/sh".into(),
            args: [vec![path.display().to_string()], args].concat(),
            timeout: Duration::from_secs(10),
        };
        Self { folder, exec }
    }

    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn mark(&self, name: &str) {
        fs::write(self.folder.path().join(name), "").unwrap();
    }
}

#[test]
fn a_program_wraps_and_unwraps_for_a_context() {
    let outside = Outside::new(PROGRAM);
    let own = whose("acme", "E1001", "mcp_s_1");
    let exec = outside.exec.clone();
    exec.health().unwrap();
    let sealed = every_kind()[0].seal(&exec, &own).unwrap();
    assert_eq!(key_of(&sealed).unwrap(), "arn:key/1");
    assert_eq!(shown(&Credential::open(&exec, &own, &sealed).unwrap()), "bearer planted-token");
    assert_eq!(Credential::rewrap(&exec, &own, &sealed), Ok(None));
    let asked = outside.asked();
    let context = r#""context":{"kind":"credential","record":"[\"employee:E1001\",\"mcp_s_1\"]","schema":"1","tenant":"acme"}}"#;
    assert_eq!(asked[0], r#"{"version":1,"op":"health"}"#);
    assert!(asked[1].starts_with(r#"{"version":1,"op":"wrap","key":""#), "{asked:?}");
    assert!(asked[1].ends_with(context) && asked[2].ends_with(context), "{asked:?}");
    // The credential itself is not its business.
    assert!(!asked.concat().contains("planted"));
}

#[test]
fn unwrapped_keys_are_kept_for_a_time_and_so_many_uses() {
    let outside = Outside::new(PROGRAM);
    let clock = Clock::manual(NOW);
    let limits = CacheLimits { age: Duration::from_secs(60), uses: 3 };
    let kms = Cached::new(outside.exec.clone(), limits, clock.clone());
    let own = whose("acme", "E1001", "s");
    let sealed = every_kind()[0].seal(&kms, &own).unwrap();
    let opens = || Credential::open(&kms, &own, &sealed).map(|_| ());
    let unwraps = || outside.asked().iter().filter(|line| line.contains("\"unwrap\"")).count();
    for _ in 0..3 {
        opens().unwrap();
    }
    assert_eq!(unwraps(), 1);
    opens().unwrap();
    assert_eq!(unwraps(), 2, "its uses were over");
    outside.mark("away");
    clock.advance(Duration::from_secs(59));
    opens().unwrap();
    // Another record's key is not answered from this one's place.
    let other = whose("acme", "E1002", "s");
    assert!(Credential::open(&kms, &other, &sealed).is_err());
    clock.advance(Duration::from_secs(2));
    let refused = opens().unwrap_err();
    assert!(matches!(refused, SealFault::Kms(KmsFault::Away(_))), "{refused}");
    assert!(matches!(kms.health(), Err(KmsFault::Away(_))));
}

#[test]
fn a_program_that_fails_says_so_in_time_and_no_secret() {
    let own = whose("acme", "E1001", "s");
    let seal = |exec: &Exec| every_kind()[0].seal(exec, &own).unwrap_err().to_string();
    let outside = Outside::new(PROGRAM);
    outside.mark("refuses");
    assert_eq!(seal(&outside.exec), "whoever keeps the keys refuses: access denied");
    for (program, told) in [
        ("exit 3\n", "it did not answer"),
        ("read -r line; printf '%s' \"$line\" | tr -d '{'\n", "did not answer in JSON"),
        ("echo '{}'\n", "answered without `keyId`"),
        ("echo '{\"keyId\":\"k\",\"wrapped\":\"?\"}'\n", "answered without `wrapped`"),
        ("sleep 600\n", "it had 300 ms"),
        ("sleep 600 & sleep 600\n", "it had 300 ms"),
    ] {
        let outside = Outside::new(program);
        let begun = tokio::time::Instant::now();
        let exec = Exec { timeout: Duration::from_millis(300), ..outside.exec.clone() };
        let exec = if told.contains("ms") { exec } else { outside.exec.clone() };
        let fault = seal(&exec);
        assert!(fault.contains(told), "{program}: {fault}");
        assert!(!fault.contains("\"key\""), "{fault}");
        assert!(begun.elapsed() < Duration::from_secs(9), "{program}");
    }
    let nobody = Exec { program: "/nowhere/kms".into(), args: Vec::new(), ..outside.exec.clone() };
    assert!(seal(&nobody).contains("cannot be started"));
}

#[test]
fn a_keyring_can_be_wrapped_by_a_program() {
    let outside = Outside::new(PROGRAM);
    let file = KeyringFile::new(outside.folder.path().join("keyring.json"));
    let cache = CacheLimits { age: Duration::from_secs(60), uses: 10 };
    let with = |exec| Keeper::new(file.clone(), exec, cache, Clock::manual(NOW));
    let keeper = with(Some(outside.exec.clone()));
    let id = keeper.create().unwrap();
    let second = keeper.rotate().unwrap();
    let text = fs::read_to_string(file.path()).unwrap();
    assert!(
        !text.contains("\"material\"") && text.contains("\"wrappedBy\": \"arn:key/1\""),
        "{text}"
    );
    let secrets = |keeper: &Keeper| {
        let secrets = keeper.open().unwrap().secrets(Purpose::Tokens).unwrap();
        assert_eq!((secrets.primary.id, secrets.others[0].id), (id.number(), second.number()));
        *secrets.primary.secret.expose_secret()
    };
    assert_eq!(secrets(&keeper), secrets(&keeper));
    // Changing states needs nobody; using the keys does.
    with(None).promote(None).unwrap();
    let locked = with(None).open().unwrap_err().to_string();
    assert!(locked.contains("`exec` has to name the program"), "{locked}");
    outside.mark("away");
    let away = keeper.open().unwrap_err().to_string();
    assert!(away.contains("does not answer"), "{away}");
}
