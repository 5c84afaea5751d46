//! Which surface and which dialect a path stands for.
//!
//! Looks at the path alone: what methods a surface takes is the dialect's business.

use std::collections::HashMap;

use crate::model::{call::Surface, server::UpstreamName};

/// What a path stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Standard MCP.
    Mcp {
        surface: Surface,
    },
    /// The platform's REST form.
    Lite {
        surface: Surface,
        method: LiteMethod,
    },
    NotFound,
}

/// What the REST form can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiteMethod {
    List,
    Call,
}

/// The paths of one set of upstreams.
#[derive(Debug, Clone, Default)]
pub struct Router(HashMap<Box<str>, UpstreamName>);

impl Router {
    pub fn new(upstreams: impl IntoIterator<Item = UpstreamName>) -> Self {
        Self(upstreams.into_iter().map(|name| (name.as_str().into(), name)).collect())
    }

    /// Reads a path. One slash at its end is forgiven; nothing else is.
    pub fn route(&self, path: &str) -> Route {
        let Some(rest) = path.strip_prefix("/mcp") else { return Route::NotFound };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Route::Mcp { surface: Surface::Aggregate };
        }
        let Some(rest) = rest.strip_prefix('/') else { return Route::NotFound };
        if rest == "http" {
            return Route::Mcp { surface: Surface::Aggregate };
        }
        if let Some(method) = LiteMethod::of(rest) {
            return Route::Lite { surface: Surface::Aggregate, method };
        }
        let (name, rest) = match rest.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (rest, None),
        };
        let Some(upstream) = self.0.get(name) else { return Route::NotFound };
        let surface = Surface::Upstream(upstream.clone());
        match rest.map(LiteMethod::of) {
            None => Route::Mcp { surface },
            Some(Some(method)) => Route::Lite { surface, method },
            Some(None) => Route::NotFound,
        }
    }
}

impl LiteMethod {
    fn of(path: &str) -> Option<Self> {
        match path {
            "tools/list" => Some(LiteMethod::List),
            "tools/call" => Some(LiteMethod::Call),
            _ => None,
        }
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
        let mcp = |surface| Route::Mcp { surface };
        let lite = |surface, method| Route::Lite { surface, method };
        for (path, expected) in [
            ("/mcp", mcp(aggregate())),
            ("/mcp/", mcp(aggregate())),
            ("/mcp/http", mcp(aggregate())),
            ("/mcp/orders", mcp(upstream())),
            ("/mcp/orders/", mcp(upstream())),
            ("/mcp/tools/list", lite(aggregate(), LiteMethod::List)),
            ("/mcp/tools/call", lite(aggregate(), LiteMethod::Call)),
            ("/mcp/orders/tools/list", lite(upstream(), LiteMethod::List)),
            ("/mcp/orders/tools/call", lite(upstream(), LiteMethod::Call)),
            ("/", Route::NotFound),
            ("", Route::NotFound),
            ("/mcpx", Route::NotFound),
            ("/mcp//", Route::NotFound),
            ("/MCP", Route::NotFound),
            ("/mcp/other", Route::NotFound),
            ("/mcp/tools", Route::NotFound),
            ("/mcp/lite", Route::NotFound),
            ("/mcp/http/tools/list", Route::NotFound),
            ("/mcp/orders/tools", Route::NotFound),
            ("/mcp/orders//tools/list", Route::NotFound),
            ("/mcp/%6frders", Route::NotFound),
            ("/mcp/../mcp", Route::NotFound),
        ] {
            assert_eq!(router.route(path), expected, "{path}");
        }
    }
}
