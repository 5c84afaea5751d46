//! What is done to a server that is there: asked again, given a credential, shared, deleted.

use std::sync::Arc;

use http::Response;
use serde_json::json;

use super::{
    Asked, Servers,
    bring::{faulty, not_listed, to_credential},
    keep,
    told::written,
    unknown,
};
use crate::{
    api::input::{self, Input, shown},
    body::Body,
    credential::Given,
    error::{Code, Error},
    model::server_key::normalised,
    registry::server::{Archive, AuthKind, Kept, Registration, read_secrets},
    stack::stage::{UpstreamAuth, is_taken, of_operator},
};

/// The longest name of a team, in characters.
const MAX_TEAM: usize = 128;

impl Servers {
    /// Asks the server again what it has.
    pub(super) async fn refresh(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let Kept { registration, archive } = self.look_own(asked).await?;
        self.may_bring(&asked.person, &registration.url)?;
        self.may_open(&asked.person, &registration.url, registration.auth)?;
        let place = asked.place(&asked.id);
        let _claim = self.busy.claim(place.clone())?;
        let (news, refused) = self.look_at(asked, registration.clone()).await?;
        let why = news.unlisted().map(str::to_owned);
        let archive = archive.unwrap_or_default().renewed(news);
        if !self.set_archive(&place, archive.clone()).await? {
            return Err(unknown(&asked.id));
        }
        self.changed(&asked.person);
        if let Some(refused) = refused {
            return Err(refused);
        }
        if let Some(why) = why {
            return Err(not_listed(&why, "so what it listed before stays"));
        }
        self.tell_whole(asked, &Kept { registration, archive: Some(archive) }).await
    }

    /// What the server has; where none of its addresses may be dialled, that is a failure to list
    /// it as well.
    async fn look_at(
        &self,
        asked: &Asked,
        registration: Registration,
    ) -> Result<(Archive, Option<Error>), Error> {
        match self.parts.reach.ask(asked.caller.clone(), registration).await {
            Ok(archive) => Ok((archive, None)),
            Err(error) if error.code() == Code::UnsafeActionBlocked => {
                let now_ms = self.parts.clock.now_ms();
                Ok((Archive::failed(error.message().into(), now_ms), Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// The credential first: what is left, where the rest fails, can be seen and deleted again.
    pub(super) async fn delete(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let kept = self.look_own(asked).await?;
        asked.is_about(kept.registration.revision)?;
        let place = asked.place(&asked.id);
        let _claim = self.busy.claim(place.clone())?;
        let gone = self.parts.vault.delete(asked.person.whose(&asked.id)).await;
        gone.map_err(keep::vault_failed)?;
        self.clear_settings(asked, &asked.id).await?;
        let (tenant, owner, key) = place;
        let was = self.ask(|store, then| store.delete(tenant, owner, key, then)).await?;
        self.changed(&asked.person);
        if !was {
            return Err(unknown(&asked.id));
        }
        written(&json!({ "serverKey": &*asked.id, "deleted": true }))
    }

    // === Credentials ===

    /// Sets the employee's own credential, whoever registered the server.
    pub(super) async fn set_credential(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        input::is_json(&asked.headers)?;
        // First whether there is such a server for him, then what he posts.
        let (operators, owner) = (self.of_operator(asked, takes_own), &asked.person.employee);
        // What somebody else shares comes behind an operator's upstream, here as where it is called.
        let found = self.find(asked).await?;
        let found = found.filter(|it| operators.is_none() || it.registration.owner == *owner);
        if found.is_none() && operators.is_none() {
            return Err(unknown(&asked.id));
        }
        let secrets = read_secrets(asked.body.clone()).map_err(faulty)?;
        let Some(secrets) = secrets else {
            let message = "`none` is no credential: DELETE takes the one away that is set";
            return Err(Error::new(Code::InvalidArgs, message).with_pointer("/type"));
        };
        let kind = secrets.kind();
        let credential = to_credential(secrets).map_err(|error| error.with_pointer("/type"))?;
        let (key, address, own) = match found {
            Some(kept) => {
                let registration = &kept.registration;
                let (key, url) = (&registration.server_key, &registration.url);
                if is_taken(&self.parts.worlds.look(), key, url) {
                    return Err(keep::collision());
                }
                let own = registration.owner == *owner;
                if !own {
                    fits(registration, kind)?;
                }
                self.may_open(&asked.person, &registration.url, kind)?;
                let address = Some(normalised(&registration.url));
                (registration.server_key.clone(), address, own.then_some(kept))
            }
            None => {
                let (key, address) = operators.ok_or_else(|| unknown(&asked.id))?;
                (key, address, None)
            }
        };
        asked.note("set_credential", Some(&key));
        let place = asked.place(&key);
        let _claim = self.busy.claim(place.clone())?;
        let whose = asked.person.whose(&key);
        let given = Given { credential, address };
        let before = self.give(Some((whose.clone(), given))).await?;
        if let Some(Kept { registration, archive }) = own {
            let seen = registration.revision;
            let registration = match self.opened_by(registration, kind).await {
                Ok(registration) => registration,
                Err(error) => {
                    self.take_back(&place, Some(whose), seen, before).await;
                    return Err(error);
                }
            };
            if archive.is_none_or(|archive| archive.listed_ms == 0) {
                self.list_at_last(asked, registration).await?;
            }
        }
        self.changed(&asked.person);
        written(&json!({ "serverKey": &*key, "auth": kind.as_str(), "hasCredential": true }))
    }

    /// The owner says by what his server is opened.
    async fn opened_by(
        &self,
        registration: Registration,
        kind: AuthKind,
    ) -> Result<Registration, Error> {
        if registration.auth == kind {
            return Ok(registration);
        }
        let updated_ms = self.parts.clock.now_ms();
        // It is there, so no bound is about it.
        self.put(Registration { auth: kind, updated_ms, ..registration }, u32::MAX).await
    }

    /// Asks one that could not be asked before, for want of a credential. How that went is told
    /// where the server is shown: the credential is kept in any case.
    async fn list_at_last(&self, asked: &Asked, registration: Registration) -> Result<(), Error> {
        let place = asked.place(&registration.server_key);
        if self.may_bring(&asked.person, &registration.url).is_err() {
            return Ok(());
        }
        let (archive, _) = self.look_at(asked, registration).await?;
        self.set_archive(&place, archive).await.map(drop)
    }

    /// Also for a server that the employee does not see any more: what he has given is his.
    pub(super) async fn delete_credential(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let seen = self.find(asked).await?.map(|kept| kept.registration.server_key);
        let seen = seen.or_else(|| self.of_operator(asked, takes_own).map(|(key, _)| key));
        let is_seen = seen.is_some();
        let key = seen.unwrap_or_else(|| asked.id.clone());
        let _claim = self.busy.claim(asked.place(&key))?;
        let was = self.parts.vault.delete(asked.person.whose(&key)).await;
        if !was.map_err(keep::vault_failed)? && !is_seen {
            return Err(unknown(&asked.id));
        }
        asked.note("delete_credential", Some(&key));
        self.changed(&asked.person);
        written(&json!({ "serverKey": &*key, "hasCredential": false }))
    }

    /// Key and address of an operator's upstream that is opened so and of which this employee sees
    /// anything; it is asked for by its key or its name.
    pub(super) fn of_operator(
        &self,
        asked: &Asked,
        is_opened: impl Fn(&UpstreamAuth) -> bool,
    ) -> Option<(Arc<str>, Option<String>)> {
        let world = self.parts.worlds.current();
        let named = world.upstreams.iter().find(|upstream| {
            *upstream.server_key == *asked.id || *upstream.name.as_str() == *asked.id
        })?;
        let view = world.view_by_now(&asked.caller)?;
        let seen = of_operator(&world, &view, &named.server_key, None)?;
        let takes = is_opened(&named.auth) && seen == named.name;
        takes.then(|| (named.server_key.clone(), named.address.as_deref().map(str::to_owned)))
    }

    // === Sharing ===

    /// Shows server and catalog to a team of the owner's.
    pub(super) async fn share(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let input = Input::read(&asked.headers, asked.body.clone(), &["team"])?;
        let Some(team) = input.text("team", MAX_TEAM)? else {
            let message = "`team` is missing: the team that is to see the server";
            return Err(Error::new(Code::InvalidArgs, message).with_pointer("/team"));
        };
        let team: Arc<str> = team.into();
        let kept = self.look_own(asked).await?;
        self.may_share(&asked.person)?;
        if !asked.person.teams.iter().any(|own| **own == *team) {
            let message = format!("`{}` is no team of yours in the directory", shown(&team));
            return Err(Error::new(Code::PermissionDenied, message)
                .with_pointer("/team")
                .with_reason("not_member"));
        }
        // What is no team of his may be anything, and stands in no record.
        asked.note_team(&team);
        self.set_team(asked, &kept, Some(team)).await
    }

    /// Shows it to nobody else any more. Their credentials stay theirs.
    pub(super) async fn unshare(&self, asked: &Asked) -> Result<Response<Body>, Error> {
        let kept = self.look_own(asked).await?;
        self.set_team(asked, &kept, None).await
    }

    async fn set_team(
        &self,
        asked: &Asked,
        kept: &Kept,
        team: Option<Arc<str>>,
    ) -> Result<Response<Body>, Error> {
        asked.is_about(kept.registration.revision)?;
        let place = asked.place(&asked.id);
        let _claim = self.busy.claim(place.clone())?;
        let (tenant, owner, key) = place;
        let now_ms = self.parts.clock.now_ms();
        let shared =
            self.ask(|store, then| store.share(tenant, owner, key, team, now_ms, then)).await?;
        self.changed(&asked.person);
        let registration = shared.ok_or_else(|| unknown(&asked.id))?;
        let kept = Kept { registration, archive: kept.archive.clone() };
        self.tell(asked, &kept, http::StatusCode::OK).await
    }
}

/// Each employee sets a credential of his own.
fn takes_own(auth: &UpstreamAuth) -> bool {
    matches!(auth, UpstreamAuth::Employee)
}

/// Whether a member's credential is what opens the server.
fn fits(registration: &Registration, kind: AuthKind) -> Result<(), Error> {
    let message = match registration.auth {
        wanted if wanted == kind => return Ok(()),
        AuthKind::None => "the server is open: it takes no credential".to_owned(),
        wanted => format!("the server is opened by `{}`, as its owner says", wanted.as_str()),
    };
    Err(Error::new(Code::InvalidArgs, message).with_pointer("/type"))
}
