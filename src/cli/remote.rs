//! Asking a running gateway: one request, one answer, and honest words where there is none. Whom
//! a verb asks, and how it tells the answer, is `remote/asked.rs`.
//!
//! Keys and tokens come from the environment and are never a flag, which every process of the
//! machine could read. What an answer means is the verbs' business.

mod asked;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use tokio::time::timeout;
use tower::Service;
use url::Url;

pub use self::asked::{AdminAsked, Asked, AskedAsEither};
use super::tell::CommandError;
use crate::{
    body::{self, Body},
    config,
    fault::escape,
    mcp::header as own,
    upstream::{
        Cluster, ClusterConfig, Destination, Egress, EgressConfig, Endpoint, Failure, Guard,
        Outgoing, Transport, Trust, Upstreams,
    },
};

/// The most that an answer may hold.
const MAX_ANSWER: usize = 64 << 20;

/// Where a gateway listens unless its configuration says otherwise.
const DATA: &str = "http://127.0.0.1:8080";
const ADMIN: &str = "http://127.0.0.1:9090";

/// How long an answer is waited for unless a flag says otherwise, in seconds.
const SECONDS: u64 = 10;

/// Where the gateway is that employees call.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "The gateway")]
pub struct DataAddress {
    /// Where the gateway is
    #[arg(long, value_name = "URL", default_value = DATA, env = "HANGU_URL")]
    url: String,
    #[command(flatten)]
    patience: Patience,
}

/// Where the gateway's admin listener is.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "The gateway")]
pub struct AdminAddress {
    /// Where the gateway's admin listener is
    #[arg(
        long = "url",
        value_name = "URL",
        default_value = ADMIN,
        env = "HANGU_ADMIN_URL"
    )]
    url: String,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Debug, Clone, clap::Args)]
struct Patience {
    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// A gateway that can be asked.
pub struct Gateway {
    base: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    /// The variable that names another one.
    variable: &'static str,
}

impl DataAddress {
    /// The gateway as an employee calls it: with the key of `HANGU_API_KEY`, for the employee of
    /// `HANGU_EMP_ID` unless the key stands for one.
    pub fn gateway(&self) -> Result<Gateway, CommandError> {
        let key = variable("HANGU_API_KEY").ok_or_else(|| {
            CommandError::Usage("set HANGU_API_KEY to the key of a caller".to_owned())
        })?;
        let mut headers = vec![(own::API_KEY, secret("HANGU_API_KEY", &key)?)];
        if let Some(employee) = variable("HANGU_EMP_ID") {
            headers.push((own::EMPLOYEE, secret("HANGU_EMP_ID", &employee)?));
        }
        Gateway::new(&self.url, headers, &self.patience, "HANGU_URL")
    }
}

impl AdminAddress {
    /// The admin listener, with the token of `HANGU_ADMIN_TOKEN`.
    pub fn gateway(&self) -> Result<Gateway, CommandError> {
        let token = variable("HANGU_ADMIN_TOKEN").ok_or_else(|| {
            CommandError::Usage("set HANGU_ADMIN_TOKEN to the token of the admin listener".into())
        })?;
        let bearer = secret("HANGU_ADMIN_TOKEN", &format!("Bearer {token}"))?;
        let headers = vec![(header::AUTHORIZATION, bearer)];
        Gateway::new(&self.url, headers, &self.patience, "HANGU_ADMIN_URL")
    }
}

impl AdminAddress {
    /// One that is not given by the usual flags.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), patience: Patience { timeout: SECONDS } }
    }
}

/// What a gateway answers.
pub fn read<T: serde::de::DeserializeOwned>(answer: &[u8]) -> Result<T, CommandError> {
    serde_json::from_slice(answer).map_err(|error| {
        CommandError::Environment(format!("the gateway's answer cannot be read: {error}"))
    })
}

/// A part of a path or of a query, as it is written there.
pub fn escaped(part: &str) -> String {
    url::form_urlencoded::byte_serialize(part.as_bytes()).collect::<String>().replace('+', "%20")
}

impl Gateway {
    /// The same gateway, told one more thing with each request.
    #[must_use]
    pub fn saying(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn new(
        url: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
        patience: &Patience,
        variable: &'static str,
    ) -> Result<Self, CommandError> {
        let bad = |why: &str| {
            // It may hold what it is refused for.
            Err(CommandError::Usage(format!("--url (or {variable}) {why}")))
        };
        let Ok(base) = Url::parse(url) else {
            return bad("is not an address such as `http://127.0.0.1:8080`");
        };
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none_or(str::is_empty) {
            return bad("is not an address such as `http://127.0.0.1:8080`");
        }
        if !base.username().is_empty() || base.password().is_some() {
            return bad("holds a user or a password: keys come from the environment");
        }
        if base.query().is_some() || base.fragment().is_some() {
            return bad("has a `?` or a `#`: it is the address of the gateway alone");
        }
        let timeout = Duration::from_secs(patience.timeout);
        Ok(Self { base, headers, timeout, variable })
    }

    /// The body of a good answer.
    pub fn get(&self, path: &str) -> Result<Bytes, CommandError> {
        self.ask(Method::GET, path, None)
    }

    /// The same, with a JSON body.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> Result<Bytes, CommandError> {
        self.post_json(path, body.to_string().into())
    }

    /// The same, with a body that is JSON already.
    pub fn post_json(&self, path: &str, body: Bytes) -> Result<Bytes, CommandError> {
        self.ask(Method::POST, path, Some(body))
    }

    pub fn put(&self, path: &str, body: &serde_json::Value) -> Result<Bytes, CommandError> {
        self.ask(Method::PUT, path, Some(body.to_string().into()))
    }

    pub fn delete(&self, path: &str) -> Result<Bytes, CommandError> {
        self.ask(Method::DELETE, path, None)
    }

    /// The same with a body that is JSON already, and what is refused as the gateway says it.
    pub fn post_raw(
        &self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Result<Bytes, Refusal>, CommandError> {
        self.told(Method::POST, path, Some(body.into()))
    }

    fn ask(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Bytes, CommandError> {
        self.told(method, path, body)?.map_err(|refusal| match refusal.status >= 500 {
            true => CommandError::Environment(refusal.to_string()),
            false => CommandError::Refused(refusal.to_string()),
        })
    }

    fn told(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Result<Bytes, Refusal>, CommandError> {
        let environment = |what: String| CommandError::Environment(what);
        let text = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let endpoint =
            Endpoint::parse(&text).map_err(|error| CommandError::Usage(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| environment(error.to_string()))?;
        runtime.block_on(async {
            let transport = Transport::new(Trust::System);
            let egress = Egress::new(EgressConfig::default());
            let config = ClusterConfig {
                redirects: false,
                connect_timeout: self.timeout,
                ..ClusterConfig::new("gateway", vec![endpoint], Guard::written(&egress))
            };
            let cluster =
                Cluster::new(config, &transport).map_err(|error| environment(error.to_string()))?;
            let asked = self.exchange(cluster, Upstreams::new(transport), method, body);
            let late = || self.no_answer(&format!("did not answer within {:?}", self.timeout));
            timeout(self.timeout, asked).await.unwrap_or_else(|_| Err(late()))
        })
    }

    async fn exchange(
        &self,
        cluster: std::sync::Arc<Cluster>,
        mut upstreams: Upstreams,
        method: Method,
        body: Option<Bytes>,
    ) -> Result<Result<Bytes, Refusal>, CommandError> {
        let mut request = Request::new(body.map_or(Body::Empty, Body::from));
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let agent = concat!("hangu/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        if matches!(method, Method::POST | Method::PUT) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.extend(self.headers.iter().cloned());
        *request.method_mut() = method;
        let outgoing =
            Outgoing { to: Destination::Cluster(cluster), suffix: "", request, tried: None };
        let response = upstreams.call(outgoing).await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| {
            value.to_str().is_ok_and(|value| value.starts_with("application/json"))
        });
        let body = body::collect(response.into_body(), MAX_ANSWER)
            .await
            .map_err(|_| self.no_answer("answered too much, or broke off"))?;
        if status.is_success() && is_json {
            return Ok(Ok(body));
        }
        let said = if is_json { Refusal::read(&body, status.as_u16()) } else { None };
        match said {
            Some(refusal) => Ok(Err(refusal)),
            None if status == StatusCode::NOT_FOUND && self.variable == "HANGU_ADMIN_URL" => {
                Err(self.no_answer(
                    "answered 404: the admin API is off where the configuration has neither \
                     `admin.token` nor `admin.tokens`, or --url (or HANGU_ADMIN_URL) leads elsewhere",
                ))
            }
            None => Err(self.no_answer(&format!(
                "answered {status}, and not as a gateway does: does --url (or {}) lead to one?",
                self.variable
            ))),
        }
    }

    fn failed(&self, error: &crate::error::Error) -> CommandError {
        let cause = Failure::of(error).and_then(std::error::Error::source);
        let cause =
            cause.map_or_else(String::new, |cause| format!(": {}", escape(&cause.to_string())));
        match error.kind() {
            Some("connection_refused") => self.no_answer(&format!(
                "refused the connection: is a gateway running there? --url (or {}) says where",
                self.variable
            )),
            Some("redirect") => self.no_answer(&format!(
                "answered with a redirect: does --url (or {}) lead to a gateway?",
                self.variable
            )),
            Some("dns") => self.no_answer("has no address that its name resolves to"),
            Some("tls") => self.no_answer(&format!(
                "could not be trusted{cause} (SSL_CERT_FILE names other root certificates)"
            )),
            Some("timeout") => {
                self.no_answer(&format!("did not take the connection within {:?}", self.timeout))
            }
            _ => self.no_answer(&format!("could not be asked{cause}")),
        }
    }

    fn no_answer(&self, what: &str) -> CommandError {
        let host = self.base.host_str().unwrap_or_default();
        let port = self.base.port_or_known_default().unwrap_or_default();
        CommandError::Environment(format!("{host}:{port} {what}"))
    }
}

/// What a gateway says where it refuses; nothing in it steers a terminal.
#[derive(Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    pub code: String,
    message: String,
    trace: Option<String>,
    /// Where there are several: each with its place.
    faults: Vec<String>,
    /// Of the request for approval that the call waits for.
    pub approval: Option<String>,
    /// When the same may be asked again.
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    fn read(body: &[u8], status: u16) -> Option<Self> {
        let told: serde_json::Value = serde_json::from_slice(body).ok()?;
        // Before it looks at the path, a gateway answers as MCP has it.
        let error = told.get("error")?;
        let object = error.get("data").filter(|data| data.is_object()).unwrap_or(error);
        let text = |name: &str| Some(escape(object.get(name)?.as_str()?));
        let faults = object.get("faults").and_then(serde_json::Value::as_array);
        let fault = |fault: &serde_json::Value| {
            let text = |name: &str| Some(escape(fault.get(name)?.as_str()?));
            Some(format!("{}: {}", text("pointer")?, text("message")?))
        };
        Some(Self {
            status,
            faults: faults.into_iter().flatten().filter_map(fault).collect(),
            code: text("code")?,
            message: text("message")?,
            trace: text("traceId"),
            approval: text("approvalId"),
            retry_after_ms: object.get("retryAfterMs").and_then(serde_json::Value::as_u64),
        })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}", self.message, self.code)?;
        if let Some(trace) = &self.trace {
            write!(f, ", trace {trace}")?;
        }
        f.write_str(")")?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    config::process_env(name).filter(|value| !value.is_empty())
}

fn secret(name: &str, value: &str) -> Result<HeaderValue, CommandError> {
    let value = HeaderValue::from_str(value).map(|mut value| {
        value.set_sensitive(true);
        value
    });
    // It is not repeated.
    value.map_err(|_| CommandError::Usage(format!("{name} holds what no header can carry")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(url: &str) -> Result<Gateway, String> {
        let patience = Patience { timeout: 1 };
        Gateway::new(url, Vec::new(), &patience, "HANGU_URL").map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_that_of_the_gateway_alone() {
        for good in ["http://127.0.0.1:8080", "https://gw.example/", "https://gw.example/hangu"] {
            assert!(gateway(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "not an address"),
            ("127.0.0.1:8080", "not an address"),
            ("ftp://gw", "not an address"),
            ("http://user:hunter2@gw", "holds a user or a password"),
            ("http://gw/?key=hunter2", "has a `?`"),
            ("http://gw/#x", "has a `?` or a `#`"),
        ] {
            let error = gateway(bad).err().unwrap();
            assert!(error.contains(why) && !error.contains("hunter2"), "{bad}: {error}");
        }
    }

    #[test]
    fn what_a_gateway_says_is_found_in_either_form() {
        let object = r#"{"code":"not_found","message":"no \u001b[31msuch","traceId":"4bf9"}"#;
        for body in [
            format!(r#"{{"error":{object}}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","error":{{"code":-31404,"message":"x","data":{object}}}}}"#
            ),
        ] {
            let said = Refusal::read(body.as_bytes(), 404).unwrap().to_string();
            assert_eq!(said, "no \\u{1b}[31msuch (not_found, trace 4bf9)");
        }
        for none in ["", "[]", "{}", r#"{"error":"x"}"#, r#"{"error":{"code":1}}"#] {
            assert!(Refusal::read(none.as_bytes(), 404).is_none(), "{none}");
        }
    }
}
