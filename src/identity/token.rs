//! `Authorization: Bearer`: who a token of a configured issuer speaks for.
//!
//! A token is believed by the issuer's published keys, an allow list of algorithms, an audience
//! that is the gateway's, and its times. What whoever it speaks for may do is not decided here,
//! and nothing of a token is ever passed on. Fetching the keys is somebody else's business.

mod claims;
mod keys;

use std::{sync::Arc, time::Duration};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use moka::sync::Cache;
use sha2::{Digest, Sha256};

pub use claims::{ClaimPath, Claims};
pub use keys::{KeySet, KeySource};

use super::api_key::{CallerEntry, Identity};
use crate::model::{
    call_source::CallSources,
    caller::{Auth, CallerId, EmployeeId, Granted, Principal, Role, Roles, TenantId},
};

/// The longest token that is looked at, in bytes.
pub const MAX_TOKEN: usize = 16 * 1024;

/// Verified tokens that are remembered, so that a signature is not checked at every call.
const REMEMBERED: u64 = 10_000;
/// How long one is remembered at most: what an issuer withdraws is gone by then.
const REMEMBER: Duration = Duration::from_mins(5);

/// An issuer as configured.
#[derive(Debug)]
pub struct Issuer {
    /// What records call it, and whose name a caller has that sends nothing but its token.
    pub name: CallerId,
    /// The `iss` of its tokens.
    pub issuer: String,
    /// One of these must be in `aud`.
    pub audience: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    /// Where the employee stands.
    pub employee: ClaimPath,
    /// Where the tenant stands, or which it always is.
    pub tenant: TenantSource,
    /// Where the roles stand, if anywhere.
    pub roles: Option<ClaimPath>,
    /// How far clocks may differ, both ways.
    pub leeway: Duration,
    pub scopes: ScopeRules,
    /// What whoever brings nothing but its token may say of where calls under `/v1` come from.
    pub call_sources: CallSources,
    pub keys: KeySource,
}

/// Which tenant a token is of.
#[derive(Debug, Clone)]
pub enum TenantSource {
    Always(TenantId),
    Claim(ClaimPath),
}

/// Which scopes of a token calls need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScopeRules {
    /// Every request.
    pub base: Vec<Box<str>>,
    /// Calls of this risk, from `read_low` to `write_high`. Who has the scopes of a higher risk
    /// needs those of the lower ones not.
    pub by_risk: [Vec<Box<str>>; 4],
}

/// What a good token says.
#[derive(Debug)]
pub struct Verified {
    pub issuer: Arc<Issuer>,
    /// The caller of a request that brings nothing but this token.
    pub caller: Arc<CallerEntry>,
    pub principal: Principal,
    pub scopes: Vec<Box<str>>,
    /// What it says of roles.
    pub granted: Arc<Granted>,
    /// What calls of each risk still ask for.
    missing: Option<Arc<[Option<Box<str>>; 4]>>,
    expires_ms: u64,
    /// The keys that it was verified with: when they change it is verified again.
    generation: u64,
}

/// Why a token speaks for nobody. A client is told little; the record knows all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("the token is no signed JWT")]
    Malformed,
    #[error("the token is of no configured issuer")]
    UnknownIssuer,
    #[error("the token is signed by an algorithm that is not allowed")]
    Algorithm,
    #[error("the token is signed by a key that the issuer does not publish")]
    UnknownKey,
    #[error("the issuer's keys are not known")]
    NoKeys,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token is for somebody else")]
    Audience,
    #[error("the token is not valid yet, or no longer")]
    Time,
    #[error("the token names no tenant")]
    NoTenant,
    #[error("the token names no good employee")]
    NoEmployee,
}

/// Every issuer, and the tokens verified lately.
#[derive(Debug)]
pub struct Issuers {
    issuers: Vec<Arc<Issuer>>,
    remembered: Cache<[u8; 32], Arc<Verified>>,
}

// === impl Issuers ===

impl Issuers {
    pub fn new(issuers: impl IntoIterator<Item = Issuer>) -> Self {
        Self {
            issuers: issuers.into_iter().map(Arc::new).collect(),
            remembered: Cache::builder().max_capacity(REMEMBERED).time_to_live(REMEMBER).build(),
        }
    }

    /// Without an issuer `Authorization` is not looked at.
    pub fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        self.issuers.iter()
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// `UnknownKey` and `NoKeys` come with the issuer: once its keys have been fetched anew the
    /// token may turn out good.
    pub fn verify(
        &self,
        token: &str,
        now_ms: u64,
    ) -> Result<Arc<Verified>, (TokenFault, Option<Arc<Issuer>>)> {
        if token.len() > MAX_TOKEN {
            return Err((TokenFault::Malformed, None));
        }
        // What is looked up is a digest, whose bytes nobody can choose one by one.
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.remembered.get(&digest)
            && known.generation == known.issuer.keys.generation()
            && known.issuer.keys.fresh(now_ms)
        {
            return match known.expires_ms > now_ms {
                true => Ok(known),
                false => Err((TokenFault::Time, None)),
            };
        }
        let issuer = self.issuer_of(token).map_err(|fault| (fault, None))?;
        let verified = issuer.verify(token, now_ms).map_err(|fault| {
            let worth = matches!(fault, TokenFault::UnknownKey | TokenFault::NoKeys);
            (fault, worth.then(|| issuer.clone()))
        })?;
        let verified = Arc::new(verified);
        self.remembered.insert(digest, verified.clone());
        Ok(verified)
    }

    /// Which issuer's keys are to be tried. What the token says of itself is not believed by
    /// that: another issuer's signature does not fit.
    fn issuer_of(&self, token: &str) -> Result<&Arc<Issuer>, TokenFault> {
        let claims = jsonwebtoken::dangerous::insecure_decode_claims::<Claims>(token)
            .map_err(|_| TokenFault::Malformed)?;
        let named = claims.text("iss").ok_or(TokenFault::UnknownIssuer)?;
        self.issuers.iter().find(|issuer| issuer.issuer == named).ok_or(TokenFault::UnknownIssuer)
    }
}

// === impl Issuer ===

impl Issuer {
    fn verify(self: &Arc<Self>, token: &str, now_ms: u64) -> Result<Verified, TokenFault> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenFault::Malformed)?;
        // `crit` names what must be understood, and nothing of it is.
        if header.crit.is_some() {
            return Err(TokenFault::Malformed);
        }
        if !self.algorithms.contains(&header.alg) {
            return Err(TokenFault::Algorithm);
        }
        let keys = self.keys.current(now_ms).ok_or(TokenFault::NoKeys)?;
        let key = keys.find(header.kid.as_deref(), header.alg).ok_or(TokenFault::UnknownKey)?;
        let claims = signed(token, key, header.alg)?;
        let expires_ms = self.check(&claims, now_ms)?;
        let tenant = self.tenant_of(&claims)?;
        let principal = self.principal(&claims)?;
        let caller = CallerEntry {
            id: self.name.clone(),
            tenant,
            keys: Vec::new(),
            identity: Identity::None,
            catalog_roles: Roles::default(),
            call_sources: self.call_sources,
        };
        let scopes = claims.scopes();
        Ok(Verified {
            issuer: self.clone(),
            caller: Arc::new(caller),
            granted: Arc::new(Granted { roles: principal.roles.clone(), claims: claims.to_json() }),
            principal,
            missing: self.scopes.missing_by_risk(&scopes),
            scopes,
            expires_ms,
            generation: keys.generation(),
        })
    }

    /// Audience and times; gives the moment from which on the token is good no more.
    fn check(&self, claims: &Claims, now_ms: u64) -> Result<u64, TokenFault> {
        if claims.text("iss") != Some(&self.issuer) {
            return Err(TokenFault::UnknownIssuer);
        }
        if !claims.audience().any(|aud| self.audience.iter().any(|own| own == aud)) {
            return Err(TokenFault::Audience);
        }
        let leeway_ms = u64::try_from(self.leeway.as_millis()).unwrap_or(u64::MAX);
        let expires_ms = claims.time_ms("exp").ok_or(TokenFault::Time)?.ok_or(TokenFault::Time)?;
        let expires_ms = expires_ms.saturating_add(leeway_ms);
        // A time that is there must be one, and `nbf` need not be there.
        let begins_ms = claims.time_ms("nbf").ok_or(TokenFault::Time)?.unwrap_or(0);
        if expires_ms <= now_ms || begins_ms > now_ms.saturating_add(leeway_ms) {
            return Err(TokenFault::Time);
        }
        Ok(expires_ms)
    }

    fn tenant_of(&self, claims: &Claims) -> Result<TenantId, TokenFault> {
        match &self.tenant {
            TenantSource::Always(tenant) => Ok(tenant.clone()),
            TenantSource::Claim(path) => claims
                .at(path)
                .and_then(serde_json::Value::as_str)
                .filter(|name| crate::yaml::check_name(name).is_ok())
                .map(TenantId::new)
                .ok_or(TokenFault::NoTenant),
        }
    }

    /// The employee; a token that names none speaks for its program alone.
    fn principal(&self, claims: &Claims) -> Result<Principal, TokenFault> {
        let roles = self.roles.as_ref().map_or_else(Vec::new, |path| claims.words_at(path));
        let roles = Roles::new(roles.iter().map(|role| Role::new(&**role)));
        match claims.at(&self.employee) {
            None => Ok(Principal { employee: None, roles: Roles::default(), auth: Auth::Key }),
            Some(value) => {
                let employee = value.as_str().and_then(EmployeeId::parse);
                let employee = employee.ok_or(TokenFault::NoEmployee)?;
                Ok(Principal { employee: Some(employee), roles, auth: Auth::Token })
            }
        }
    }
}

/// The claims of a token whose signature is right. Times and audience are looked at by the
/// caller, who has the clock.
fn signed(token: &str, key: &DecodingKey, algorithm: Algorithm) -> Result<Claims, TokenFault> {
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    jsonwebtoken::decode::<Claims>(token, key, &validation)
        .map(|data| data.claims)
        .map_err(|_| TokenFault::Signature)
}

// === impl Verified ===

impl Verified {
    /// The scopes that every request needs, where the token lacks one.
    pub fn missing_base(&self) -> Option<Vec<&str>> {
        self.issuer.scopes.missing(&self.scopes, None)
    }

    /// What calls of each risk still ask for; `None`: nothing is missing.
    pub fn missing_scopes(&self) -> Option<Arc<[Option<Box<str>>; 4]>> {
        self.missing.clone()
    }
}

// === impl ScopeRules ===

impl ScopeRules {
    /// Whether nothing is asked of a token.
    pub fn is_empty(&self) -> bool {
        self.base.is_empty() && self.by_risk.iter().all(Vec::is_empty)
    }

    /// Every scope that some request needs, each once.
    pub fn all(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for scope in self.base.iter().chain(self.by_risk.iter().flatten()) {
            if !all.contains(&&**scope) {
                all.push(scope);
            }
        }
        all
    }

    fn missing_by_risk(&self, held: &[Box<str>]) -> Option<Arc<[Option<Box<str>>; 4]>> {
        let missing = [0, 1, 2, 3].map(|risk| {
            self.missing(held, Some(risk)).map(|scopes| scopes.join(" ").into_boxed_str())
        });
        missing.iter().any(Option::is_some).then(|| Arc::new(missing))
    }

    /// All scopes that a call of this risk needs, where `held` does not suffice; `None` where
    /// it does. `risk` counts from `read_low`, 0; without one only the base is asked for.
    pub fn missing(&self, held: &[Box<str>], risk: Option<usize>) -> Option<Vec<&str>> {
        let has = |scopes: &[Box<str>]| scopes.iter().all(|scope| held.contains(scope));
        let own = risk.and_then(|risk| self.by_risk.get(risk));
        let enough = match (risk, own) {
            (Some(risk), Some(own)) if !own.is_empty() => {
                let broader = self.by_risk.iter().skip(risk);
                broader.filter(|scopes| !scopes.is_empty()).any(|scopes| has(scopes))
            }
            _ => true,
        };
        if enough && has(&self.base) {
            return None;
        }
        Some(self.base.iter().chain(own.into_iter().flatten()).map(|scope| &**scope).collect())
    }
}

#[cfg(test)]
mod tests;
