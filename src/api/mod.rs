//! What an employee may ask for under `/v1`: a resource a file.
//!
//! Who asks is established before a request gets here, and every call that is made here goes
//! through the same stack as one that came by MCP.

use http::Response;

use crate::{
    body::Body,
    error::{Code, Error},
    stack::{
        stage::BoxFuture,
        v1::{Api, ApiRequest, Calls},
    },
};

/// Everything under `/v1`.
#[derive(Debug, Default)]
pub struct V1;

impl Api for V1 {
    fn answer(&self, request: ApiRequest, _calls: Calls) -> BoxFuture<Response<Body>> {
        let path = request.parts.uri.path().to_owned();
        Box::pin(async move {
            let shown: String = path.chars().take(128).collect();
            Err(Error::new(Code::NotFound, format!("nothing is served at {shown}")))
        })
    }
}
