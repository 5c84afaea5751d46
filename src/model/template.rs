//! Values that depend on the call, of headers and of injected arguments: `$ctx.user.empId` and
//! its like.
//!
//! A template is read once; what it stands for is known by then. What a header or an argument
//! may hold is not decided here.

use std::fmt;

use secrecy::SecretString;
use smallvec::SmallVec;

use super::{call_source::CallSource, caller::Caller, exchange::Exchange, ids, sensitive::shown};
use crate::fault::nearest;

/// A value, piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTemplate(SmallVec<[Part; 1]>);

/// A piece of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Visible ASCII and spaces.
    Literal(Box<str>),
    Employee,
    /// Comma-separated.
    Roles,
    Tenant,
    Caller,
    CallSource,
    RequestId,
    TraceId,
}

const VARIABLES: [(&str, Part); 7] = [
    ("user.empId", Part::Employee),
    ("user.roles", Part::Roles),
    ("tenant", Part::Tenant),
    ("caller", Part::Caller),
    ("callSource", Part::CallSource),
    ("requestId", Part::RequestId),
    ("traceId", Part::TraceId),
];

/// Where a header's value comes from.
#[derive(Debug, Clone)]
pub enum HeaderSource {
    Template(HeaderTemplate),
    /// A legal header value.
    Secret(SecretString),
    /// What is kept under this name when a request is written.
    Stored(Box<str>),
}

/// What is wrong with a template: a sentence, and what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFault {
    pub message: String,
    pub suggestion: Option<String>,
}

impl HeaderTemplate {
    pub fn parse(text: &str) -> Result<Self, TemplateFault> {
        let mut parts = SmallVec::new();
        let mut rest = text;
        while let Some(start) = rest.find("$ctx") {
            let (before, tail) = rest.split_at(start);
            push_literal(&mut parts, before)?;
            let tail = &tail["$ctx".len()..]; // it was found there
            let end = tail
                .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_'))
                .unwrap_or(tail.len());
            let (path, after) = tail.split_at(end);
            // A full stop after a variable ends the sentence, not the name.
            let name = path.trim_end_matches('.');
            parts.push(variable(name)?);
            push_literal(&mut parts, &path[name.len()..])?; // `name` is the beginning of `path`
            rest = after;
        }
        push_literal(&mut parts, rest)?;
        Ok(Self(parts))
    }

    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The whole of it, where nothing of it depends on the call.
    pub fn constant(&self) -> Option<String> {
        let parts = self.0.iter().map(|part| match part {
            Part::Literal(text) => Some(&**text),
            _ => None,
        });
        parts.collect()
    }

    /// Whether none of it comes from the call.
    pub fn is_constant(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// Whether all of it comes from the call.
    pub fn is_all_context(&self) -> bool {
        !self.0.iter().any(|part| matches!(part, Part::Literal(_)))
    }
}

/// As it was written.
impl fmt::Display for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            // What is no literal is a variable.
            match (part, VARIABLES.iter().find(|(_, variable)| variable == part)) {
                (Part::Literal(text), _) => f.write_str(text)?,
                (_, Some((name, _))) => write!(f, "$ctx.{name}")?,
                (_, None) => {}
            }
        }
        Ok(())
    }
}

// === impl Part ===

impl Part {
    /// Writes what it stands for in a call; false where it stands for nothing.
    pub fn write(&self, caller: Option<&Caller>, exchange: &Exchange, out: &mut String) -> bool {
        match (self, caller) {
            (Part::Literal(text), _) => out.push_str(text),
            (Part::TraceId, _) => out.push_str(&exchange.facts().trace.trace_id_hex()),
            (_, None) => return false,
            (Part::Employee, Some(caller)) => match &caller.principal.employee {
                Some(employee) => out.push_str(employee.as_str()),
                None => return false,
            },
            (Part::Roles, Some(caller)) => {
                for (index, role) in caller.principal.roles.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(role.as_str());
                }
            }
            (Part::Tenant, Some(caller)) => out.push_str(caller.tenant.as_str()),
            (Part::Caller, Some(caller)) => out.push_str(caller.id.as_str()),
            (Part::CallSource, Some(_)) => {
                let source = exchange.facts().call_source().unwrap_or(CallSource::Mcp);
                out.push_str(source.as_str());
            }
            (Part::RequestId, Some(_)) => match exchange.facts().call_id {
                Some(id) => out.push_str(&ids::uuid_text(id)),
                None => return false,
            },
        }
        true
    }
}

/// `name` is what stands behind `$ctx`, dot and all.
fn variable(name: &str) -> Result<Part, TemplateFault> {
    let names = || VARIABLES.iter().map(|(known, _)| *known);
    let wanted = name.strip_prefix('.').unwrap_or_default();
    let found = VARIABLES.iter().find(|(known, _)| *known == wanted);
    found.map(|(_, part)| part.clone()).ok_or_else(|| {
        let last = names().find(|known| known.rsplit('.').next() == Some(wanted));
        let near = nearest(wanted, names()).or(last);
        TemplateFault {
            message: format!("unknown variable `$ctx{}`", shown(name)),
            suggestion: near.map(|near| format!("did you mean `$ctx.{near}`?")),
        }
    })
}

fn push_literal(parts: &mut SmallVec<[Part; 1]>, text: &str) -> Result<(), TemplateFault> {
    if text.is_empty() {
        return Ok(());
    }
    if text.bytes().any(|b| !matches!(b, b' '..=b'~')) {
        return Err(TemplateFault {
            message: "a template is visible ASCII".to_owned(),
            suggestion: None,
        });
    }
    parts.push(Part::Literal(text.into()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_split_into_its_parts() {
        let literal = |text: &str| Part::Literal(text.into());
        for (text, parts) in [
            ("$ctx.user.empId", vec![Part::Employee]),
            ("$ctx.user.roles", vec![Part::Roles]),
            ("plain", vec![literal("plain")]),
            ("", vec![]),
            ("a-$ctx.tenant-b", vec![literal("a-"), Part::Tenant, literal("-b")]),
            ("$ctx.tenant/$ctx.caller", vec![Part::Tenant, literal("/"), Part::Caller]),
            ("$ctx.tenant.", vec![Part::Tenant, literal(".")]),
            ("$$ctx.traceId", vec![literal("$"), Part::TraceId]),
            ("$context", vec![literal("$context")]),
        ] {
            let template = HeaderTemplate::parse(text);
            assert_eq!(template.as_ref().map(|t| t.parts().to_vec()), Ok(parts), "{text}");
            assert_eq!(template.unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_unknown_variable_is_refused_with_what_was_meant() {
        for (text, meant) in [
            ("$ctx.user.empid", Some("$ctx.user.empId")),
            ("$ctx.empId", Some("$ctx.user.empId")),
            ("$ctx.tennant", Some("$ctx.tenant")),
            ("$ctx.password", None),
        ] {
            let fault = HeaderTemplate::parse(text).expect_err(text);
            let suggestion = meant.map(|meant| format!("did you mean `{meant}`?"));
            assert_eq!(fault.suggestion, suggestion, "{text}");
        }
        for text in ["$ctx", "$ctx.", "$ctxtenant", "$ctx..tenant"] {
            assert!(HeaderTemplate::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_would_break_a_header_is_refused() {
        for text in ["a\r\nX: y", "a\nb", "\u{e9}", "a\0", "tab\there"] {
            assert!(HeaderTemplate::parse(text).is_err(), "{text:?}");
        }
    }
}
