//! Networks and origins, as files name them.

use std::{fmt, str::FromStr};

use url::Url;

use crate::{
    fault::{FaultCode, Faults},
    model::network::Network,
    yaml::{FromNode, Node, parsed},
};

impl FromNode for Network {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, Network::from_str)
    }
}

/// A browser's origin, as it writes it: `https://app.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin(String);

impl Origin {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "is not an origin such as `https://app.example.com`";
        let url = Url::parse(text).map_err(|_| wrong.to_owned())?;
        let origin = url.origin();
        let ascii = origin.ascii_serialization();
        if !origin.is_tuple() || ascii != text {
            // Compared byte by byte with what a browser sends, so it is written as it is sent.
            return Err(match origin.is_tuple() {
                true => format!("{wrong}; write `{ascii}`"),
                false => wrong.to_owned(),
            });
        }
        Ok(Self(ascii))
    }
}

impl FromNode for Origin {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, Origin::from_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for good in ["https://app.example.com", "http://localhost:3000"] {
            assert_eq!(Origin::from_str(good).unwrap().as_str(), good);
        }
        for bad in [
            "*",
            "app.example.com",
            "https://a/",
            "https://a:443",
            "https://A",
            "null",
            "file:///a",
        ] {
            assert!(Origin::from_str(bad).is_err(), "{bad}");
        }
    }
}
