//! Issuers of tokens, and fetching their keys: at the start, by age, and when a token asks for newer ones.
//!
//! One issuer's trouble is its own, and a failed fetch changes nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use rand::RngExt;
use tokio::time::{Instant, sleep_until, timeout};
use tower::Service;

use super::StartError;
use crate::{
    body::{self, Body},
    clock::Clock,
    config::{self, Config, IssuerTenant},
    identity::token::{self, ClaimPath, Issuer, Issuers, KeySet, TenantSource},
    upstream::{
        Cluster, ClusterConfig, Destination, Egress, Endpoint, Guard, Outgoing, Transport,
        Upstreams,
    },
};

/// The most that a set of keys may hold.
const MAX_SET: usize = 256 * 1024;
const TIMEOUT: Duration = Duration::from_secs(10);
/// After a failure, until keys have been fetched once.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the keys of one issuer.
pub(super) struct Fetcher {
    pub issuer: Arc<Issuer>,
    pub cluster: Arc<Cluster>,
    pub refresh: Duration,
    pub min_refresh: Duration,
}

impl Fetcher {
    /// Fetches, waits and fetches again, until it is dropped.
    pub async fn run(self, mut upstreams: Upstreams, clock: Clock) {
        let mut failing = false;
        let mut known = false;
        loop {
            let name = self.issuer.name.as_str();
            match self.fetch(&mut upstreams).await {
                Ok(text) => match KeySet::parse(&text) {
                    Ok(keys) => {
                        if failing || !known {
                            tracing::info!(issuer = name, "the issuer's keys are known");
                        }
                        (failing, known) = (false, true);
                        self.issuer.keys.replace(&keys, clock.now_ms());
                    }
                    Err(fault) => failing = self.failed(&fault.to_string(), failing),
                },
                Err(what) => failing = self.failed(&what, failing),
            }
            self.issuer.keys.attempted(clock.now_ms());
            let least = Instant::now() + self.min_refresh;
            let pause = if known { self.refresh } else { RETRY.min(self.refresh) };
            // A tenth either way, so that replicas do not fall into step.
            let due = Instant::now() + pause.mul_f64(rand::rng().random_range(0.9..1.1));
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.issuer.keys.wanted() => sleep_until(least.min(due)).await,
            }
        }
    }

    fn failed(&self, what: &str, before: bool) -> bool {
        let name = self.issuer.name.as_str();
        if before {
            tracing::debug!(issuer = name, "the issuer's keys cannot be fetched: {what}");
        } else {
            tracing::warn!(issuer = name, "the issuer's keys cannot be fetched: {what}");
        }
        true
    }

    async fn fetch(&self, upstreams: &mut Upstreams) -> Result<Bytes, String> {
        let mut request = Request::new(Body::Empty);
        let json = HeaderValue::from_static("application/jwk-set+json, application/json");
        request.headers_mut().insert(header::ACCEPT, json);
        let outgoing = Outgoing {
            to: Destination::Cluster(self.cluster.clone()),
            suffix: "",
            request,
            tried: None,
        };
        let fetched = timeout(TIMEOUT, async {
            let response = upstreams.call(outgoing).await.map_err(|error| error.to_string())?;
            let status = response.status();
            if !status.is_success() {
                return Err(format!("the answer is {status}"));
            }
            let read = body::collect(response.into_body(), MAX_SET).await;
            read.map_err(|_| "the answer is too long, or broke off".to_owned())
        });
        fetched.await.unwrap_or_else(|_| Err("there is no answer".to_owned()))
    }
}

/// Issuers, and what fetches their keys.
pub(super) fn issuers(
    config: &Config,
    transport: &Transport,
    egress: &Arc<Egress>,
) -> Result<(Issuers, Vec<Fetcher>), StartError> {
    let mut issuers = Vec::with_capacity(config.issuers.len());
    let mut clusters = Vec::with_capacity(config.issuers.len());
    for issuer in &config.issuers {
        let failed = |source| StartError::Issuer { name: issuer.name.to_string(), source };
        let endpoint = Endpoint::parse(issuer.jwks.as_str()).map_err(|e| failed(e.into()))?;
        let cluster = ClusterConfig {
            // Keys come from where they were said to be, or not at all.
            redirects: false,
            on_demand: true,
            ..ClusterConfig::new(issuer.name.as_str(), vec![endpoint], Guard::written(egress))
        };
        clusters.push(Cluster::new(cluster, transport).map_err(failed)?);
        issuers.push(token::Issuer {
            name: issuer.name.clone(),
            issuer: issuer.issuer.clone(),
            audience: issuer.audience.clone(),
            algorithms: issuer.algorithms.iter().map(|algorithm| jws(*algorithm)).collect(),
            employee: ClaimPath::new(&*issuer.employee),
            tenant: match &issuer.tenant {
                IssuerTenant::Always(tenant) => TenantSource::Always(tenant.clone()),
                IssuerTenant::Claim(claim) => TenantSource::Claim(ClaimPath::new(&**claim)),
            },
            roles: issuer.roles.as_deref().map(ClaimPath::new),
            leeway: issuer.leeway,
            scopes: token::ScopeRules {
                base: issuer.scopes.base.clone(),
                by_risk: issuer.scopes.by_risk.clone(),
            },
            call_sources: issuer.call_sources,
            keys: token::KeySource::new(issuer.stale, issuer.min_refresh),
        });
    }
    let issuers = Issuers::new(issuers);
    let fetchers = issuers.iter().zip(clusters).zip(&config.issuers);
    let fetchers = fetchers.map(|((issuer, cluster), config)| Fetcher {
        issuer: issuer.clone(),
        cluster,
        refresh: config.refresh,
        min_refresh: config.min_refresh,
    });
    let fetchers = fetchers.collect();
    Ok((issuers, fetchers))
}

fn jws(algorithm: config::Algorithm) -> jsonwebtoken::Algorithm {
    match algorithm {
        config::Algorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
        config::Algorithm::Rs384 => jsonwebtoken::Algorithm::RS384,
        config::Algorithm::Rs512 => jsonwebtoken::Algorithm::RS512,
        config::Algorithm::Ps256 => jsonwebtoken::Algorithm::PS256,
        config::Algorithm::Ps384 => jsonwebtoken::Algorithm::PS384,
        config::Algorithm::Ps512 => jsonwebtoken::Algorithm::PS512,
        config::Algorithm::Es256 => jsonwebtoken::Algorithm::ES256,
        config::Algorithm::Es384 => jsonwebtoken::Algorithm::ES384,
        config::Algorithm::EdDsa => jsonwebtoken::Algorithm::EdDSA,
    }
}
