//! A server with the Tasks extension, on the official Rust SDK, for the conformance suite's tasks
//! scenarios: how tasks are kept is the SDK's doing, and none of ours.
//!
//! `cargo run --example tasks_upstream -- [PORT]` serves on loopback (0, the default, takes a
//! free port) and says where. The tools are the ones that the scenarios ask for. `render_report`
//! is one more: nobody gets it without the extension, so a gateway has to see it through for
//! clients that do not speak it.

#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::{future::Future, net::Ipv4Addr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
        ClientCapabilities, ContentBlock, CreateTaskResult, ElicitRequest, ElicitRequestParams,
        GetTaskParams, GetTaskResult, InputRequest, InputRequests, InputRequiredResult, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
        UpdateTaskParams,
    },
    service::RequestContext,
    task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

type Done = Result<CallToolResult, TaskExit>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("tasks upstream on http://{}/mcp", listener.local_addr()?);
    let tasks = TaskManager::new();
    // Without sessions its handshake side answers what it can; the stateless side is what counts.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let service = StreamableHttpService::new(
        move || Ok(Upstream { tasks: tasks.clone() }),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            // A client that hangs up is no fault of the server.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[derive(Clone)]
struct Upstream {
    tasks: TaskManager,
}

impl ServerHandler for Upstream {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let declared = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let argument = |name: &str| {
            let arguments = request.arguments.as_ref();
            arguments.and_then(|arguments| arguments.get(name)).cloned().unwrap_or(Value::Null)
        };
        let text = |name: &str| argument(name).as_str().unwrap_or_default().to_owned();
        let seconds = Duration::from_secs_f64(argument("seconds").as_f64().unwrap_or_default());
        match &*request.name {
            "greet" => Ok(said(format!("Hello, {}!", text("name"))).into()),
            // With the extension always a task, without it at once or not at all.
            "slow_compute" if !declared && seconds <= Duration::from_secs(1) => {
                tokio::time::sleep(seconds).await;
                Ok(said(format!("computed {}", text("label"))).into())
            }
            _ if !declared => Err(ErrorData::missing_required_client_capability(
                ClientCapabilities::builder().enable_tasks().build(),
            )),
            "slow_compute" => {
                let label = text("label");
                Ok(self.task(move |task| async move {
                    tokio::select! {
                        () = task.cancelled() => Err(TaskExit::Cancelled),
                        () = tokio::time::sleep(seconds) => Ok(said(format!("computed {label}"))),
                    }
                }))
            }
            "render_report" => Ok(self.task(move |task| async move {
                task.set_status_message("rendering");
                tokio::select! {
                    () = task.cancelled() => Err(TaskExit::Cancelled),
                    () = tokio::time::sleep(seconds) => Ok(said("the report".to_owned())),
                }
            })),
            "failing_job" => Ok(self.task(|_| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(CallToolResult::error(vec![ContentBlock::text("the job failed")]))
            })),
            "protocol_error_job" => Ok(self.task(|_| async {
                Err(TaskExit::Error(ErrorData::internal_error("the job broke", None)))
            })),
            "confirm_delete" => {
                let name = text("filename");
                Ok(self.task(move |task| async move {
                    let question = form(&format!("Delete {name}?"), "confirm", "boolean");
                    let answer = task.request_input("confirm", question).await?;
                    let gone = answer["action"] == "accept" && answer["content"]["confirm"] == true;
                    Ok(said(format!("{name} is {}", if gone { "gone" } else { "still there" })))
                }))
            }
            "multi_input" => Ok(self.task(both)),
            "test_tool_with_task" => {
                let answers = request.input_responses.as_ref();
                let Some(answer) = answers.and_then(|answers| answers.get("user_name")) else {
                    let mut questions = InputRequests::new();
                    questions.insert("user_name".into(), form("Who asks?", "name", "string"));
                    return Ok(InputRequiredResult::from_input_requests(questions).into());
                };
                let name = answer["content"]["name"].as_str().unwrap_or_default().to_owned();
                Ok(self.task(move |_| async move { Ok(said(format!("done for {name}"))) }))
            }
            name => Err(ErrorData::invalid_params(format!("unknown tool: {name}"), None)),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

impl Upstream {
    fn task<F>(&self, work: impl FnOnce(TaskContext) -> F) -> CallToolResponse
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let options = TaskOptions::new().with_ttl_ms(300_000).with_poll_interval_ms(100);
        let task = self.tasks.spawn(options, |context| Box::pin(work(context)));
        CallToolResponse::Task(CreateTaskResult::new(task))
    }
}

/// Two questions at once, which may be answered one by one.
async fn both(task: TaskContext) -> Done {
    let first = task.request_input("first", form("And who?", "name", "string"));
    let second = task.request_input("second", form("Who else?", "name", "string"));
    let (first, second) = tokio::try_join!(first, second)?;
    let name = |answer: &Value| answer["content"]["name"].as_str().unwrap_or("nobody").to_owned();
    Ok(said(format!("{} and {}", name(&first), name(&second))))
}

fn said(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn form(message: &str, field: &str, of_type: &str) -> InputRequest {
    let schema = json!({ "type": "object", "properties": { field: { "type": of_type } }, "required": [field] });
    InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: serde_json::from_value(schema).expect("a form of one field"),
    }))
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, description: &'static str, properties: Value| {
        let mut schema = JsonObject::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties);
        Tool::new(name, description, schema)
    };
    let text = json!({ "type": "string" });
    let number = json!({ "type": "number" });
    vec![
        tool("greet", "Says hello at once.", json!({ "name": text })),
        tool("slow_compute", "Takes its seconds.", json!({ "seconds": number, "label": text })),
        tool("render_report", "A task, whoever asks.", json!({ "seconds": number })),
        tool("failing_job", "A task whose result is an error.", json!({})),
        tool("protocol_error_job", "A task that breaks.", json!({})),
        tool("confirm_delete", "A task that asks first.", json!({ "filename": text })),
        tool("multi_input", "A task that asks two things at once.", json!({})),
        tool("test_tool_with_task", "Asks, and then becomes a task.", json!({})),
    ]
}
