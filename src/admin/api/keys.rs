//! The keyring: how it stands in the file and here, and taking what is stored along to the key
//! that is used at present. What changes the file is done with `hangu keys`, where the file is.

use futures_util::FutureExt;
use http::{Method, StatusCode};

use super::{Failure, Route, tokens::Need};
use crate::error::Code;

pub(super) const SHOW: Route = Route {
    id: "showKeys",
    method: Method::GET,
    path: "/admin/api/keys",
    summary: "Each key of the keyring: its state, how often it has wrapped, and what is stored \
              under it; whether this replica uses the file as it is now (`current`), and how far a \
              rewrapping has come. Nothing of what a key is made of.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| {
        async {
            api.gateway.keys().await.map_err(|why| {
                tracing::error!(error = why, "It is not known how the keyring stands");
                Failure::new(
                    Code::Internal,
                    "it cannot be told how the keyring stands: see the log",
                )
            })
        }
        .boxed()
    },
};

pub(super) const REWRAP: Route = Route {
    id: "rewrapCredentials",
    method: Method::POST,
    path: "/admin/api/keys/rewrap",
    summary: "Begins to wrap the data keys of stored credentials with the primary key, unless that \
              is under way. GET /admin/api/keys says how far it has come. Nothing is opened, and \
              each credential is good at every moment.",
    need: Need::Secure,
    action: Some("keys_rewrap"),
    query: &[],
    body: None,
    run: |api, _| {
        async {
            api.gateway.rewrap().map_err(|why| Failure {
                status: StatusCode::CONFLICT,
                ..Failure::new(Code::Conflict, why)
            })
        }
        .boxed()
    },
};
