//! Registering a server: its credential is sealed, it is asked what it has, and only then is it
//! kept. Of one that cannot be listed nothing stays that was not there before.
//!
//! The registration is what counts: without one, a credential that a killed process left behind
//! opens nothing, is shown to nobody, and goes with the next attempt or with
//! `DELETE /v1/servers/{serverKey}/credential`.

use std::sync::Arc;

use http::{Response, StatusCode, header};
use secrecy::SecretString;

use super::{
    Asked, Servers,
    keep::{self, Place},
};
use crate::{
    api::{Person, input},
    body::Body,
    credential::{
        Credential, CredentialKind, Whose,
        oauth::{FirstIssuer, OwnSettings, Registered},
    },
    error::{Code, Error},
    registry::server::{
        Archive, AuthKind, InputFault, Kept, NewServer, OptionLimits, Registrant, Registration,
        Secrets, read_server,
    },
    registry::store::HandedOn,
    stack::stage::is_taken,
};

/// How often what others have overtaken is done again.
const AGAIN: usize = 3;

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
    There(Credential),
}

impl Servers {
    pub(super) async fn register(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        input::is_json(&asked.headers)?;
        self.may_bring_any(&asked.person)?;
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

    /// Registers what was read, in the place of what its owner has under the key. What is asked
    /// for is the whole, so where another process was faster it is asked for again, unless the
    /// client says which edition it means to replace: then its last word stands, and not the
    /// settings of the one with the credential of the other.
    pub(super) async fn bring(&self, asked: &Asked, new: NewServer) -> Result<Brought, Error> {
        for _ in 0..AGAIN {
            match self.bring_once(asked, new.clone()).await {
                Err(error)
                    if keep::is_overtaken(&error)
                        && !asked.headers.contains_key(header::IF_MATCH) => {}
                outcome => return outcome,
            }
        }
        self.bring_once(asked, new).await
    }

    async fn bring_once(&self, asked: &Asked, new: NewServer) -> Result<Brought, Error> {
        let NewServer { mut registration, secrets, history } = new;
        let key = registration.server_key.clone();
        asked.note("register", Some(&key));
        let most = self.may_bring(&asked.person, &registration.url)?;
        if is_taken(&self.parts.worlds.look(), &key, &registration.url) {
            return Err(keep::collision().with_pointer("/url"));
        }
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
        let settled = self.settle(asked, registration, most, &given, history).await;
        let (registration, listed) = match settled {
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
    ) -> Result<Option<(Whose, Credential)>, Error> {
        if registration.auth == AuthKind::Oauth
            && self.parts.reach.connect(&asked.caller, registration).is_none()
        {
            let message = "nobody can connect to a server that is opened by OAuth: the gateway has \
                           no `public_url`, which an operator has to name in its configuration";
            return Err(Error::new(Code::InvalidArgs, message).with_pointer("/auth/type"));
        }
        let key = &registration.server_key;
        Ok(match secrets {
            None => None,
            Some(Secrets::Oauth { client_id, client_secret, scopes }) => {
                let Person { tenant, employee, .. } = asked.person.clone();
                let settings = OwnSettings::new(client_id, client_secret, &scopes);
                let sealed = settings.to_credential().ok_or_else(|| {
                    Error::new(Code::Internal, "what was said of OAuth cannot be written")
                })?;
                Some((OwnSettings::place(tenant, employee, key), sealed))
            }
            Some(secrets) => Some((asked.person.whose(key), to_credential(secrets)?)),
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
            return self.clear_settings(asked, &registration.server_key).await;
        }
        // What he says now is of whichever authorization server is named next.
        let first = FirstIssuer::place(&asked.person.whose(&registration.server_key));
        vault.delete(first).await.map(drop).map_err(keep::vault_failed)
    }

    /// Forgets the client that the owner has named, or that the gateway has become for his server.
    pub(super) async fn clear_settings(&self, asked: &Asked, key: &Arc<str>) -> Result<(), Error> {
        let Person { tenant, employee, .. } = asked.person.clone();
        let server = asked.person.whose(key);
        for place in [
            OwnSettings::place(tenant, employee, key),
            Registered::place(&server),
            FirstIssuer::place(&server),
        ] {
            self.parts.vault.delete(place).await.map_err(keep::vault_failed)?;
        }
        Ok(())
    }

    /// Seals a credential, if one is given.
    pub(super) async fn give(&self, given: Option<(Whose, Credential)>) -> Result<Before, Error> {
        let Some((whose, credential)) = given else { return Ok(Before::Untouched) };
        let vault = &self.parts.vault;
        let before = vault.open(&whose).await.map_err(keep::vault_failed)?;
        vault.put(whose, credential).await.map_err(keep::vault_failed)?;
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
        history: Vec<HandedOn>,
    ) -> Result<(Registration, Option<Archive>), Error> {
        if registration.auth == AuthKind::Oauth {
            // Granted in a browser, once it is kept.
            self.parts.reach.admit(&registration).await?;
            self.take_over(&registration, history).await?;
            return Ok((self.put(registration, most).await?, None));
        }
        if registration.auth != AuthKind::None && matches!(given, Before::Untouched) {
            let whose = asked.person.whose(&registration.server_key);
            if self.parts.vault.held(&whose).await.map_err(keep::vault_failed)?.is_none() {
                self.parts.reach.admit(&registration).await?;
                self.take_over(&registration, history).await?;
                return Ok((self.put(registration, most).await?, None));
            }
        }
        let archive = self.parts.reach.ask(asked.caller.clone(), registration.clone()).await?;
        if let Some(why) = archive.unlisted() {
            return Err(not_listed(why, "so it was not registered"));
        }
        // Before anybody can have its tools kept as seen first.
        self.take_over(&registration, history).await?;
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
            Before::There(credential) => vault.put(whose, credential).await.map(drop),
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
