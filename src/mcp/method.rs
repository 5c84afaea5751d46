//! Method names.

/// A method of the protocol, as far as the gateway tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    // Of clients.
    Initialize,
    Discover,
    Ping,
    ListTools,
    CallTool,
    ListPrompts,
    GetPrompt,
    ListResources,
    ListTemplates,
    ReadResource,
    Subscribe,
    Unsubscribe,
    Complete,
    SetLevel,
    Listen,
    GetTask,
    UpdateTask,
    CancelTask,
    // Of servers: what they ask.
    CreateMessage,
    Elicit,
    ListRoots,
    // Any `notifications/…`.
    Initialized,
    Cancelled,
    Progress,
    Message,
    ToolsChanged,
    PromptsChanged,
    ResourcesChanged,
    ResourceUpdated,
    RootsChanged,
    Acknowledged,
    TaskStatus,
    ElicitationComplete,
    /// Named by the protocol or not, the gateway does not serve it.
    Other,
}

impl Method {
    /// Every method, in the order of the variants.
    pub const ALL: [Method; 34] = [
        Method::Initialize,
        Method::Discover,
        Method::Ping,
        Method::ListTools,
        Method::CallTool,
        Method::ListPrompts,
        Method::GetPrompt,
        Method::ListResources,
        Method::ListTemplates,
        Method::ReadResource,
        Method::Subscribe,
        Method::Unsubscribe,
        Method::Complete,
        Method::SetLevel,
        Method::Listen,
        Method::GetTask,
        Method::UpdateTask,
        Method::CancelTask,
        Method::CreateMessage,
        Method::Elicit,
        Method::ListRoots,
        Method::Initialized,
        Method::Cancelled,
        Method::Progress,
        Method::Message,
        Method::ToolsChanged,
        Method::PromptsChanged,
        Method::ResourcesChanged,
        Method::ResourceUpdated,
        Method::RootsChanged,
        Method::Acknowledged,
        Method::TaskStatus,
        Method::ElicitationComplete,
        Method::Other,
    ];

    pub fn parse(name: &str) -> Method {
        match name {
            "initialize" => Method::Initialize,
            "server/discover" => Method::Discover,
            "ping" => Method::Ping,
            "tools/list" => Method::ListTools,
            "tools/call" => Method::CallTool,
            "prompts/list" => Method::ListPrompts,
            "prompts/get" => Method::GetPrompt,
            "resources/list" => Method::ListResources,
            "resources/templates/list" => Method::ListTemplates,
            "resources/read" => Method::ReadResource,
            "resources/subscribe" => Method::Subscribe,
            "resources/unsubscribe" => Method::Unsubscribe,
            "completion/complete" => Method::Complete,
            "logging/setLevel" => Method::SetLevel,
            "subscriptions/listen" => Method::Listen,
            "tasks/get" => Method::GetTask,
            "tasks/update" => Method::UpdateTask,
            "tasks/cancel" => Method::CancelTask,
            "sampling/createMessage" => Method::CreateMessage,
            "elicitation/create" => Method::Elicit,
            "roots/list" => Method::ListRoots,
            "notifications/initialized" => Method::Initialized,
            "notifications/cancelled" => Method::Cancelled,
            "notifications/progress" => Method::Progress,
            "notifications/message" => Method::Message,
            "notifications/tools/list_changed" => Method::ToolsChanged,
            "notifications/prompts/list_changed" => Method::PromptsChanged,
            "notifications/resources/list_changed" => Method::ResourcesChanged,
            "notifications/resources/updated" => Method::ResourceUpdated,
            "notifications/roots/list_changed" => Method::RootsChanged,
            "notifications/subscriptions/acknowledged" => Method::Acknowledged,
            "notifications/tasks" => Method::TaskStatus,
            "notifications/elicitation/complete" => Method::ElicitationComplete,
            _ => Method::Other,
        }
    }

    /// Whether a server may ask its client something before it answers.
    pub const fn may_ask(self) -> bool {
        matches!(self, Method::CallTool | Method::GetPrompt | Method::ReadResource)
    }

    /// The name in spans, metrics and records; an unknown one is `_OTHER`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Initialize => "initialize",
            Method::Discover => "server/discover",
            Method::Ping => "ping",
            Method::ListTools => "tools/list",
            Method::CallTool => "tools/call",
            Method::ListPrompts => "prompts/list",
            Method::GetPrompt => "prompts/get",
            Method::ListResources => "resources/list",
            Method::ListTemplates => "resources/templates/list",
            Method::ReadResource => "resources/read",
            Method::Subscribe => "resources/subscribe",
            Method::Unsubscribe => "resources/unsubscribe",
            Method::Complete => "completion/complete",
            Method::SetLevel => "logging/setLevel",
            Method::Listen => "subscriptions/listen",
            Method::GetTask => "tasks/get",
            Method::UpdateTask => "tasks/update",
            Method::CancelTask => "tasks/cancel",
            Method::CreateMessage => "sampling/createMessage",
            Method::Elicit => "elicitation/create",
            Method::ListRoots => "roots/list",
            Method::Initialized => "notifications/initialized",
            Method::Cancelled => "notifications/cancelled",
            Method::Progress => "notifications/progress",
            Method::Message => "notifications/message",
            Method::ToolsChanged => "notifications/tools/list_changed",
            Method::PromptsChanged => "notifications/prompts/list_changed",
            Method::ResourcesChanged => "notifications/resources/list_changed",
            Method::ResourceUpdated => "notifications/resources/updated",
            Method::RootsChanged => "notifications/roots/list_changed",
            Method::Acknowledged => "notifications/subscriptions/acknowledged",
            Method::TaskStatus => "notifications/tasks",
            Method::ElicitationComplete => "notifications/elicitation/complete",
            Method::Other => "_OTHER",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_known_by_its_name() {
        for (index, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, index);
            assert_eq!(Method::parse(method.as_str()), method);
        }
    }
}
