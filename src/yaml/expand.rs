//! `${NAME}` and `${NAME:-default}` in values.
//!
//! Expansion works on values that are already read: a variable can hold anything and never
//! becomes a key, a list or another line.

use super::{Node, Value};
use crate::fault::{FaultCode, Faults};

/// Where variables come from.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Puts variables into every text below `node`; `$${` stands for a literal `${`.
pub fn expand(node: &mut Node, env: Env<'_>, faults: &mut Faults) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") => {
            match expanded(text, env) {
                Ok(new) => *text = new,
                Err((code, message)) => {
                    faults.add(code, &node.at, message);
                    node.value = Value::Unknown;
                }
            }
            node.expanded = true;
        }
        Value::Seq(items) => items.iter_mut().for_each(|item| expand(item, env, faults)),
        Value::Map(entries) => {
            entries.iter_mut().for_each(|entry| expand(&mut entry.value, env, faults));
        }
        _ => {}
    }
}

fn expanded(text: &str, env: Env<'_>) -> Result<String, (FaultCode, String)> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, tail) = rest.split_at(start);
        let tail = &tail[2..]; // past the "${" that was found
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str("${");
            rest = tail;
            continue;
        }
        out.push_str(before);
        let Some((inside, after)) = tail.split_once('}') else {
            return Err((FaultCode::BadValue, "`${` without its `}`".to_owned()));
        };
        out.push_str(&variable(inside, env)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(inside: &str, env: Env<'_>) -> Result<String, (FaultCode, String)> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(legal) {
        return Err((FaultCode::BadValue, format!("`{name}` is not a variable's name")));
    }
    // As in a shell, `:-` also stands in for a variable that is set to nothing.
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            Err((FaultCode::UnsetVariable, format!("the variable `{name}` is not set")))
        }
    }
}
