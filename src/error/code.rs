//! The taxonomy of refusals and failures: the only table of codes in the gateway.
//!
//! A row says what a code means on each dialect. It does not render anything; that is
//! `stack/respond.rs`.

use std::fmt;

/// What a caller is told went wrong, in one word that programs can match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    InvalidArgs,
    Unauthenticated,
    CapabilityMissing,
    PermissionDenied,
    NotFound,
    Conflict,
    PayloadTooLarge,
    ServerNotConfigured,
    RateLimited,
    QuotaExhausted,
    ApprovalRequired,
    UnsafeActionBlocked,
    ExternalServiceError,
    Timeout,
    Internal,
}

/// What an agent runtime should do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    RepairArgs,
    Retry,
    Wait,
    Degrade,
    AskHuman,
    Stop,
}

impl Next {
    pub const fn as_str(self) -> &'static str {
        match self {
            Next::RepairArgs => "repair_args",
            Next::Retry => "retry",
            Next::Wait => "wait",
            Next::Degrade => "degrade",
            Next::AskHuman => "ask_human",
            Next::Stop => "stop",
        }
    }
}

/// One row of the table.
struct Row {
    code: Code,
    name: &'static str,
    /// Status on REST dialects; the JSON-RPC code is derived from it.
    status: u16,
    /// May the same call simply be sent again, with nobody doing anything first?
    retryable: bool,
    next: Next,
}

const fn row(code: Code, name: &'static str, status: u16, retryable: bool, next: Next) -> Row {
    Row { code, name, status, retryable, next }
}

/// In the order of the variants, so that a code is its own index.
const TABLE: [Row; 15] = [
    row(Code::InvalidArgs, "invalid_args", 400, false, Next::RepairArgs),
    row(Code::Unauthenticated, "unauthenticated", 401, false, Next::Stop),
    row(Code::CapabilityMissing, "capability_missing", 422, false, Next::Stop),
    row(Code::PermissionDenied, "permission_denied", 403, false, Next::AskHuman),
    row(Code::NotFound, "not_found", 404, false, Next::Stop),
    row(Code::Conflict, "conflict", 409, false, Next::Stop),
    row(Code::PayloadTooLarge, "payload_too_large", 413, false, Next::RepairArgs),
    row(Code::ServerNotConfigured, "server_not_configured", 424, false, Next::AskHuman),
    row(Code::RateLimited, "rate_limited", 429, true, Next::Wait),
    row(Code::QuotaExhausted, "quota_exhausted", 429, false, Next::Degrade),
    row(Code::ApprovalRequired, "approval_required", 403, false, Next::AskHuman),
    row(Code::UnsafeActionBlocked, "unsafe_action_blocked", 403, false, Next::Stop),
    row(Code::ExternalServiceError, "external_service_error", 502, false, Next::Stop),
    row(Code::Timeout, "timeout", 504, false, Next::Stop),
    row(Code::Internal, "internal", 500, false, Next::Stop),
];

impl Code {
    /// Every code, in the table's order.
    pub fn all() -> impl Iterator<Item = Code> {
        TABLE.iter().map(|row| row.code)
    }

    fn row(self) -> &'static Row {
        // The variants are numbered from 0 in the order of TABLE (a test says so).
        &TABLE[self as usize]
    }

    /// The name callers see: `invalid_args`, `rate_limited`, …
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The name that agent platforms know a code by, where it is another one.
    pub fn alias(self) -> Option<&'static str> {
        (self == Code::ServerNotConfigured).then_some("MCP_SERVER_NOT_CONFIGURED")
    }

    /// The HTTP status on MCP-Lite and `/v1`.
    pub fn rest_status(self) -> u16 {
        self.row().status
    }

    /// The JSON-RPC code of a refusal that the protocol itself has no code for:
    /// `-(31000 + REST status)`, outside every reserved range.
    pub fn json_rpc(self) -> i32 {
        -(31_000 + i32::from(self.row().status))
    }

    pub fn retryable(self) -> bool {
        self.row().retryable
    }

    pub fn next(self) -> Next {
        self.row().next
    }

    /// The code of that name, if there is one; providers name theirs in MCP-Lite errors.
    pub fn from_name(name: &str) -> Option<Code> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_index_of_its_row() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, index, "{}", row.name);
            assert_eq!(Code::from_name(row.name), Some(row.code));
        }
    }

    #[test]
    fn json_rpc_codes_stay_outside_the_reserved_ranges() {
        for code in Code::all() {
            assert!(!(-32_768..=-32_000).contains(&code.json_rpc()), "{code}");
        }
        assert_eq!(Code::RateLimited.json_rpc(), -31_429);
    }
}
