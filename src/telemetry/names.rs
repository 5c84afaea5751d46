//! The names of everything the gateway emits: the contract that dashboards depend on.
//!
//! Nothing else spells a name of a metric, a label or an attribute.

/// Stands for every value that is not from the catalog or the configuration.
pub const OTHER: &str = "_OTHER";
/// `service.name` unless the environment says otherwise, and the name of the spans' scope.
pub const SERVICE: &str = "hangu";
/// `gen_ai.operation.name` of a tool call.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// `error.type` of a result that says itself that it is an error.
pub const TOOL_ERROR: &str = "tool_error";

/// Attributes of spans, and labels of metrics.
pub mod attribute {
    pub const CLIENT_ADDRESS: &str = "client.address";
    pub const CLIENT_PORT: &str = "client.port";
    pub const ERROR_TYPE: &str = "error.type";
    pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
    pub const GEN_AI_PROMPT_NAME: &str = "gen_ai.prompt.name";
    pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
    pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
    pub const HTTP_REQUEST_METHOD: &str = "http.request.method";
    pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
    pub const HTTP_ROUTE: &str = "http.route";
    pub const JSONRPC_REQUEST_ID: &str = "jsonrpc.request.id";
    pub const MCP_METHOD_NAME: &str = "mcp.method.name";
    pub const MCP_PROTOCOL_VERSION: &str = "mcp.protocol.version";
    pub const MCP_RESOURCE_URI: &str = "mcp.resource.uri";
    pub const MCP_SESSION_ID: &str = "mcp.session.id";
    pub const NETWORK_PROTOCOL_NAME: &str = "network.protocol.name";
    pub const NETWORK_PROTOCOL_VERSION: &str = "network.protocol.version";
    pub const NETWORK_TRANSPORT: &str = "network.transport";
    pub const RPC_RESPONSE_STATUS_CODE: &str = "rpc.response.status_code";
    pub const SERVER_ADDRESS: &str = "server.address";
    pub const SERVER_PORT: &str = "server.port";
    pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
    pub const SERVICE_NAME: &str = "service.name";
    pub const SERVICE_VERSION: &str = "service.version";

    pub const APPROVAL_STATE: &str = "hangu.approval.state";
    pub const ARGS_HASH: &str = "hangu.args.hash";
    pub const ATTEMPT: &str = "hangu.attempt";
    pub const AUDIT_ID: &str = "hangu.audit.id";
    pub const AUDIT_RESULT: &str = "hangu.audit.result";
    pub const AUDIT_SINK: &str = "hangu.audit.sink";
    pub const CALL_SOURCE: &str = "hangu.call.source";
    pub const DECISION: &str = "hangu.decision";
    pub const ERROR_CODE: &str = "hangu.error.code";
    pub const FALLBACK: &str = "hangu.fallback";
    pub const IDEMPOTENCY: &str = "hangu.idempotency";
    pub const LIMIT_KIND: &str = "hangu.limit.kind";
    pub const LIMIT_NAME: &str = "hangu.limit.name";
    pub const METHOD_ORIGINAL: &str = "hangu.method.original";
    pub const NOTICE_RESULT: &str = "hangu.notice.result";
    pub const OUTCOME: &str = "hangu.outcome";
    pub const POLICY_MODE: &str = "hangu.policy.mode";
    pub const POLICY_REVISION: &str = "hangu.policy.revision";
    pub const POLICY_RULE_ID: &str = "hangu.policy.rule.id";
    pub const POLICY_SHADOW: &str = "hangu.policy.shadow";
    pub const PRINCIPAL_HASH: &str = "hangu.principal.hash";
    pub const REASON: &str = "hangu.reason";
    pub const RELOAD_RESULT: &str = "hangu.reload.result";
    pub const RESULT_REF: &str = "hangu.result.ref";
    pub const RETRY_RESULT: &str = "hangu.retry.result";
    pub const RISK: &str = "hangu.risk";
    pub const ROLES: &str = "hangu.roles";
    pub const SERVER_KEY: &str = "hangu.server.key";
    pub const TENANT: &str = "hangu.tenant";
    pub const UPSTREAM: &str = "hangu.upstream";
}

/// Instruments. On `/metrics` dots are underscores, and the unit's suffix follows.
pub mod metric {
    pub const APPROVAL_NOTICES: &str = "hangu.approval.notices";
    pub const APPROVAL_REQUESTS: &str = "hangu.approval.requests";
    pub const APPROVAL_WAIT_DURATION: &str = "hangu.approval.wait.duration";
    pub const AUDIT_QUEUE_DEPTH: &str = "hangu.audit.queue.depth";
    pub const AUDIT_RECORDS: &str = "hangu.audit.records";
    pub const AUDIT_WRITE_DURATION: &str = "hangu.audit.write.duration";
    pub const CATALOG_TOOLS: &str = "hangu.catalog.tools";
    pub const CLIENT_DURATION: &str = "mcp.client.operation.duration";
    pub const CLIENT_SESSION: &str = "mcp.client.session.duration";
    pub const HTTP_SERVER_DURATION: &str = "http.server.request.duration";
    pub const IDEMPOTENCY_REQUESTS: &str = "hangu.idempotency.requests";
    pub const LIMIT_FALLBACKS: &str = "hangu.limit.fallbacks";
    pub const LIMIT_REJECTIONS: &str = "hangu.limit.rejections";
    pub const OVERHEAD_DURATION: &str = "hangu.overhead.duration";
    pub const PIN_MISMATCHES: &str = "hangu.pin.mismatches";
    pub const POLICY_DECISIONS: &str = "hangu.policy.decisions";
    pub const POLICY_INFO: &str = "hangu.policy.info";
    pub const POLICY_RELOADS: &str = "hangu.policy.reloads";
    pub const QUOTA_UTILIZATION: &str = "hangu.quota.utilization";
    pub const REQUESTS_ACTIVE: &str = "hangu.requests.active";
    pub const SERVER_DURATION: &str = "mcp.server.operation.duration";
    pub const SERVER_SESSION: &str = "mcp.server.session.duration";
    pub const STREAMS_ACTIVE: &str = "hangu.streams.active";
    pub const TRACE_CONTEXT_INVALID: &str = "hangu.trace_context.invalid";
    pub const UPSTREAM_BREAKER: &str = "hangu.upstream.breaker.state";
    pub const UPSTREAM_BREAKER_REJECTIONS: &str = "hangu.upstream.breaker.rejections";
    pub const UPSTREAM_RETRIES: &str = "hangu.upstream.retries";
    pub const UPSTREAM_UP: &str = "hangu.upstream.up";
}
