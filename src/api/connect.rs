//! Where an employee grants the gateway a token for a server.

use std::sync::Arc;

use http::Response;
use serde_json::json;

use super::{answer, input::shown};
use crate::{
    body::Body,
    error::{Code, Error},
    model::caller::Caller,
};

/// Where the caller's employee connects to the operator's server of this key, if he can. Whether he
/// sees the server is asked before.
pub type Invite = Arc<dyn Fn(&str, &Caller) -> Option<String> + Send + Sync>;

/// Tells an employee where to connect.
pub(super) fn connect(url: Option<String>, id: &str) -> Result<Response<Body>, Error> {
    let url = url.ok_or_else(|| {
        let message = format!("nobody connects to {}: it is no server that you see with `oauth`, or the gateway has no `public_url`", shown(id));
        Error::new(Code::NotFound, message)
    })?;
    Ok(answer(json!({ "connectUrl": url }).to_string().into_bytes()))
}
