//! `tls:` of an upstream as it is written.

use crate::{
    fault::{Faults, Span},
    yaml::{FromNode, Node, Spanned},
};

/// What an upstream is shown, and who vouches for it.
#[derive(Debug)]
pub struct RawPeerTls {
    pub at: Span,
    pub client_cert: Option<Spanned<String>>,
    pub client_key: Option<Spanned<String>>,
    pub ca: Option<Spanned<String>>,
}

impl FromNode for RawPeerTls {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let tls = Self {
            at: node.at.clone(),
            client_cert: map.optional("client_cert", faults),
            client_key: map.optional("client_key", faults),
            ca: map.optional("ca", faults),
        };
        map.finish(faults);
        Some(tls)
    }
}
