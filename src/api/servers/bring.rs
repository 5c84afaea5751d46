//! Registering a server: its credential is sealed, it is asked what it has, and only then is it
//! kept. Of one that cannot be listed nothing stays that was not there before.
//!
//! The registration is what counts: without one, a credential that a killed process left behind
//! opens nothing, is shown to nobody, and goes with the next attempt or with
//! `DELETE /v1/servers/{serverKey}/credential`.

use http::{Response, StatusCode, header};
use secrecy::SecretString;

use super::{
    Asked, Servers,
    keep::{self, Place},
};
use crate::{
    api::{Person, input},
    body::Body,
    credential::{Credential, CredentialKind, Given, Whose, oauth::OwnSettings},
    error::{Code, Error},
    mcp::Family,
    model::server_key::normalised,
    registry::server::{
        Archive, AuthKind, InputFault, Kept, NewServer, OptionLimits, Registrant, Registration,
        Secrets, read_server,
    },
};

/// A server that was registered, or registered anew.
pub(super) struct Brought {
    pub kept: Kept,
    pub is_new: bool,
    /// It was not asked what it has: it cannot be, before somebody sets a credential.
    pub needs_credential: bool,
}

/// What was there before a credential was given.
pub(super) enum Before {
    /// None was given.
    Untouched,
    Nothing,
    There(Given),
}

impl Servers {
    pub(super) async fn register(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        input::is_json(&asked.headers)?;
        let registrant = self.registrant(&asked.person);
        let new = read_server(asked.body.clone(), &registrant, &OptionLimits::default());
        let brought = self.bring(asked, new.map_err(faulty)?).await?;
        let status = if brought.is_new { StatusCode::CREATED } else { StatusCode::OK };
        let mut response = self.tell(asked, &brought.kept, status).await?;
        let place = format!("/v1/servers/{}", brought.kept.registration.server_key);
        if let (true, Ok(place)) = (brought.is_new, place.try_into()) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        Ok(response)
    }

    pub(super) fn registrant(&self, person: &Person) -> Registrant {
        Registrant {
            tenant: person.tenant.clone(),
            owner: person.employee.clone(),
            now_ms: self.parts.clock.now_ms(),
        }
    }

    /// Registers what was read, in the place of what its owner has under the key.
    pub(super) async fn bring(&self, asked: &Asked, new: NewServer) -> Result<Brought, Error> {
        let NewServer { mut registration, secrets } = new;
        let key = registration.server_key.clone();
        asked.note("register", Some(&key));
        let most = self.may_bring(&asked.person, &registration.url)?;
        self.may_open(&asked.person, &registration.url, registration.auth)?;
        let given = self.to_give(asked, &registration, secrets)?;
        let place = asked.place(&key);
        let _claim = self.busy.claim(place.clone())?;
        let before = self.own(&place).await?;
        match &before {
            Some(Kept { registration: before, .. }) => {
                asked.note("replace", Some(&key));
                registration.revision = before.revision;
                registration.created_ms = before.created_ms;
                // Sharing is asked for by itself.
                registration.team = before.team.clone();
            }
            None => self.has_room(&place, most).await?,
        }
        let seen = registration.revision;
        asked.is_about(seen)?;
        let whose = given.as_ref().map(|(whose, _)| whose.clone());
        let given = self.give(given).await?;
        let (registration, listed) = match self.settle(asked, registration, most, &given).await {
            Ok(settled) => settled,
            Err(error) => {
                self.take_back(&place, whose, seen, given).await;
                return Err(error);
            }
        };
        let kept = match &listed {
            Some(listed) => self.set_archive(&place, listed.clone()).await.map(drop),
            None => Ok(()),
        };
        self.changed(&asked.person);
        kept?;
        self.clear(asked, &registration).await?;
        let (is_new, needs_credential) = (before.is_none(), listed.is_none());
        let archive = listed.or(before.and_then(|before| before.archive));
        Ok(Brought { kept: Kept { registration, archive }, is_new, needs_credential })
    }

    /// Said before anything is done; the store says it again.
    async fn has_room(&self, place: &Place, most: u32) -> Result<(), Error> {
        let (tenant, owner, _) = place.clone();
        let count = self.ask(|store, then| store.count(tenant, owner, then)).await?;
        if count >= u64::from(most) { Err(keep::full(most)) } else { Ok(()) }
    }

    /// What is to be sealed, and where: the credential, or what opens the way to one.
    fn to_give(
        &self,
        asked: &Asked,
        registration: &Registration,
        secrets: Option<Secrets>,
    ) -> Result<Option<(Whose, Given)>, Error> {
        if registration.auth == AuthKind::Oauth
            && self.parts.reach.connect(&asked.caller, registration).is_none()
        {
            let message = "nobody can connect to a server that is opened by OAuth: the gateway has \
                           no `public_url`, which an operator has to name in its configuration";
            return Err(Error::new(Code::InvalidArgs, message).with_pointer("/auth/type"));
        }
        let key = &registration.server_key;
        let address = Some(normalised(&registration.url));
        Ok(match secrets {
            None => None,
            Some(Secrets::Oauth { client_id, client_secret, scopes }) => {
                let Person { tenant, employee, .. } = asked.person.clone();
                let settings = OwnSettings::new(client_id, client_secret, &scopes);
                let sealed = settings.to_credential().ok_or_else(|| {
                    Error::new(Code::Internal, "what was said of OAuth cannot be written")
                })?;
                let given = Given { credential: sealed, address };
                Some((OwnSettings::place(tenant, employee, key), given))
            }
            Some(secrets) => {
                let given = Given { credential: to_credential(secrets)?, address };
                Some((asked.person.whose(key), given))
            }
        })
    }

    /// Takes away what does not open the server any more.
    async fn clear(&self, asked: &Asked, registration: &Registration) -> Result<(), Error> {
        let vault = &self.parts.vault;
        let whose = asked.person.whose(&registration.server_key);
        let is_stale = match registration.auth {
            AuthKind::None => true,
            AuthKind::Oauth => {
                let held = vault.held(&whose).await.map_err(keep::vault_failed)?;
                held.is_some_and(|held| held.kind != CredentialKind::OAuth)
            }
            AuthKind::Bearer | AuthKind::Basic | AuthKind::Headers => false,
        };
        if is_stale {
            vault.delete(whose).await.map_err(keep::vault_failed)?;
        }
        if registration.auth != AuthKind::Oauth {
            self.clear_settings(asked, &registration.server_key).await?;
        }
        Ok(())
    }

    /// Forgets the client that the owner has named.
    pub(super) async fn clear_settings(&self, asked: &Asked, key: &str) -> Result<(), Error> {
        let Person { tenant, employee, .. } = asked.person.clone();
        let gone = self.parts.vault.delete(OwnSettings::place(tenant, employee, key)).await;
        gone.map(drop).map_err(keep::vault_failed)
    }

    /// Seals a credential, if one is given.
    pub(super) async fn give(&self, given: Option<(Whose, Given)>) -> Result<Before, Error> {
        let Some((whose, given)) = given else { return Ok(Before::Untouched) };
        let vault = &self.parts.vault;
        let before = vault.open_whole(&whose).await.map_err(keep::vault_failed)?;
        vault.put_for(whose, given).await.map_err(keep::vault_failed)?;
        Ok(before.map_or(Before::Nothing, Before::There))
    }

    /// Asks the server, and keeps it if it answers. One for which a credential is still to come is
    /// kept as it is: a description that somebody has handed on has none.
    async fn settle(
        &self,
        asked: &Asked,
        registration: Registration,
        most: u32,
        given: &Before,
    ) -> Result<(Registration, Option<Archive>), Error> {
        if registration.auth == AuthKind::Oauth {
            // Granted in a browser, once it is kept.
            return Ok((self.put(registration, most).await?, None));
        }
        if registration.auth != AuthKind::None
            && matches!(given, Before::Untouched)
            && !self.has_credential(&asked.person, &registration).await?
        {
            return Ok((self.put(registration, most).await?, None));
        }
        let archive = self.parts.reach.ask(asked.caller.clone(), registration.clone()).await?;
        if let Some(why) = unlisted(&archive) {
            return Err(not_listed(why, "so it was not registered"));
        }
        Ok((self.put(registration, most).await?, Some(archive)))
    }

    /// Undoes what `give` did, unless somebody has registered the server meanwhile: then it is his
    /// credential, too.
    pub(super) async fn take_back(
        &self,
        place: &Place,
        whose: Option<Whose>,
        seen: u64,
        before: Before,
    ) {
        let vault = &self.parts.vault;
        let Some(whose) = whose else { return };
        let now = self.own(place).await.map(|kept| kept.map_or(0, |it| it.registration.revision));
        if now.is_ok_and(|now| now > seen) {
            return;
        }
        let outcome = match before {
            Before::Untouched => return,
            Before::Nothing => vault.delete(whose).await.map(drop),
            Before::There(given) => vault.put_for(whose, given).await.map(drop),
        };
        if let Err(fault) = outcome {
            tracing::warn!(
                tenant.id = place.0.as_str(),
                server.key = &*place.2,
                error = %fault,
                "A credential was given for a server that is not registered, and cannot be taken back"
            );
        }
    }
}

/// Why a server counts as not listed: without its tools it is nothing.
pub(super) fn unlisted(archive: &Archive) -> Option<&str> {
    let failure = archive.failure.as_ref()?;
    let has_tools = archive.families[Family::Tools as usize].is_some(); // one for each family
    (!has_tools).then_some(&*failure.message)
}

pub(super) fn not_listed(why: &str, so: &str) -> Error {
    let message = format!("the server cannot be listed, {so}: {why}");
    Error::new(Code::ExternalServiceError, message).with_kind("not_listed")
}

/// A credential as the vault takes it.
pub(super) fn to_credential(secrets: Secrets) -> Result<Credential, Error> {
    Ok(match secrets {
        Secrets::Bearer(token) => Credential::Bearer(token),
        Secrets::Basic { user, password } => Credential::Basic { user, password },
        Secrets::Headers(headers) => {
            let own =
                |(name, value): (http::HeaderName, SecretString)| (name.as_str().to_owned(), value);
            Credential::Headers(headers.into_iter().map(own).collect())
        }
        Secrets::Oauth { .. } => {
            let message = "an OAuth token is granted, not set: POST /v1/oauth/connect/{serverKey} says \
                           where; the server's owner names a client where he registers it";
            return Err(Error::new(Code::InvalidArgs, message).with_pointer("/auth/type"));
        }
    })
}

/// All that is wrong with what was posted.
pub(super) fn faulty(faults: Vec<InputFault>) -> Error {
    let told = |fault: &InputFault| match &fault.advice {
        Some(advice) => serde_json::json!({
            "pointer": fault.pointer, "message": fault.message, "advice": advice
        }),
        None => serde_json::json!({ "pointer": fault.pointer, "message": fault.message }),
    };
    let all: serde_json::Value = faults.iter().map(told).collect();
    let Some(first) = faults.first() else {
        return Error::new(Code::InvalidArgs, "what was posted cannot be read");
    };
    let advice = first.advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
    let more = match faults.len() - 1 {
        0 => String::new(),
        1 => " (and one more fault)".to_owned(),
        more => format!(" (and {more} more faults)"),
    };
    Error::new(Code::InvalidArgs, format!("{}{advice}{more}", first.message))
        .with_pointer(first.pointer.as_str())
        .with_faults(all.to_string())
}
