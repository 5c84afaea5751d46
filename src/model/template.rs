//! Header values as the operator writes them: a secret, or text with `$ctx` variables.
//!
//! What a variable stands for is filled in by whoever sends the request; an unknown one is a
//! fault of the configuration, never an empty string.

use secrecy::SecretString;

/// A fact of the call that a header may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    EmployeeId,
    Roles,
    Tenant,
    Caller,
    CallSource,
    RequestId,
    TraceId,
}

impl Variable {
    pub const ALL: [Variable; 7] = [
        Variable::EmployeeId,
        Variable::Roles,
        Variable::Tenant,
        Variable::Caller,
        Variable::CallSource,
        Variable::RequestId,
        Variable::TraceId,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Variable::EmployeeId => "$ctx.user.empId",
            Variable::Roles => "$ctx.user.roles",
            Variable::Tenant => "$ctx.tenant",
            Variable::Caller => "$ctx.caller",
            Variable::CallSource => "$ctx.callSource",
            Variable::RequestId => "$ctx.requestId",
            Variable::TraceId => "$ctx.traceId",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Variable(Variable),
}

/// Text with variables in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

/// A `$ctx.…` that stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no value that a header can carry")]
pub struct UnknownVariable(pub String);

impl Template {
    /// Reads a template. A dollar sign that begins no `$ctx.` is text.
    ///
    /// # Errors
    /// A name after `$ctx.` that is none of [`Variable::ALL`].
    pub fn parse(text: &str) -> Result<Self, UnknownVariable> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("$ctx.") {
            if start > 0 {
                pieces.push(Piece::Text(rest[..start].into()));
            }
            let word = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
            let tail = &rest[start + 1..];
            let end = tail.find(|c| !word(c)).unwrap_or(tail.len());
            // A full stop ends a sentence as well as a name.
            let name = tail[..end].trim_end_matches('.');
            let variable = Variable::ALL
                .into_iter()
                .find(|variable| variable.as_str().strip_prefix('$') == Some(name))
                .ok_or_else(|| UnknownVariable(format!("${name}")))?;
            pieces.push(Piece::Variable(variable));
            rest = &tail[name.len()..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Self(pieces))
    }

    /// Whether the text is the same for every call.
    pub fn is_constant(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The value; `None` where a variable has none.
    pub fn render(&self, mut value: impl FnMut(Variable, &mut String) -> bool) -> Option<String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Variable(variable) => {
                    if !value(*variable, &mut out) {
                        return None;
                    }
                }
            }
        }
        Some(out)
    }
}

/// Where a header's value comes from.
#[derive(Debug, Clone)]
pub enum HeaderSource {
    Secret(SecretString),
    Template(Template),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> Option<String> {
        Template::parse(text).unwrap().render(|variable, out| {
            out.push_str(match variable {
                Variable::EmployeeId => "E1",
                Variable::Tenant => "acme",
                _ => return false,
            });
            true
        })
    }

    #[test]
    fn variables_stand_in_text() {
        assert_eq!(render("$ctx.user.empId").as_deref(), Some("E1"));
        assert_eq!(render("a $ctx.tenant/$ctx.user.empId.").as_deref(), Some("a acme/E1."));
        assert_eq!(render("costs $5").as_deref(), Some("costs $5"));
        assert_eq!(render("x $ctx.traceId"), None);
    }

    #[test]
    fn an_unknown_variable_is_a_fault() {
        let fault = Template::parse("$ctx.user.name").unwrap_err();
        assert_eq!(fault.0, "$ctx.user.name");
    }
}
