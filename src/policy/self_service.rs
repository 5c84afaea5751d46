//! Which servers an employee may register himself, and how their tools are treated.
//!
//! A tenant narrows what the platform says: where both say something, both hold. What nobody says
//! is not allowed: without roles or without hosts nobody registers anything.

use std::{fmt, sync::Arc};

use url::Host;

use super::{
    Policies, Set,
    compile::{Compiled, Operators},
    document::{ItemClass, Pin, SelfServiceRule},
    scope::{RoleBook, ScopeRules},
};
use crate::{
    fault::Span,
    model::{
        caller::{Role, Roles, TenantId},
        server::IdempotencyMode,
    },
};

/// How many servers an employee may have, where nobody says.
const MOST: u32 = 20;

/// The hosts and ports that may be registered: `tools.partner.dev`, `*.example.com`,
/// `10.1.2.3:8443`, `*.example.com:*`. Without a port those of the schemes are meant. Behind
/// `http://` stand those to which credentials go without encryption, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGlob {
    pub at: Span,
    text: Box<str>,
    host: HostPattern,
    port: PortPattern,
    is_plain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Any,
    Exactly(Box<str>),
    /// Names below this one, at any depth.
    Below(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortPattern {
    /// 80 and 443.
    Usual,
    Any,
    Exactly(u16),
}

/// What a tenant's employees may register.
#[derive(Debug, Clone)]
pub struct SelfService {
    platform: Arc<ScopeRules>,
    own: Option<Arc<ScopeRules>>,
}

/// Why an employee may not register or share a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAllowed {
    pub reason: NotAllowedReason,
    /// What says so, for operators.
    pub at: Span,
}

/// It names no rule's place: it is for the employee.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowedReason {
    #[error("none of your roles may register servers")]
    Role,
    #[error("`{host}:{port}` is not among the hosts that may be registered")]
    Host { host: String, port: u16 },
    #[error(
        "a credential for `{host}:{port}` would go there by plain http, where others read it: use \
         `https`, or ask for `http://{host}:{port}` among the hosts of your company's policy"
    )]
    Plain { host: String, port: u16 },
    #[error("none of your roles may share servers")]
    Share,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for NotAllowed {}

// === impl HostGlob ===

impl HostGlob {
    /// Reads a glob; the error goes on after "`text` ".
    pub fn parse(text: &str, at: &Span) -> Result<Self, String> {
        let plain = text.strip_prefix("http://");
        let (is_plain, named) = (plain.is_some(), plain.unwrap_or(text));
        let (host, port) = match named.rsplit_once(':') {
            Some((host, port)) if !named.ends_with(']') => (host, Some(port)),
            _ => (named, None),
        };
        let port = match port {
            None => PortPattern::Usual,
            Some("*") => PortPattern::Any,
            Some(port) => {
                let digits = port.bytes().all(|b| b.is_ascii_digit());
                let port = digits.then(|| port.parse().ok()).flatten();
                let port = port.filter(|port| *port != 0);
                PortPattern::Exactly(port.ok_or("has no port of 1 to 65535, and no `*`")?)
            }
        };
        let host = match host {
            "*" => HostPattern::Any,
            host => match host.strip_prefix("*.") {
                Some(rest) => HostPattern::Below(plain_host(rest, true)?),
                None => HostPattern::Exactly(plain_host(host, false)?),
            },
        };
        Ok(Self { at: at.clone(), text: text.into(), host, port, is_plain })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host` as a URL has it.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let port_fits = match self.port {
            PortPattern::Usual => matches!(port, 80 | 443),
            PortPattern::Any => true,
            PortPattern::Exactly(own) => own == port,
        };
        port_fits
            && match &self.host {
                HostPattern::Any => true,
                HostPattern::Exactly(own) => own.eq_ignore_ascii_case(host),
                HostPattern::Below(own) => {
                    let host = host.to_ascii_lowercase();
                    let label = host.strip_suffix(&**own).and_then(|rest| rest.strip_suffix('.'));
                    label.is_some_and(|label| !label.is_empty())
                        && matches!(Host::parse(&host), Ok(Host::Domain(_)))
                }
            }
    }

    /// Whether it is about all that the other is about; one that lets credentials go by plain http
    /// says more than one that does not.
    pub fn covers(&self, other: &HostGlob) -> bool {
        let port = match (self.port, other.port) {
            (PortPattern::Any, _) => true,
            (PortPattern::Usual, PortPattern::Exactly(port)) => matches!(port, 80 | 443),
            (own, other) => own == other,
        };
        let plain = self.is_plain || !other.is_plain;
        port && plain && self.host.covers(&other.host)
    }

    /// Whether some of these are about all that it is about.
    pub fn is_within(&self, globs: &[HostGlob]) -> bool {
        let one = |own: &HostGlob| globs.iter().any(|glob| glob.covers(own));
        let at = |port| one(&HostGlob { port: PortPattern::Exactly(port), ..self.clone() });
        one(self) || (self.port == PortPattern::Usual && at(80) && at(443))
    }

    /// What both are about. Names are nested or apart, and so are ports.
    fn both(&self, other: &HostGlob) -> Option<HostGlob> {
        let host = match (self.host.covers(&other.host), other.host.covers(&self.host)) {
            (true, _) => &other.host,
            (_, true) => &self.host,
            (false, false) => return None,
        };
        let port = match (self.port, other.port) {
            (PortPattern::Any, port) | (port, PortPattern::Any) => port,
            (PortPattern::Usual, PortPattern::Exactly(port @ (80 | 443)))
            | (PortPattern::Exactly(port @ (80 | 443)), PortPattern::Usual) => {
                PortPattern::Exactly(port)
            }
            (own, other) if own == other => own,
            _ => return None,
        };
        let is_plain = self.is_plain && other.is_plain;
        let (at, host) = (self.at.clone(), host.clone());
        let mut both = HostGlob { at, text: "".into(), host, port, is_plain };
        both.text = both.to_string().into();
        Some(both)
    }

    /// Whether anybody's server is meant: any host, or all below a name that is handed out.
    pub fn is_anything(&self) -> bool {
        match &self.host {
            HostPattern::Any => true,
            HostPattern::Below(rest) => !rest.contains('.'),
            HostPattern::Exactly(_) => false,
        }
    }
}

impl fmt::Display for HostGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain {
            f.write_str("http://")?;
        }
        match &self.host {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Exactly(host) => f.write_str(host),
            HostPattern::Below(host) => write!(f, "*.{host}"),
        }?;
        match self.port {
            PortPattern::Usual => Ok(()),
            PortPattern::Any => f.write_str(":*"),
            PortPattern::Exactly(port) => write!(f, ":{port}"),
        }
    }
}

impl HostPattern {
    fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Any, _) => true,
            (HostPattern::Exactly(own), HostPattern::Exactly(other)) => own == other,
            (HostPattern::Below(own), HostPattern::Exactly(host) | HostPattern::Below(host)) => {
                let below = host.strip_suffix(&**own).is_some_and(|rest| rest.ends_with('.'));
                below || (matches!(other, HostPattern::Below(_)) && own == host)
            }
            _ => false,
        }
    }
}

/// A host in the form that URLs have.
fn plain_host(text: &str, a_name: bool) -> Result<Box<str>, String> {
    if text.contains(['*', '?', '/', '@', '#']) {
        return Err("is no host: `*` stands alone, or for the labels before a name".to_owned());
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    match Host::parse(text) {
        Ok(Host::Domain(host)) if !host.is_empty() => Ok(host.into()),
        Ok(host @ (Host::Ipv4(_) | Host::Ipv6(_))) if !a_name => Ok(host.to_string().into()),
        Ok(_) => Err("is no host: an address has no names below it".to_owned()),
        Err(error) => Err(format!("is no host: {error}")),
    }
}

// === impl SelfService ===

impl SelfService {
    fn rules(&self) -> impl Iterator<Item = &Arc<SelfServiceRule>> {
        [Some(&self.platform), self.own.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|scope| scope.self_service.as_ref())
    }

    fn book(&self) -> RoleBook<'_> {
        RoleBook { platform: &self.platform, own: self.own.as_deref() }
    }

    /// Whether an employee with these roles may register a server at this host, as a URL has it.
    ///
    /// # Errors
    /// Why not, by the rule that says so.
    pub fn may_register(&self, roles: &Roles, host: &str, port: u16) -> Result<(), NotAllowed> {
        self.may_register_any(roles)?;
        for rule in self.rules() {
            let no = |reason| NotAllowed { reason, at: rule.at.clone() };
            if let Some(hosts) = &rule.hosts
                && !hosts.iter().any(|glob| glob.matches(host, port))
            {
                return Err(no(NotAllowedReason::Host { host: host.to_owned(), port }));
            }
        }
        Ok(())
    }

    /// The hosts that may be registered: where two scopes name some, those that both name.
    pub(super) fn hosts(&self) -> Vec<HostGlob> {
        let mut lists = self.rules().filter_map(|rule| rule.hosts.as_ref());
        let Some(first) = lists.next() else { return Vec::new() };
        lists.fold(first.to_vec(), |hosts, list| {
            let pairs = hosts.iter().flat_map(|own| list.iter().map(move |other| (own, other)));
            pairs.filter_map(|(own, other)| own.both(other)).collect()
        })
    }

    /// The roles of which it says something.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Role> {
        let register = self.rules().filter_map(|rule| rule.roles.as_ref()).flatten();
        let share = self.rules().filter_map(|rule| rule.share.as_ref());
        let share = share.flat_map(|share| share.roles.iter());
        register.chain(share).map(|role| &role.value)
    }

    /// Whether an employee with these roles may register any server, wherever it is.
    ///
    /// # Errors
    /// Why not, by the rule that says so.
    pub fn may_register_any(&self, roles: &Roles) -> Result<(), NotAllowed> {
        let held = self.book().with_included(roles);
        let lacks = |rule: &&Arc<SelfServiceRule>| {
            let roles = rule.roles.as_ref();
            roles.is_some_and(|all| !all.iter().any(|role| held.contains(role.value.as_str())))
        };
        match self.rules().find(lacks) {
            Some(rule) => Err(NotAllowed { reason: NotAllowedReason::Role, at: rule.at.clone() }),
            None => Ok(()),
        }
    }

    /// Whether an employee with these roles may share what he registered with a team of his.
    ///
    /// # Errors
    /// Why not, by the rule that says so.
    pub fn may_share(&self, roles: &Roles) -> Result<(), NotAllowed> {
        let held = self.book().with_included(roles);
        let mut said = false;
        for (rule, share) in self.rules().filter_map(|rule| Some((rule, rule.share.as_ref()?))) {
            said = true;
            if !share.roles.iter().any(|role| held.contains(role.value.as_str())) {
                return Err(NotAllowed {
                    reason: NotAllowedReason::Share,
                    at: match share.roles.is_empty() {
                        true => share.at.clone(),
                        false => rule.at.clone(),
                    },
                });
            }
        }
        match self.rules().next() {
            Some(rule) if !said => {
                Err(NotAllowed { reason: NotAllowedReason::Share, at: rule.at.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Whether what was registered at this host is still one that may be, whoever did: a host that
    /// is taken off the list is not reached any more.
    pub fn may_reach(&self, host: &str, port: u16) -> bool {
        let mut lists = self.rules().filter_map(|rule| rule.hosts.as_ref());
        lists.all(|hosts| hosts.iter().any(|glob| glob.matches(host, port)))
    }

    /// Whether credentials may go to this host without encryption: only where everybody who names
    /// hosts says so of it.
    ///
    /// # Errors
    /// Why not, by the rule that says so.
    pub fn may_open_plainly(&self, host: &str, port: u16) -> Result<(), NotAllowed> {
        for rule in self.rules() {
            let Some(hosts) = &rule.hosts else { continue };
            if !hosts.iter().any(|glob| glob.is_plain && glob.matches(host, port)) {
                let reason = NotAllowedReason::Plain { host: host.to_owned(), port };
                return Err(NotAllowed { reason, at: rule.at.clone() });
            }
        }
        Ok(())
    }

    /// Whether anybody may share anything.
    pub fn allows_sharing(&self) -> bool {
        let mut said = self.rules().filter_map(|rule| rule.share.as_ref()).peekable();
        said.peek().is_some() && said.all(|share| !share.roles.is_empty())
    }

    /// How many servers an employee may have.
    pub fn max_each(&self) -> u32 {
        self.rules().filter_map(|rule| rule.max_each).min().unwrap_or(MOST)
    }
}

// === impl Policies ===

impl Policies {
    /// What the employees of a tenant may register themselves; `None`: nothing.
    pub fn self_service(&self, tenant: &TenantId) -> Option<SelfService> {
        self.enforced.self_service(tenant)
    }

    /// Whether some tenant's employees may have tools of their own that no file classifies.
    pub(super) fn classifies_own(&self) -> bool {
        let mut scopes = self.enforced.scopes();
        scopes.any(|scope| scope.self_service.as_ref().is_some_and(|rule| rule.default.is_some()))
    }

    /// The policies for what employees of one tenant have registered: what no file classifies of
    /// a server whose name is a serverKey is treated as `self_service.default` says. All else
    /// is as it was: nothing is allowed that no rule allows.
    pub fn personal(&self, tenant: &TenantId) -> Policies {
        let personal = |compiled: &Arc<Compiled>| Arc::new(compiled.personal(tenant));
        Policies {
            enforced: personal(&self.enforced),
            shadow: self.shadow.as_ref().map(personal),
            cases: Arc::default(),
        }
    }
}

impl Policies {
    /// The same, where some of these servers have the address of an operator's upstream: what he
    /// says of that holds for them, too. Rules know them by either name.
    #[must_use]
    pub fn beside(self, operators: &Arc<Operators>) -> Policies {
        let beside = |compiled: Arc<Compiled>| {
            let mut compiled = Arc::unwrap_or_clone(compiled);
            compiled.operators = operators.clone();
            Arc::new(compiled)
        };
        Policies {
            enforced: beside(self.enforced),
            shadow: self.shadow.map(beside),
            cases: self.cases,
        }
    }
}

// === impl Set ===

impl Set {
    /// What the employees of a tenant may register themselves; `None`: nothing.
    pub fn self_service(&self, tenant: &TenantId) -> Option<SelfService> {
        self.policies().self_service(tenant)
    }
}

// === impl Compiled ===

impl Compiled {
    fn self_service(&self, tenant: &TenantId) -> Option<SelfService> {
        let own = self.tenants.get(tenant).cloned();
        let service = SelfService { platform: self.platform.clone(), own };
        let open = !service.rules().any(|rule| rule.off)
            && service.rules().any(|rule| rule.roles.is_some())
            && service.rules().any(|rule| rule.hosts.is_some());
        open.then_some(service)
    }

    fn personal(&self, tenant: &TenantId) -> Compiled {
        let own = self.tenants.get(tenant);
        let default = default_of(&self.platform, own.map(|own| &**own));
        Compiled {
            revision: self.revision.clone(),
            platform: self.platform.clone(),
            tenants: own.map(|own| (tenant.clone(), own.clone())).into_iter().collect(),
            upstreams: self.upstreams.clone(),
            directory: self.directory.clone(),
            personal: default.map(Arc::new),
            operators: Arc::default(),
        }
    }
}

/// How tools of a tenant's personal servers are treated.
pub(super) fn default_of(platform: &ScopeRules, own: Option<&ScopeRules>) -> Option<ItemClass> {
    let said = |scope: &ScopeRules| scope.self_service.as_ref()?.default.clone();
    let default = match (said(platform), own.and_then(said)) {
        (Some(platform), Some(own)) => Some(stricter(&own, &platform)),
        (platform, own) => own.or(platform),
    };
    default.map(|mut default| {
        // Nobody has written these servers down.
        default.pin.get_or_insert(Pin::Approve);
        default
    })
}

/// What a tenant says, as far as it does not loosen what the platform says.
fn stricter(own: &ItemClass, platform: &ItemClass) -> ItemClass {
    let mut class = own.over(Some(platform));
    class.risk = own.risk.max(platform.risk);
    class.cost = own.cost.max(platform.cost);
    class.pin = match (own.pin, platform.pin) {
        (Some(Pin::FirstUse) | None, pin @ Some(_)) | (pin, _) => pin,
    };
    let shorter = |a: &Option<_>, b: &Option<_>| match (a, b) {
        (Some(a), Some(b)) => Some(shorter_of(a, b)),
        (a, b) => a.clone().or_else(|| b.clone()),
    };
    class.timeout = shorter(&own.timeout, &platform.timeout);
    class.max_time = shorter(&own.max_time, &platform.max_time);
    if platform.retry_safe.as_ref().is_some_and(|safe| !safe.value) {
        class.retry_safe.clone_from(&platform.retry_safe);
    }
    if let Some(mode) = &platform.idempotency
        && mode.value == IdempotencyMode::Required
    {
        class.idempotency = Some(mode.clone());
    }
    class
}

type Time = crate::yaml::Spanned<std::time::Duration>;

fn shorter_of(a: &Time, b: &Time) -> Time {
    if a.value <= b.value { a.clone() } else { b.clone() }
}
