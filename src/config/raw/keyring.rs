//! `keyring:` as it is written.

use std::time::Duration;

use crate::{
    fault::{FaultCode, Faults, Span},
    yaml::{FromNode, Node, Spanned},
};

/// Where keys are, and who else keeps them.
#[derive(Debug)]
pub struct RawKeyring {
    pub file: Spanned<String>,
    /// A program and its arguments.
    pub exec: Vec<String>,
    pub timeout: Option<Spanned<Duration>>,
    pub cache_age: Option<Spanned<Duration>>,
    pub cache_uses: Option<Spanned<usize>>,
}

impl FromNode for RawKeyring {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let file = map.required("file", faults);
        let exec_at: Option<Span> = map.node("exec").map(|node| node.at.clone());
        let exec: Option<Vec<String>> = map.optional("exec", faults);
        let timeout: Option<Spanned<Duration>> = map.optional("timeout", faults);
        let cache_age: Option<Spanned<Duration>> = map.optional("cache_age", faults);
        let cache_uses: Option<Spanned<usize>> = map.optional("cache_uses", faults);
        let exec = exec.unwrap_or_default();
        match exec_at {
            Some(at) if exec.first().is_none_or(String::is_empty) => {
                faults.add(FaultCode::BadValue, &at, "`exec` names no program");
            }
            Some(_) => {}
            None => {
                let given = [
                    ("timeout", timeout.as_ref().map(|time| &time.at)),
                    ("cache_age", cache_age.as_ref().map(|time| &time.at)),
                    ("cache_uses", cache_uses.as_ref().map(|uses| &uses.at)),
                ];
                for (name, at) in given {
                    let Some(at) = at else { continue };
                    let message = format!("`{name}` is about `exec`, which is not given");
                    faults.add(FaultCode::Contradiction, at, message);
                }
            }
        }
        map.finish(faults);
        Some(Self { file: file?, exec, timeout, cache_age, cache_uses })
    }
}
