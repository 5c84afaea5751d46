//! What the admin API reads of the running gateway, and does to it.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    credentials, inventory,
    kept::Kept,
    keyring::InUse,
    news::{Bell, Freshness},
    personal::PersonalServers,
    pins::Pins,
    probes,
    world::Governed,
};
use crate::{
    admin::{
        Probes,
        api::{Gateway, Role, Token, Wanted},
    },
    api::{Reach, told_whole},
    approval::{ApprovalId, Approvals, DecideFault, store as approval},
    config::{AdminRole, AdminToken},
    credential::{Owner, Surveyed, Vault, VaultFault, Whose, store::Pick},
    edge::{Phase, Shutdown, Stats},
    model::caller::{EmployeeId, TenantId},
    policy::Question,
    registry::{PinFault, PinPair, PinWish, store::Scope},
    telemetry::logs,
};

/// How long whoever asks for a reload waits for it.
const RELOAD: Duration = Duration::from_secs(60);

pub(super) struct Operations {
    /// Made once: it changes with the process alone.
    pub config: Value,
    pub governed: Arc<Governed>,
    pub freshness: Arc<Freshness>,
    /// What was enforced is kept beside it.
    pub audit_file: PathBuf,
    /// Once clients are served.
    pub stats: Arc<OnceLock<Arc<Stats>>>,
    pub probes: Arc<probes::State>,
    pub shutdown: Shutdown,
    pub bell: Arc<Bell>,
    /// Of a drain that is to begin.
    pub drain: Arc<Notify>,
    pub pins: Arc<Pins>,
    pub vault: Arc<Vault>,
    pub approvals: Arc<Approvals>,
    /// Employees' own servers.
    pub own: PersonalServers,
    /// `None`: the configuration names none.
    pub keyring: Option<Arc<InUse>>,
}

/// Tokens as the API has them.
pub(super) fn tokens(tokens: &[AdminToken]) -> Vec<Token> {
    let role = |role| match role {
        AdminRole::Viewer => Role::Viewer,
        AdminRole::Operator => Role::Operator,
        AdminRole::Approver => Role::Approver,
        AdminRole::Security => Role::Security,
        AdminRole::All => Role::All,
    };
    let token = |token: &AdminToken| Token {
        name: token.name.clone(),
        digest: token.digest,
        role: role(token.role),
    };
    tokens.iter().map(token).collect()
}

impl Gateway for Operations {
    fn config(&self) -> Value {
        self.config.clone()
    }

    fn policy(&self) -> Value {
        let mut state = self.governed.told();
        let kept = Kept::beside(&self.audit_file).revisions().unwrap_or_default();
        let kept: Vec<Value> = kept
            .iter()
            .map(|(ms, revision)| json!({ "revision": revision, "sinceMs": ms }))
            .collect();
        state["kept"] = kept.into();
        state["files"] = self.freshness.files().into();
        match self.freshness.stale() {
            None => state["state"] = "current".into(),
            Some((since, _)) => {
                state["state"] = "stale".into();
                state["since"] = since.into();
                state["faults"] = self.freshness.faults();
            }
        }
        state
    }

    fn explain(&self, question: &Question) -> Result<Value, String> {
        let known = self.governed.known();
        self.governed.policies().explained(known, question)
    }

    fn revision(&self, revision: &str) -> Result<Option<Vec<(String, String)>>, io::Error> {
        let files = Kept::beside(&self.audit_file).revision(revision)?;
        let file = |file: crate::policy::PolicyFile| (file.path, file.source.text.clone());
        Ok(files.map(|files| files.into_iter().map(file).collect()))
    }

    fn connections(&self) -> Value {
        let clients = self.stats.get().map(|stats| {
            json!({
                "open": stats.open(),
                "accepted": stats.accepted(),
                "refused": stats.refused(),
            })
        });
        json!({ "clients": clients, "upstreams": self.probes.upstreams() })
    }

    fn servers(&self) -> Vec<Value> {
        inventory::servers(self)
    }

    fn tools(&self) -> Vec<Value> {
        inventory::tools(self)
    }

    fn tool(&self, name: &str) -> Vec<Value> {
        inventory::named(name, self)
    }

    fn pins(&self) -> Value {
        self.pins.all()
    }

    fn pins_of(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
    ) -> BoxFuture<'static, Result<Value, PinFault>> {
        let pins = self.pins.clone();
        async move { pins.of_own(tenant, owner).await }.boxed()
    }

    fn pin_history(
        &self,
        scope: Scope,
        tool: Arc<str>,
    ) -> BoxFuture<'static, Result<Value, PinFault>> {
        let pins = self.pins.clone();
        async move { pins.history(scope, tool).await }.boxed()
    }

    fn pin_diff(&self, pair: PinPair) -> BoxFuture<'static, Result<Value, PinFault>> {
        let pins = self.pins.clone();
        async move { pins.diff(pair).await }.boxed()
    }

    fn approve_pin(&self, wish: PinWish, by: &str) -> BoxFuture<'static, Result<Value, PinFault>> {
        let (pins, by) = (self.pins.clone(), Box::<str>::from(by));
        async move { pins.approve(wish, by).await }.boxed()
    }

    fn secrets(&self) -> BoxFuture<'static, Result<Value, VaultFault>> {
        credentials::secrets(self.vault.clone()).boxed()
    }

    fn put_secret(
        &self,
        name: &str,
        value: SecretString,
    ) -> BoxFuture<'static, Result<(), VaultFault>> {
        credentials::put_secret(self.vault.clone(), Whose::secret(name), value).boxed()
    }

    fn delete_secret(&self, name: &str) -> BoxFuture<'static, Result<bool, VaultFault>> {
        let (vault, whose) = (self.vault.clone(), Whose::secret(name));
        async move { vault.delete(whose).await }.boxed()
    }

    fn credentials(&self, pick: Pick) -> BoxFuture<'static, Result<Vec<Surveyed>, VaultFault>> {
        let vault = self.vault.clone();
        async move { vault.survey(pick).await }.boxed()
    }

    fn revoke(&self, whose: Whose) -> BoxFuture<'static, Result<bool, VaultFault>> {
        let (vault, own) = (self.vault.clone(), self.own.clone());
        async move {
            let gone = vault.delete(whose.clone()).await;
            if let Owner::Employee(employee) = &whose.owner {
                own.changed(&whose.tenant, employee);
            }
            gone
        }
        .boxed()
    }

    fn revoke_all(
        &self,
        tenant: TenantId,
        employee: EmployeeId,
    ) -> BoxFuture<'static, Result<Vec<Arc<str>>, VaultFault>> {
        let (vault, own) = (self.vault.clone(), self.own.clone());
        async move {
            let owner = Owner::Employee(employee.clone());
            let gone = vault.delete_all(tenant.clone(), owner).await;
            own.changed(&tenant, &employee);
            gone
        }
        .boxed()
    }

    fn revocation_lag(&self) -> Duration {
        self.vault.age()
    }

    fn approvals(
        &self,
        pick: approval::Pick,
        most: usize,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<Value, approval::StoreFault>> {
        let approvals = self.approvals.clone();
        async move {
            let now_ms = approvals.now_ms();
            let found = approvals.survey(pick, most, |one| wanted(one, now_ms)).await?;
            let told: Vec<Value> = found.some.iter().map(|one| told_whole(one, now_ms)).collect();
            Ok(json!({ "approvals": told, "next": found.next.map(|id| id.to_string()) }))
        }
        .boxed()
    }

    fn approval(
        &self,
        id: ApprovalId,
    ) -> BoxFuture<'static, Result<Option<Value>, approval::StoreFault>> {
        let approvals = self.approvals.clone();
        async move {
            let found = approvals.find(id).await?;
            Ok(found.map(|one| told_whole(&one, approvals.now_ms())))
        }
        .boxed()
    }

    fn refuse_approval(
        &self,
        id: ApprovalId,
        by: &str,
        comment: Option<String>,
    ) -> BoxFuture<'static, Result<Value, DecideFault>> {
        let (approvals, by) = (self.approvals.clone(), by.to_owned());
        async move {
            let refused = approvals.refuse(id, &by, comment.as_deref()).await?;
            Ok(told_whole(&refused, approvals.now_ms()))
        }
        .boxed()
    }

    fn keys(&self) -> BoxFuture<'static, Result<Value, String>> {
        match self.keyring.clone() {
            Some(used) => async move { used.status().await }.boxed(),
            None => async { Ok(json!({ "keyring": null, "ready": false })) }.boxed(),
        }
    }

    fn rewrap(&self) -> Result<Value, &'static str> {
        match &self.keyring {
            Some(used) => used.rewrap(),
            None => Err("the configuration names no keyring: add `keyring: { file: … }`"),
        }
    }

    fn reload(&self) -> BoxFuture<'static, Result<Value, &'static str>> {
        let Some(answer) = self.bell.ring() else {
            return async { Err("this gateway has no files that it could load anew") }.boxed();
        };
        async move {
            match tokio::time::timeout(RELOAD, answer).await {
                Ok(Ok(report)) => Ok(report),
                Ok(Err(_)) => Err("the gateway stops"),
                Err(_) => Err("it has been loading for a minute, and goes on"),
            }
        }
        .boxed()
    }

    fn drain(&self) -> bool {
        let begins = self.shutdown.phase() == Phase::Running;
        self.drain.notify_one();
        begins
    }

    fn log_filter(&self) -> String {
        logs::filter().unwrap_or_default()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        logs::set_filter(filter).map_err(|why| format!("`filter` {why}"))
    }
}
