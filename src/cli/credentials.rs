//! `hangu credentials ls|revoke`: who has a credential for which server, at a running gateway, and
//! taking it away from somebody who left or lost his laptop. No value is ever told.

use std::io::Write;

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    remote::{AdminAsked, escaped, read},
    tell::{CommandError, Ending, Form, columns, count},
};
use crate::{clock::rfc3339, fault::escape, model::caller::EmployeeId};

/// What to do with credentials.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    hangu credentials ls --tenant acme --employee E1001\n  \
    hangu credentials revoke acme/E1001 mcp_tools_5a8b1fd1\n  \
    hangu credentials revoke acme/E1001 --all\n\n\
    The token of the admin listener is read from HANGU_ADMIN_TOKEN; revoking takes the role \
    `security`. Secrets of operators (`{ secret: NAME }`) are listed too, and deleted with \
    DELETE /admin/api/secrets/NAME.")]
pub struct Credentials {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists who has a credential for which server, of what kind, since when
    Ls(Ls),
    /// Forgets an employee's credential for a server, or all that he has
    ///
    /// The gateway that is asked uses it no more from then on, other replicas a moment later. The
    /// server is not told: a token that somebody has copied stays good there until it ends.
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct Ls {
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only of this employee
    #[arg(long, value_name = "EMPLOYEE")]
    employee: Option<String>,
    /// Only for this server
    #[arg(long, value_name = "SERVERKEY")]
    server: Option<String>,
    #[command(flatten)]
    asked: AdminAsked,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// Whose: `TENANT/EMPLOYEE`
    #[arg(value_name = "OWNER", value_parser = parse_owner)]
    owner: (String, String),
    /// For which server, as `ls` lists it
    #[arg(value_name = "SERVERKEY", required_unless_present = "all", conflicts_with = "all")]
    server: Option<String>,
    /// All that he has, for whatever server
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    asked: AdminAsked,
}

/// One page, or all of them together. What is not told to people is passed on as it came.
#[derive(Debug, Serialize, Deserialize)]
struct Page {
    credentials: Vec<Value>,
    #[serde(skip_serializing)]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    tenant: Option<String>,
    employee: Option<String>,
    secret: Option<String>,
    server_key: Option<String>,
    kind: String,
    key_id: String,
    updated_ms: u64,
    renewed_ms: Option<u64>,
    oauth: Option<Grant>,
    unreadable: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Grant {
    issuer: String,
    scopes: Vec<String>,
    expires_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    revoked: Vec<String>,
    other_replicas_within_ms: u64,
}

/// Does it, and writes what the gateway says.
pub fn run(args: &Credentials, out: &mut dyn Write) -> Result<Ending, CommandError> {
    match &args.command {
        Command::Ls(ls) => ls.run(out)?,
        Command::Revoke(revoke) => revoke.run(out)?,
    }
    Ok(Ending::Well)
}

impl Ls {
    fn run(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        let gateway = self.asked.at.gateway()?;
        let mut path = "/admin/api/credentials?limit=500".to_owned();
        for (name, value) in
            [("tenant", &self.tenant), ("employee", &self.employee), ("serverKey", &self.server)]
        {
            if let Some(value) = value {
                path += &format!("&{name}={}", escaped(value));
            }
        }
        let mut all: Page = read(&gateway.get(&path)?)?;
        while let Some(next) = all.next.take() {
            let more: Page = read(&gateway.get(&format!("{path}&after={}", escaped(&next)))?)?;
            all.credentials.extend(more.credentials);
            all.next = more.next;
        }
        if self.asked.format == Form::Json {
            let text = serde_json::to_string(&all).map_err(|error| {
                CommandError::Environment(format!("the answer cannot be written: {error}"))
            })?;
            return Ok(writeln!(out, "{text}")?);
        }
        let credentials: Vec<Credential> =
            read(Value::from(all.credentials).to_string().as_bytes())?;
        table(&credentials, out)
    }
}

impl Revoke {
    fn run(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        let (tenant, employee) = &self.owner;
        let mut path = format!("/admin/api/credentials/{}/{}", escaped(tenant), escaped(employee));
        if let Some(server) = &self.server {
            path += &format!("/{}", escaped(server));
        }
        let answer = self.asked.at.gateway()?.delete(&path)?;
        self.asked.tell(&answer, out, |told: Revoked, out| {
            let whose = format!("{}/{}", escape(tenant), escape(employee));
            let many = count(told.revoked.len(), "server");
            writeln!(out, "{whose} has no credential any more for {many}:")?;
            told.revoked.iter().try_for_each(|key| writeln!(out, "  {}", escape(key)))?;
            let ms = told.other_replicas_within_ms;
            writeln!(out, "Other replicas may use what they have read before for {ms} ms more.")?;
            Ok(())
        })
    }
}

fn table(credentials: &[Credential], out: &mut dyn Write) -> Result<(), CommandError> {
    if credentials.is_empty() {
        writeln!(out, "No such credential is kept.")?;
        return Ok(());
    }
    const HEAD: [&str; 8] =
        ["TENANT", "OWNER", "SERVER", "KIND", "SINCE", "RENEWED", "KEY", "GRANTED BY"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    let or_dash = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), escape);
    rows.extend(credentials.iter().map(|one| {
        let owner = match &one.secret {
            Some(secret) => format!("secret {}", escape(secret)),
            None => or_dash(&one.employee),
        };
        [
            or_dash(&one.tenant),
            owner,
            or_dash(&one.server_key),
            escape(&one.kind),
            minute(one.updated_ms),
            one.renewed_ms.map_or_else(|| "-".to_owned(), minute),
            escape(&one.key_id),
            one.granted(),
        ]
    }));
    Ok(columns(&rows, out)?)
}

impl Credential {
    fn granted(&self) -> String {
        let Some(grant) = &self.oauth else {
            let why = self.unreadable.as_deref().map(escape);
            return why.map_or_else(String::new, |why| format!("cannot be opened: {why}"));
        };
        let mut text = escape(&grant.issuer);
        if !grant.scopes.is_empty() {
            text += &format!(" ({})", escape(&grant.scopes.join(" ")));
        }
        if let Some(ms) = grant.expires_ms {
            text += &format!(", token until {}", minute(ms));
        }
        text
    }
}

/// To the minute, in UTC.
fn minute(ms: u64) -> String {
    let time = rfc3339(ms);
    time.get(..16).map_or_else(|| time.clone(), |time| format!("{time}Z"))
}

fn parse_owner(text: &str) -> Result<(String, String), String> {
    let parts = text.rsplit_once('/').filter(|(tenant, _)| !tenant.is_empty());
    let parts = parts.filter(|(_, employee)| EmployeeId::parse(employee).is_some());
    parts
        .map(|(tenant, employee)| (tenant.to_owned(), employee.to_owned()))
        .ok_or_else(|| "expected TENANT/EMPLOYEE, such as acme/E1001".to_owned())
}
