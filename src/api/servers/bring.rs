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
    credential::Credential,
    error::{Code, Error},
    mcp::Family,
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
    There(Credential),
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
        let credential = secrets.map(to_credential).transpose()?;
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
        let given = self.give(asked, &key, credential).await?;
        let (registration, listed) = match self.settle(asked, registration, most, &given).await {
            Ok(settled) => settled,
            Err(error) => {
                self.take_back(asked, &place, seen, given).await;
                return Err(error);
            }
        };
        let kept = match &listed {
            Some(listed) => self.set_archive(&place, listed.clone()).await.map(drop),
            None => Ok(()),
        };
        self.changed(&asked.person);
        kept?;
        if registration.auth == AuthKind::None {
            let gone = self.parts.vault.delete(asked.person.whose(&key)).await;
            gone.map_err(keep::vault_failed)?;
        }
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

    /// Seals a credential, if one is given.
    pub(super) async fn give(
        &self,
        asked: &Asked,
        key: &Arc<str>,
        credential: Option<Credential>,
    ) -> Result<Before, Error> {
        let Some(credential) = credential else { return Ok(Before::Untouched) };
        let whose = asked.person.whose(key);
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
    ) -> Result<(Registration, Option<Archive>), Error> {
        if registration.auth != AuthKind::None && matches!(given, Before::Untouched) {
            let whose = asked.person.whose(&registration.server_key);
            if self.parts.vault.held(&whose).await.map_err(keep::vault_failed)?.is_none() {
                return Ok((self.put(registration, most).await?, None));
            }
        }
        let archive = self.parts.reach.ask(asked.caller.clone(), registration.clone()).await?;
        if let Some(why) = unlisted(&archive) {
            return Err(not_listed(why, "so it was not registered"));
        }
        Ok((self.put(registration, most).await?, Some(archive)))
    }

    /// Undoes what `give` did, unless somebody has registered the server meanwhile: then it is his
    /// credential, too.
    pub(super) async fn take_back(&self, asked: &Asked, place: &Place, seen: u64, before: Before) {
        let vault = &self.parts.vault;
        let whose = asked.person.whose(&place.2);
        if matches!(before, Before::Untouched) {
            return;
        }
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
            let message = "a server that is opened by OAuth cannot be registered in this version";
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
