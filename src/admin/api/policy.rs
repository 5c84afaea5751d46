//! The policies in force, and the files of revisions that were.

use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};

use super::{Failure, Route, tokens::Need};
use crate::error::Code;

pub(super) const SHOW: Route = Route {
    id: "showPolicy",
    method: Method::GET,
    path: "/admin/api/policy",
    summary: "The revision in force, its files, the revisions that are kept, and what became of \
              the last look at the files: `stale` with every fault if it was rejected.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| async { Ok(api.gateway.policy()) }.boxed(),
};

pub(super) const REVISION: Route = Route {
    id: "showRevision",
    method: Method::GET,
    path: "/admin/api/policy/revisions/{revision}",
    summary: "The exact files of a kept revision.",
    need: Need::Look,
    action: Some("policy_fetch"),
    query: &[],
    body: None,
    run: |api, asked| {
        async move {
            let revision = asked.given();
            let files = api.gateway.revision(revision).map_err(|error| {
                tracing::error!(%error, "A kept revision cannot be read");
                Failure::new(Code::Internal, "what is kept of policies cannot be read")
            })?;
            let files = files.ok_or_else(|| {
                let shown: String = revision.chars().take(64).collect();
                let message = format!("no revision `{shown}` is kept: GET /admin/api/policy lists");
                Failure::new(Code::NotFound, message)
            })?;
            let file = |(path, text): (String, String)| json!({ "path": path, "text": text });
            let files: Vec<Value> = files.into_iter().map(file).collect();
            Ok(json!({ "revision": revision, "files": files }))
        }
        .boxed()
    },
};
