//! Which surface and which dialect a path stands for.
//!
//! Looks at the path alone: what methods a surface takes is the dialect's business.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::{
    mcp::Method,
    model::{
        call::{Route, Surface},
        server::UpstreamName,
    },
};

/// The paths of one set of upstreams.
#[derive(Debug, Clone, Default)]
pub struct Router(HashMap<Box<str>, UpstreamName, RandomState>);

impl Router {
    pub fn new(upstreams: impl IntoIterator<Item = UpstreamName>) -> Self {
        Self(upstreams.into_iter().map(|name| (name.as_str().into(), name)).collect())
    }

    /// Reads a path. One slash at its end is forgiven; nothing else is.
    pub fn route(&self, path: &str) -> Option<Route> {
        if path.starts_with("/v1/") {
            return Some(Route::V1);
        }
        let rest = path.strip_prefix("/mcp")?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Some(Route::Mcp(Surface::Aggregate));
        }
        let rest = rest.strip_prefix('/')?;
        if rest == "http" {
            return Some(Route::Mcp(Surface::Aggregate));
        }
        if let Some(method) = lite_method(rest) {
            return Some(Route::Lite(Surface::Aggregate, method));
        }
        let (name, rest) = match rest.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (rest, None),
        };
        // Whether there is such a server is another matter, and not the same for everybody.
        let name = self.0.get(name).cloned().or_else(|| UpstreamName::of_key(name))?;
        let surface = Surface::Upstream(name);
        match rest {
            None => Some(Route::Mcp(surface)),
            Some(rest) => Some(Route::Lite(surface, lite_method(rest)?)),
        }
    }
}

/// The method that the end of a REST path names.
fn lite_method(path: &str) -> Option<Method> {
    match path {
        "tools/list" => Some(Method::ListTools),
        "tools/call" => Some(Method::CallTool),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_one_meaning() {
        let orders = UpstreamName::parse("orders").unwrap();
        let router = Router::new([orders.clone()]);
        let aggregate = || Surface::Aggregate;
        let upstream = || Surface::Upstream(orders.clone());
        let own = || Surface::Upstream(UpstreamName::of_key("mcp_orders_7f3a2c91").unwrap());
        let mcp = |surface| Some(Route::Mcp(surface));
        let lite = |surface, method| Some(Route::Lite(surface, method));
        for (path, expected) in [
            ("/mcp", mcp(aggregate())),
            ("/mcp/", mcp(aggregate())),
            ("/mcp/http", mcp(aggregate())),
            ("/mcp/orders", mcp(upstream())),
            ("/mcp/orders/", mcp(upstream())),
            ("/mcp/mcp_orders_7f3a2c91", mcp(own())),
            ("/mcp/mcp_orders_7f3a2c91/tools/call", lite(own(), Method::CallTool)),
            ("/mcp/mcp_orders_7f3a2c9", None),
            ("/mcp/tools/list", lite(aggregate(), Method::ListTools)),
            ("/mcp/tools/call", lite(aggregate(), Method::CallTool)),
            ("/mcp/orders/tools/list", lite(upstream(), Method::ListTools)),
            ("/mcp/orders/tools/call", lite(upstream(), Method::CallTool)),
            ("/v1/approvals", Some(Route::V1)),
            ("/v1/", Some(Route::V1)),
            ("/v1", None),
            ("/v10/approvals", None),
            ("/", None),
            ("", None),
            ("/mcpx", None),
            ("/mcp//", None),
            ("/MCP", None),
            ("/mcp/other", None),
            ("/mcp/tools", None),
            ("/mcp/lite", None),
            ("/mcp/http/tools/list", None),
            ("/mcp/orders/tools", None),
            ("/mcp/orders//tools/list", None),
            ("/mcp/%6frders", None),
            ("/mcp/../mcp", None),
        ] {
            assert_eq!(router.route(path), expected, "{path}");
        }
    }
}
