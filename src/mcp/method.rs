//! Method names.

/// A method of the protocol, as far as the gateway tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    Initialize,
    Discover,
    Ping,
    ListTools,
    CallTool,
    /// Any `notifications/…`.
    Initialized,
    Cancelled,
    Progress,
    /// Named by the protocol or not, the gateway does not serve it.
    Other,
}

impl Method {
    /// Every method, in the order of the variants.
    pub const ALL: [Method; 9] = [
        Method::Initialize,
        Method::Discover,
        Method::Ping,
        Method::ListTools,
        Method::CallTool,
        Method::Initialized,
        Method::Cancelled,
        Method::Progress,
        Method::Other,
    ];

    pub fn parse(name: &str) -> Method {
        match name {
            "initialize" => Method::Initialize,
            "server/discover" => Method::Discover,
            "ping" => Method::Ping,
            "tools/list" => Method::ListTools,
            "tools/call" => Method::CallTool,
            "notifications/initialized" => Method::Initialized,
            "notifications/cancelled" => Method::Cancelled,
            "notifications/progress" => Method::Progress,
            _ => Method::Other,
        }
    }

    /// The name in spans, metrics and records; an unknown one is `_OTHER`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Initialize => "initialize",
            Method::Discover => "server/discover",
            Method::Ping => "ping",
            Method::ListTools => "tools/list",
            Method::CallTool => "tools/call",
            Method::Initialized => "notifications/initialized",
            Method::Cancelled => "notifications/cancelled",
            Method::Progress => "notifications/progress",
            Method::Other => "_OTHER",
        }
    }
}
