//! The engine from outside: what is sealed, by whom it opens, and what a keyring allows.

mod files;
mod kms;
mod nonces;
mod vault;
mod vectors;

use std::{fs, path::Path, sync::Arc};

use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::*;
use crate::{
    clock::Clock,
    model::caller::{EmployeeId, TenantId},
};

const NOW: u64 = 1_796_090_400_000;

/// A folder with a keyring of one key.
struct Place {
    folder: TempDir,
    keeper: Keeper,
    first: KeyId,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(folder.path());
        let first = keeper.create().unwrap();
        Self { folder, keeper, first }
    }

    fn ring(&self) -> Arc<Keyring> {
        Arc::new(self.keeper.open().unwrap())
    }

    fn kms(&self) -> Arc<dyn Kms> {
        self.keeper.kms(self.ring())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.folder.path().join("keyring.json")).unwrap()
    }
}

fn keeper(folder: &Path) -> Keeper {
    let file = KeyringFile::new(folder.join("keyring.json"));
    let cache = CacheLimits { age: std::time::Duration::from_secs(60), uses: 10 };
    Keeper::new(file, None, cache, Clock::manual(NOW))
}

fn whose(tenant: &str, employee: &str, server_key: &str) -> Whose {
    let owner = match employee {
        "" => Owner::Gateway,
        id => Owner::Employee(EmployeeId::parse(id).unwrap()),
    };
    Whose { tenant: TenantId::new(tenant), owner, server_key: server_key.into() }
}

fn every_kind() -> Vec<Credential> {
    vec![
        Credential::Bearer("planted-token".into()),
        Credential::Basic { user: "änne".to_owned(), password: "planted-password".into() },
        Credential::Headers(vec![
            ("X-Api-Key".to_owned(), "planted-value".into()),
            ("X-Empty".to_owned(), "".into()),
        ]),
        Credential::Value("planted-secret".into()),
        Credential::OAuth(oauth::Grant {
            access: "planted-access".into(),
            refresh: Some("planted-refresh".into()),
            expires_ms: Some(NOW),
            scope: "a b".to_owned(),
            issuer: "https://as".to_owned(),
            token_endpoint: "https://as/token".to_owned(),
            resource: "https://up/mcp".to_owned(),
            client_id: "hangu".to_owned(),
        }),
    ]
}

fn shown(credential: &Credential) -> String {
    match credential {
        Credential::Bearer(token) => format!("bearer {}", token.expose_secret()),
        Credential::Basic { user, password } => format!("{user}:{}", password.expose_secret()),
        Credential::Headers(headers) => {
            let shown =
                headers.iter().map(|(name, value)| format!("{name}={}", value.expose_secret()));
            shown.collect::<Vec<_>>().join(",")
        }
        Credential::Value(value) => format!("value {}", value.expose_secret()),
        Credential::OAuth(grant) => format!(
            "oauth {} {:?} {:?} {} {} {} {} {}",
            grant.access.expose_secret(),
            grant.refresh.as_ref().map(ExposeSecret::expose_secret),
            grant.expires_ms,
            grant.scope,
            grant.issuer,
            grant.token_endpoint,
            grant.resource,
            grant.client_id
        ),
    }
}

#[test]
fn a_credential_opens_for_its_owner_and_server_only() {
    let place = Place::new();
    let kms = place.kms();
    let own = whose("acme", "E1001", "mcp_orders_7f3a2c91");
    for credential in every_kind() {
        let sealed = credential.seal(&*kms, &own).unwrap();
        let opened = Credential::open(&*kms, &own, &sealed).unwrap();
        assert_eq!(shown(&opened), shown(&credential));
        for other in [
            whose("globex", "E1001", "mcp_orders_7f3a2c91"),
            whose("acme", "E1002", "mcp_orders_7f3a2c91"),
            whose("acme", "", "mcp_orders_7f3a2c91"),
            whose("acme", "E1001", "mcp_orders_7f3a2c92"),
            // The same letters, parted elsewhere.
            whose("acm", "E1001", "emcp_orders_7f3a2c91"),
        ] {
            let refused = Credential::open(&*kms, &other, &sealed).unwrap_err();
            assert_eq!(refused, SealFault::Mismatch, "{other:?}");
            assert_eq!(Credential::rewrap(&*place.kms(), &other, &sealed), Ok(None));
        }
    }
}

#[test]
fn a_credential_opens_at_the_address_that_it_was_given_for() {
    let place = Place::new();
    let kms = place.kms();
    let own = whose("acme", "E1001", "mcp_orders_7f3a2c91");
    let (here, there) = (Some("https://orders.example/mcp"), Some("https://orders.m.example/"));
    for credential in every_kind() {
        let sealed = credential.seal_for(&*kms, &own, here).unwrap();
        let opened = |at| Credential::open_whole(&*kms, &own, &sealed).unwrap().at(at);
        assert_eq!(opened(here).map(|it| shown(&it)), Some(shown(&credential)));
        assert!(opened(there).is_none() && opened(None).is_none(), "{credential:?}");
        // What was sealed before anybody said where it may go opens as ever.
        let sealed = credential.seal(&*kms, &own).unwrap();
        let opened = Credential::open_whole(&*kms, &own, &sealed).unwrap();
        assert_eq!(opened.address, None);
        assert!(opened.at(there).is_some(), "{credential:?}");
    }
}

#[test]
fn nothing_of_what_is_sealed_can_be_read_or_changed() {
    let place = Place::new();
    let kms = place.kms();
    let own = whose("acme", "E1001", "s");
    let credential = Credential::Bearer("planted-token".into());
    let sealed = credential.seal(&*kms, &own).unwrap();
    assert!(!sealed.windows(7).any(|part| part == b"planted"));
    assert_ne!(sealed, credential.seal(&*kms, &own).unwrap(), "a key of its own each time");
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(Credential::open(&*kms, &own, &changed).is_err(), "{at}");
        assert!(Credential::open(&*kms, &own, &sealed[..at]).is_err(), "{at}");
    }
    let longer = [&sealed[..], b"x"].concat();
    assert!(Credential::open(&*kms, &own, &longer).is_err());
    let mut newer = sealed;
    newer[4] = 2;
    assert_eq!(Credential::open(&*kms, &own, &newer).unwrap_err(), SealFault::Newer);
}

#[test]
fn what_is_shown_for_people_has_no_secret() {
    let place = Place::new();
    let ring = place.ring();
    let text = place.text();
    let material = text.split('"').find(|part| part.len() == 44).unwrap();
    let shown = format!(
        "{ring:?} {:?} {:?} {:?}",
        ring.keys(),
        ring.secrets(Purpose::Digests).unwrap(),
        every_kind()
    );
    assert!(!shown.contains("planted") && !shown.contains(material), "{shown}");
    assert!(shown.contains(&place.first.to_string()), "{shown}");
}

#[test]
fn a_rotation_keeps_what_was_sealed_until_the_old_key_goes() {
    let place = Place::new();
    let own = whose("acme", "E1001", "s");
    let sealed = every_kind()[0].seal(&*place.kms(), &own).unwrap();
    let open = |sealed: &[u8]| Credential::open(&*place.kms(), &own, sealed).map(|it| shown(&it));
    assert_eq!(key_of(&sealed).unwrap(), place.first.to_string());

    let second = place.keeper.rotate().unwrap();
    let state = |id| place.ring().key(id).unwrap().state;
    assert_eq!((state(place.first), state(second)), (KeyState::Primary, KeyState::Pending));
    assert!(place.keeper.rotate().unwrap_err().to_string().contains("already `pending`"));
    // A replica that has promoted it already is understood by one that has not.
    let secrets = place.ring().secrets(Purpose::Tokens).unwrap();
    assert_eq!(secrets.primary.id, place.first.number());
    assert_eq!(secrets.others[0].id, second.number());

    let long_lived = LocalKms::new(place.ring(), place.keeper.file().clone());
    assert_eq!(place.keeper.promote(None).unwrap(), second);
    assert_eq!(long_lived.key_id().unwrap(), place.first.to_string());
    long_lived.replace(place.ring());
    assert_eq!(long_lived.key_id().unwrap(), second.to_string());
    assert_eq!((state(place.first), state(second)), (KeyState::Retiring, KeyState::Primary));
    assert_eq!(open(&sealed).unwrap(), "bearer planted-token");
    let kms = place.kms();
    let anew = Credential::rewrap(&*kms, &own, &sealed).unwrap().unwrap();
    assert_eq!(key_of(&anew).unwrap(), second.to_string());
    assert_eq!(Credential::rewrap(&*kms, &own, &anew), Ok(None));
    // The text itself is as it was.
    assert_eq!(anew[anew.len() - 40..], sealed[sealed.len() - 40..]);

    let refused = place.keeper.destroy(second).unwrap_err().to_string();
    assert!(refused.contains("promote another"), "{refused}");
    place.keeper.destroy(place.first).unwrap();
    assert_eq!(open(&anew).unwrap(), "bearer planted-token");
    let gone = SealFault::Kms(KmsFault::Destroyed(place.first.to_string()));
    assert_eq!(open(&sealed).unwrap_err(), gone);
    assert!(place.keeper.destroy(place.first).unwrap_err().to_string().contains("before"));
    assert!(place.keeper.promote(Some(place.first)).is_err());
    assert_eq!(place.text().matches("\"material\"").count(), 1, "what was destroyed is gone");
}

#[test]
fn another_keyring_opens_nothing_and_is_told_by_its_key() {
    let (place, other) = (Place::new(), Place::new());
    let own = whose("acme", "E1001", "s");
    let sealed = every_kind()[0].seal(&*place.kms(), &own).unwrap();
    let refused = Credential::open(&*other.kms(), &own, &sealed).unwrap_err();
    assert_eq!(refused, SealFault::Kms(KmsFault::UnknownKey(place.first.to_string())));
}

#[test]
fn names_of_keys_credentials_and_owners_are_read_strictly() {
    for bad in ["", "1a2b3c4", "1a2b3c4d5", "0a2b3c4d", "1A2B3C4D", "1a2b3c4g", "+a2b3c4d"] {
        assert_eq!(KeyId::parse(bad), None, "{bad}");
    }
    let id = KeyId::random();
    assert_eq!(KeyId::parse(&id.to_string()), Some(id));
    let reference = CredentialRef::random();
    assert_eq!(CredentialRef::parse(&reference.to_string()), Some(reference));
    for bad in [
        "",
        "cred_",
        "cred_1",
        &reference.to_string()[5..],
        "cred_+0000000000000000000000000000000",
    ] {
        assert_eq!(CredentialRef::parse(bad), None, "{bad}");
    }
    for owner in [Owner::Gateway, Owner::Employee(EmployeeId::parse("gateway").unwrap())] {
        assert_eq!(Owner::parse(&owner.text()), Some(owner));
    }
    assert_eq!(Owner::parse("E1001"), None);
}
