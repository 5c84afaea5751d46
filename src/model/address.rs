//! Addresses of servers: which can be dialled at all, and none that holds a secret.
//!
//! Whether an address may be dialled is decided elsewhere.

use url::Url;

use super::sensitive::is_sensitive;

/// Why something is no address of a server. None of them repeats a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    #[error("not an address: {0}")]
    NotOne(url::ParseError),
    #[error("a server is reached by `http` or `https`")]
    Scheme,
    #[error("the address has no host")]
    NoHost,
    #[error("port 0 cannot be dialled")]
    PortZero,
    #[error("the address holds a user's name or password")]
    User,
    #[error("the address holds a secret in its parameter `{0}`")]
    Secret(String),
    #[error("an address has no `#`: servers never see what follows")]
    Fragment,
}

/// Reads an address.
pub fn parse(text: &str) -> Result<Url, AddressFault> {
    let url = Url::parse(text).map_err(AddressFault::NotOne)?;
    check(&url)?;
    Ok(url)
}

/// Looks at one that has been read.
pub fn check(url: &Url) -> Result<(), AddressFault> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(AddressFault::Scheme);
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(AddressFault::NoHost);
    }
    if url.port() == Some(0) {
        return Err(AddressFault::PortZero);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AddressFault::User);
    }
    if let Some((name, _)) = url.query_pairs().find(|(name, _)| is_sensitive(name)) {
        return Err(AddressFault::Secret(name.into_owned()));
    }
    if url.fragment().is_some() {
        return Err(AddressFault::Fragment);
    }
    Ok(())
}

impl AddressFault {
    /// Whether what it holds belongs into a header.
    pub fn is_secret(&self) -> bool {
        matches!(self, AddressFault::User | AddressFault::Secret(_))
    }
}
