//! MCP-Lite: the request's body is the `params`, the response's body is the `result`.
//!
//! Northbound reading and the errors' form, and southbound the user object that tells a
//! provider who calls.

use super::request;
use crate::{
    error::{Code, Error},
    json::{self, Doc, Kind},
    mcp::{Method, rpc},
    model::{
        call::{Meta, Request},
        caller::Caller,
    },
};

/// Reads the body of `tools/list` or `tools/call`. An empty body of a listing is `{}`.
///
/// # Errors
/// `invalid_args` with 400 for whatever is not the method's `params`.
pub fn read_request(method: Method, doc: Option<&Doc>) -> Result<(Request, Meta), Error> {
    let params = doc.map(Doc::root);
    if params.is_some_and(|params| params.kind() != Kind::Object) {
        return Err(Error::http(Code::InvalidArgs, 400, "the body must be a JSON object")
            .with_rpc_code(rpc::INVALID_REQUEST));
    }
    request::read(method, params)
}

/// The `user` object beside a call: who the gateway says is calling.
pub fn write_user(out: &mut Vec<u8>, caller: &Caller) {
    out.extend_from_slice(b"{");
    if let Some(employee) = &caller.principal.employee {
        out.extend_from_slice(b"\"empId\":");
        json::write_str(out, employee.as_str());
        out.push(b',');
    }
    out.extend_from_slice(b"\"tenant\":");
    json::write_str(out, caller.tenant.as_str());
    out.extend_from_slice(b",\"roles\":[");
    for (index, role) in caller.principal.roles.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_str(out, role.as_str());
    }
    out.extend_from_slice(b"]}");
}
