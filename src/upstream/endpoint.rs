//! One URL of an upstream, taken apart once so that no call has to.

use std::{borrow::Cow, fmt, net::IpAddr, sync::Arc};

use http::{HeaderValue, Uri, uri};
use smallvec::SmallVec;
use url::{Host, Url};

/// Where requests go and how they are addressed.
#[derive(Debug, Clone)]
pub struct Endpoint {
    host: Arc<str>,
    /// Set when the host is an address already and needs no look-up.
    address: Option<IpAddr>,
    port: u16,
    tls: bool,
    host_header: HeaderValue,
    authority: uri::Authority,
    path: Box<str>,
    query: Option<Box<str>>,
    targets: SmallVec<[(&'static str, Target); 3]>,
}

/// A request target in the two forms that the wire knows.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// `/mcp?x`: HTTP/1.1.
    pub origin: Uri,
    /// `https://host/mcp?x`: HTTP/2, and the base of a redirect.
    pub absolute: Uri,
}

/// Why a URL cannot be an upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("this is not a URL: {0}")]
    NotAUrl(url::ParseError),
    #[error("an upstream is spoken to over `http` or `https`, not `{0}`")]
    Scheme(String),
    #[error("a URL needs a host")]
    NoHost,
    #[error("a URL must not hold a user or a password: use a header")]
    UserInfo,
    #[error("the path or query cannot be sent as it is")]
    Path,
}

impl Endpoint {
    /// Takes a URL apart.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let url = Url::parse(text).map_err(EndpointError::NotAUrl)?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(EndpointError::Scheme(other.to_owned())),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInfo);
        }
        let (host, address, shown) = match url.host() {
            // A TLS peer without a name would be one whose certificate nobody checks.
            None | Some(Host::Domain("")) => return Err(EndpointError::NoHost),
            Some(Host::Domain(name)) => (Arc::from(name), None, name.to_owned()),
            Some(Host::Ipv4(ip)) => (Arc::from(ip.to_string()), Some(ip.into()), ip.to_string()),
            Some(Host::Ipv6(ip)) => (Arc::from(ip.to_string()), Some(ip.into()), format!("[{ip}]")),
        };
        let port = url.port_or_known_default().ok_or(EndpointError::NoHost)?;
        let shown = match url.port() {
            Some(port) => format!("{shown}:{port}"),
            None => shown,
        };
        let authority: uri::Authority = shown.parse().map_err(|_| EndpointError::NoHost)?;
        let mut endpoint = Self {
            host,
            address,
            port,
            tls,
            host_header: HeaderValue::from_str(&shown).map_err(|_| EndpointError::NoHost)?,
            authority,
            path: url.path().into(),
            query: url.query().map(Into::into),
            targets: SmallVec::new(),
        };
        endpoint.prepare("")?;
        Ok(endpoint)
    }

    /// Builds the target of a suffix beforehand.
    pub(super) fn prepare(&mut self, suffix: &'static str) -> Result<(), EndpointError> {
        if self.targets.iter().all(|(known, _)| *known != suffix) {
            let target = self.build(suffix).ok_or(EndpointError::Path)?;
            self.targets.push((suffix, target));
        }
        Ok(())
    }

    /// The target of a suffix; `None` when the two make no path.
    pub(super) fn target(&self, suffix: &'static str) -> Option<Cow<'_, Target>> {
        match self.targets.iter().find(|(known, _)| *known == suffix) {
            Some((_, target)) => Some(Cow::Borrowed(target)),
            None => self.build(suffix).map(Cow::Owned),
        }
    }

    fn build(&self, suffix: &str) -> Option<Target> {
        let base = if suffix.is_empty() { &self.path } else { self.path.trim_end_matches('/') };
        let text = match &self.query {
            Some(query) => format!("{base}{suffix}?{query}"),
            None => format!("{base}{suffix}"),
        };
        self.target_of(text.parse().ok()?)
    }

    /// Another path at the same origin.
    pub(super) fn target_of(&self, path: uri::PathAndQuery) -> Option<Target> {
        let absolute = Uri::builder()
            .scheme(if self.tls { uri::Scheme::HTTPS } else { uri::Scheme::HTTP })
            .authority(self.authority.clone())
            .path_and_query(path.clone())
            .build()
            .ok()?;
        Some(Target { origin: Uri::from(path), absolute })
    }

    /// The path and query of `location`, read relative to `from`, if it stays at this origin.
    pub(super) fn same_origin(&self, from: &Uri, location: &str) -> Option<uri::PathAndQuery> {
        let base = Url::parse(&from.to_string()).ok()?;
        let to = base.join(location).ok()?;
        if to.origin() != base.origin() || !to.username().is_empty() || to.password().is_some() {
            return None;
        }
        match to.query() {
            Some(query) => format!("{}?{query}", to.path()).parse().ok(),
            None => to.path().parse().ok(),
        }
    }

    /// The host as written: a name or an address, without brackets.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn is_tls(&self) -> bool {
        self.tls
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str, suffix: &'static str) -> String {
        Endpoint::parse(url).unwrap().target(suffix).unwrap().origin.to_string()
    }

    #[test]
    fn the_suffix_goes_between_path_and_query() {
        assert_eq!(origin("http://h/mcp", ""), "/mcp");
        assert_eq!(origin("http://h/mcp/", ""), "/mcp/");
        assert_eq!(origin("http://h/mcp/", "/tools/call"), "/mcp/tools/call");
        assert_eq!(origin("http://h", "/tools/list"), "/tools/list");
        assert_eq!(origin("http://h/a?b=c", "/tools/list"), "/a/tools/list?b=c");
    }

    #[test]
    fn host_and_port_are_what_the_url_says() {
        let shown = |url: &str| {
            let endpoint = Endpoint::parse(url).unwrap();
            let header = endpoint.host_header().to_str().unwrap().to_owned();
            (endpoint.host().to_string(), endpoint.port(), header)
        };
        assert_eq!(shown("http://H.example/"), ("h.example".into(), 80, "h.example".into()));
        assert_eq!(shown("https://h:443/"), ("h".into(), 443, "h".into()));
        assert_eq!(shown("http://[::1]:7/"), ("::1".into(), 7, "[::1]:7".into()));
    }

    #[test]
    fn a_url_that_is_no_upstream_is_refused() {
        for bad in ["", "mcp", "ftp://h/", "http://u:p@h/", "http://u@h/", "https://"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_redirect_stays_at_the_origin_or_is_none() {
        let endpoint = Endpoint::parse("http://h:8/mcp").unwrap();
        let from = endpoint.target("").unwrap().absolute.clone();
        let to = |location| endpoint.same_origin(&from, location).map(|path| path.to_string());
        assert_eq!(to("/mcp/"), Some("/mcp/".into()));
        assert_eq!(to("mcp2?x=1"), Some("/mcp2?x=1".into()));
        assert_eq!(to("http://h:8/other"), Some("/other".into()));
        for away in ["https://h:8/mcp/", "http://h/mcp/", "//evil/mcp", "http://u@h:8/"] {
            assert_eq!(to(away), None, "{away}");
        }
    }
}
