//! The keyring's file: who may read it, what is no keyring, two who change it at once, and how
//! use is counted.

use std::{fs, os::unix::fs::PermissionsExt, thread};

use super::*;
use crate::credential::budget::{BLOCK, Budget};

fn fault(place: &Place) -> String {
    let error = place.keeper.open().unwrap_err().to_string();
    let path = place.folder.path().display().to_string();
    error.replace(&path, "")
}

#[test]
fn the_file_is_its_owners_alone() {
    let place = Place::new();
    let path = place.folder.path().join("keyring.json");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    for open in [0o640, 0o604, 0o660, 0o601, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        let told = fault(&place);
        assert!(told.contains(&format!("mode {open:03o}")) && told.contains("chmod 600"), "{told}");
        // Nor is it changed, which would hide it.
        assert!(place.keeper.rotate().is_err());
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(place.keeper.open().is_ok(), "reading is enough");
    place.keeper.rotate().unwrap();
    assert_eq!(mode(&path), 0o600);
    let left: Vec<_> = fs::read_dir(place.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["keyring.json", "keyring.json.lock"].contains(&name.as_str()))
        .collect();
    assert_eq!(left, [""; 0], "nothing is left aside");
}

#[test]
fn a_keyring_is_not_made_over_another() {
    let place = Place::new();
    let before = place.text();
    assert!(matches!(place.keeper.create(), Err(FileFault::Exists(_))));
    assert_eq!(place.text(), before);
}

#[test]
fn what_is_no_keyring_says_why_and_nothing_of_a_key() {
    let place = Place::new();
    let good = place.text();
    let material = good.split('"').find(|part| part.len() == 44).unwrap().to_owned();
    let id = place.first.to_string();
    let write = |text: &str| fs::write(place.folder.path().join("keyring.json"), text).unwrap();
    for (from, to, told) in [
        ("{", "[", "line 2"),
        ("\"version\": 1", "\"version\": 2", "newer version"),
        ("\"state\": \"primary\"", "\"state\": \"secondary\"", "unknown `state`"),
        ("\"state\": \"primary\"", "\"state\": \"destroyed\"", "has material"),
        (&*id, "0badbeef", "eight hexadecimal digits"),
        (&*material, &material[..40], "not 32 bytes"),
        (&*material, "planted-key-material-that-is-no-base64-at-all", "not 32 bytes"),
        ("\"material\"", "\"materia\"", "is not understood"),
        ("2026-", "soon-", "a time of key"),
    ] {
        assert!(good.contains(from), "{from}");
        write(&good.replacen(from, to, 1));
        let fault = fault(&place);
        assert!(fault.contains(told), "{told}: {fault}");
        assert!(!fault.contains("planted") && !fault.contains(&material[..40]), "{fault}");
    }
    let entry = good.split('[').nth(1).unwrap().split(']').next().unwrap();
    write(&good.replace(entry, &format!("{entry},{entry}")));
    assert!(fault(&place).contains("already there"));
    write(&good.replace(entry, &format!("{entry},{}", entry.replace(&id, "11111111"))));
    assert!(fault(&place).contains("both `primary`"));
    fs::remove_file(place.folder.path().join("keyring.json")).unwrap();
    assert!(fault(&place).contains("hangu keys new"));
}

#[test]
fn of_many_who_change_it_at_once_none_is_lost() {
    let place = Place::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    place
                        .keeper
                        .file()
                        .update(|ring| {
                            ring.keys[0].wraps += 1;
                            Ok(())
                        })
                        .unwrap();
                }
            });
        }
        // Whoever only reads finds a whole one each time.
        for _ in 0..200 {
            place.keeper.open().unwrap();
        }
    });
    assert_eq!(place.ring().keys()[0].wraps, 100);
}

#[test]
fn a_change_that_is_refused_or_cannot_be_written_leaves_the_file_as_it_was() {
    let place = Place::new();
    let before = place.text();
    let refused = place.keeper.file().update(|ring| {
        ring.keys.clear();
        Err::<(), _>(RingFault::NonePending)
    });
    assert!(matches!(refused, Err(FileFault::Refused(RingFault::NonePending))));
    assert_eq!(place.text(), before);
    // A folder that cannot be written to; root writes anywhere.
    if !rustix::process::getuid().is_root() {
        fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
        assert!(matches!(place.keeper.rotate(), Err(FileFault::Unwritable { .. })));
        fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(place.text(), before);
    }
}

#[test]
fn use_is_reserved_before_it_is_made_and_never_given_twice() {
    let place = Place::new();
    let wraps = || place.ring().keys()[0].wraps;
    let budget = Budget::new(Some(place.keeper.file().clone()));
    assert_eq!(wraps(), 0, "what is not used is not reserved");
    budget.take(place.first).unwrap();
    assert_eq!(wraps(), BLOCK);
    // One that was killed gives nothing back, and another begins behind it.
    let next = Budget::new(Some(place.keeper.file().clone()));
    next.take(place.first).unwrap();
    assert_eq!(wraps(), 2 * BLOCK);
    for _ in 1..BLOCK {
        budget.take(place.first).unwrap();
    }
    assert_eq!(wraps(), 2 * BLOCK);
    budget.take(place.first).unwrap();
    assert_eq!(wraps(), 3 * BLOCK);
}

#[test]
fn a_key_wraps_no_more_than_it_may() {
    let place = Place::new();
    let set = |wraps| {
        place.keeper.file().update(|ring| {
            ring.keys[0].wraps = wraps;
            Ok(())
        })
    };
    let own = whose("acme", "E1001", "s");
    set(MAX_WRAPS - BLOCK).unwrap();
    let kms = place.kms();
    let last = every_kind()[0].seal(&*kms, &own).unwrap();
    let other = place.kms();
    let refused = every_kind()[0].seal(&*other, &own).unwrap_err();
    assert_eq!(refused, SealFault::Kms(KmsFault::Exhausted(place.first.to_string())));
    assert!(Credential::open(&*other, &own, &last).is_ok(), "it still opens");
    place.keeper.rotate().unwrap();
    place.keeper.promote(None).unwrap();
    assert!(every_kind()[0].seal(&*place.kms(), &own).is_ok());
}

#[test]
fn what_cannot_be_counted_is_not_wrapped() {
    let place = Place::new();
    let kms = place.kms();
    fs::remove_file(place.folder.path().join("keyring.json")).unwrap();
    let refused = every_kind()[0].seal(&*kms, &whose("acme", "E1001", "s")).unwrap_err();
    assert!(matches!(refused, SealFault::Kms(KmsFault::UnknownKey(_))), "{refused}");
}
