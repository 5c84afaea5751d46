//! What the gateway tells of servers, for people.

use std::io::Write;

use serde::Deserialize;

use crate::{
    cli::tell::{CommandError, columns, count},
    fault::escape,
};

#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub servers: Vec<Server>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Server {
    server_key: String,
    url: String,
    name: Option<String>,
    owner: String,
    own: bool,
    team: Option<String>,
    auth: String,
    has_credential: bool,
    connect_url: Option<String>,
    dialect: String,
    spoken: Option<String>,
    revision: Option<String>,
    server_info: Option<Info>,
    health: String,
    last_error: Option<Failure>,
    listed_at: Option<String>,
    tool_count: usize,
    prompt_count: usize,
    resource_count: usize,
    tools: Option<Vec<Tool>>,
}

#[derive(Debug, Deserialize)]
struct Info {
    name: String,
    version: String,
}

#[derive(Debug, Deserialize)]
struct Failure {
    message: String,
    at: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    description: Option<String>,
    schema_version: Option<String>,
    fault: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Imported {
    servers: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    outcome: String,
    server_key: Option<String>,
    tool_count: Option<usize>,
    #[serde(default)]
    needs_credential: bool,
    error: Option<Refused>,
    #[serde(default)]
    left_out: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    code: String,
    message: String,
}

/// How much of a description stands on a line.
const DESCRIPTION: usize = 60;

impl Server {
    /// What of it needs somebody.
    fn wants(&self) -> &'static str {
        match (self.has_credential, self.auth.as_str()) {
            (false, "oauth") => "connect to it",
            (false, auth) if auth != "none" => "set your credential",
            _ => "",
        }
    }

    fn spoken(&self) -> String {
        match (&self.spoken, &self.revision) {
            (Some(spoken), Some(revision)) => format!("{spoken} ({revision})"),
            (Some(spoken), None) => spoken.clone(),
            (None, _) => self.dialect.clone(),
        }
    }
}

impl Imported {
    pub fn has_refused(&self) -> bool {
        self.servers.iter().any(|entry| entry.error.is_some())
    }
}

pub(super) fn table(servers: &[Server], out: &mut dyn Write) -> Result<(), CommandError> {
    if servers.is_empty() {
        writeln!(out, "You have no servers, and none is shared with your teams.")?;
        return Ok(());
    }
    const HEAD: [&str; 7] = ["SERVERKEY", "NAME", "OWNER", "TOOLS", "HEALTH", "TEAM", ""];
    let mut rows = vec![HEAD.map(str::to_owned)];
    let or_dash = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), escape);
    rows.extend(servers.iter().map(|server| {
        [
            escape(&server.server_key),
            or_dash(&server.name),
            if server.own { "you".to_owned() } else { escape(&server.owner) },
            server.tool_count.to_string(),
            escape(&server.health),
            or_dash(&server.team),
            server.wants().to_owned(),
        ]
    }));
    Ok(columns(&rows, out)?)
}

pub(super) fn page(server: &Server, out: &mut dyn Write) -> Result<(), CommandError> {
    let mut line = |name: &str, value: &str| writeln!(out, "{name:<10} {}", escape(value));
    line("serverKey", &server.server_key)?;
    line("url", &server.url)?;
    if let Some(name) = &server.name {
        line("name", name)?;
    }
    line("owner", &server.owner)?;
    if let Some(team) = &server.team {
        line("team", team)?;
    }
    let credential = if server.has_credential { "yours is set" } else { "you have set none" };
    line("opened by", &format!("{} ({credential})", server.auth))?;
    if let Some(url) = &server.connect_url {
        line("connect at", url)?;
    }
    line("speaks", &server.spoken())?;
    if let Some(info) = &server.server_info {
        line("calls itself", &format!("{} {}", info.name, info.version))?;
    }
    line("health", &server.health)?;
    if let Some(failure) = &server.last_error {
        line("last error", &format!("{} ({})", failure.message, failure.at))?;
    }
    line("listed", server.listed_at.as_deref().unwrap_or("never"))?;
    if server.prompt_count + server.resource_count > 0 {
        let also = format!(
            "{}, {}",
            count(server.prompt_count, "prompt"),
            count(server.resource_count, "resource")
        );
        line("also", &also)?;
    }
    for tool in server.tools.iter().flatten() {
        let version = tool.schema_version.as_deref().unwrap_or_default();
        let version = version.get(..19).unwrap_or(version);
        let about = match &tool.fault {
            Some(fault) => format!("cannot be used: {fault}"),
            None => tool.description.clone().unwrap_or_default(),
        };
        let about: String = about.chars().take(DESCRIPTION).collect();
        line("tool", &format!("{}  {version}  {about}", tool.name))?;
    }
    Ok(())
}

pub(super) fn added(server: &Server, out: &mut dyn Write) -> Result<(), CommandError> {
    let key = escape(&server.server_key);
    if server.auth == "oauth" && !server.has_credential {
        writeln!(out, "{key}: kept, and asked what it has once you have connected")?;
        match &server.connect_url {
            Some(url) => {
                writeln!(out, "\nOpen this in a browser, within ten minutes:\n  {}", escape(url))?
            }
            None => writeln!(out, "\n`hangu servers show {key}` says where to connect.")?,
        }
    } else {
        let tools = count(server.tool_count, "tool");
        writeln!(out, "{key}: {tools}, {}", escape(&server.spoken()))?;
    }
    Ok(writeln!(
        out,
        "\nPOST /mcp/{key} speaks to it; `hangu servers show {key}` lists its tools."
    )?)
}

pub(super) fn imported(imported: &Imported, out: &mut dyn Write) -> Result<(), CommandError> {
    for entry in &imported.servers {
        let name = escape(&entry.name);
        match (&entry.error, &entry.server_key) {
            (Some(error), _) => {
                writeln!(out, "{name}: {} ({})", escape(&error.message), escape(&error.code))?;
            }
            (None, key) => {
                let key = key.as_deref().map(escape).unwrap_or_default();
                let has = match (entry.needs_credential, entry.tool_count) {
                    (true, _) => "set your credential: it is asked then".to_owned(),
                    (false, tools) => count(tools.unwrap_or_default(), "tool"),
                };
                writeln!(out, "{name}: {} as {key}, {has}", escape(&entry.outcome))?;
            }
        }
        if !entry.left_out.is_empty() {
            writeln!(out, "  left out: {}", escape(&entry.left_out.join(", ")))?;
        }
    }
    Ok(())
}
