//! `admin:` as it is written.

use std::net::SocketAddr;

use super::{SecretRef, part};
use crate::{
    fault::{FaultCode, Faults, Span},
    yaml::{Entry, FromNode, MapReader, Node, Spanned, Value, Words, check_name},
};

#[derive(Debug, Default)]
pub struct RawAdmin {
    pub listen: Option<Spanned<SocketAddr>>,
    /// The one that may do everything.
    pub token: Option<RawToken>,
    pub tokens: Vec<RawNamedToken>,
}

#[derive(Debug)]
pub struct RawToken {
    pub secret: SecretRef,
    pub at: Span,
}

#[derive(Debug)]
pub struct RawNamedToken {
    pub name: Spanned<String>,
    pub token: RawToken,
    pub role: AdminRole,
}

/// What somebody with a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminRole {
    Viewer,
    Operator,
    Approver,
    Security,
    /// `admin.token` itself.
    All,
}

const ROLES: Words<AdminRole> = Words {
    what: "role",
    code: FaultCode::BadValue,
    known: &[
        ("viewer", AdminRole::Viewer),
        ("operator", AdminRole::Operator),
        ("approver", AdminRole::Approver),
        ("security", AdminRole::Security),
    ],
    later: &[],
};

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> RawAdmin {
    part(map, "admin", faults, |map, faults| {
        let tokens = map.node("tokens").map_or(Vec::new(), |node| {
            let entries = node.named(faults);
            entries.into_iter().filter_map(|entry| RawNamedToken::read(entry, faults)).collect()
        });
        Some(RawAdmin {
            listen: map.optional("listen", faults),
            token: map.node("token").and_then(|node| RawToken::read(node, faults)),
            tokens,
        })
    })
    .unwrap_or_default()
}

impl RawToken {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        if let Value::Text(_) = &node.value {
            let message = "a token does not stand in the file";
            let fault = faults.add(FaultCode::SecretInTheOpen, &node.at, message);
            fault.suggest("`{ env: NAME }` or `{ file: PATH }`").secret();
            return None;
        }
        Some(Self { secret: SecretRef::from_node(node, faults)?, at: node.at.clone() })
    }
}

impl RawNamedToken {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        // `admin` is what records call the token that stands alone.
        let name = match check_name(&entry.key) {
            Ok(()) if entry.key != "admin" => {
                Some(Spanned::new(entry.key.to_string(), &entry.key_at))
            }
            Ok(()) => {
                let message = "`admin` is the name of `admin.token`";
                faults.add(FaultCode::BadName, &entry.key_at, message);
                None
            }
            Err(reason) => {
                let message = format!("`{}` {reason}", entry.key);
                faults.add(FaultCode::BadName, &entry.key_at, message);
                None
            }
        };
        if let Value::Text(_) = &entry.value.value {
            RawToken::read(&entry.value, faults);
            return None;
        }
        let mut map = entry.value.map(faults)?;
        let token = map.required_node("token", faults);
        let token = token.and_then(|node| RawToken::read(node, faults));
        let role = match map.required_node("role", faults) {
            Some(node) => ROLES.read(node, faults),
            None => None,
        };
        map.finish(faults);
        Some(Self { name: name?, token: token?, role: role? })
    }
}
