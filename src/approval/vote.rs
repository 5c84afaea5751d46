//! What people say of a request.

use std::{fmt, sync::Arc};

use crate::model::caller::EmployeeId;

/// Who said something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Voter {
    Employee(EmployeeId),
    /// Whoever looks after the gateway, by the name of his token; he may say no, and never yes.
    Token(Box<str>),
}

/// What one person said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    pub by: Voter,
    /// The rules that it counts for.
    pub rules: Vec<Arc<str>>,
    pub yes: bool,
    pub comment: Option<Box<str>>,
    pub at_ms: u64,
}

// === impl Voter ===

impl Voter {
    pub fn name(&self) -> &str {
        match self {
            Voter::Employee(employee) => employee.as_str(),
            Voter::Token(name) => name,
        }
    }

    pub fn is(&self, employee: &EmployeeId) -> bool {
        matches!(self, Voter::Employee(by) if by == employee)
    }
}

/// An employee by his id, a token so that no employee can be meant.
impl fmt::Display for Voter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Voter::Employee(employee) => f.write_str(employee.as_str()),
            Voter::Token(name) => write!(f, "token:{name}"),
        }
    }
}
