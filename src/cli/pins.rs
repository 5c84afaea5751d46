//! `hangu pins ls|diff|approve|rollback`: which definitions of tools are in use at a running
//! gateway, what has changed of them, and that somebody has looked at one or goes back to one.

mod tell;

use std::io::Write;

use clap::Subcommand;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{
    remote::{AdminAsked, Gateway, read},
    tell::{CommandError, Ending},
};
use crate::{fault::escape, registry::store::Scope};

/// What to do with definitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    hangu pins ls --held\n  \
    hangu pins diff crm/contacts.update\n  \
    hangu pins approve crm/contacts.update --version 3\n  \
    hangu pins rollback crm/contacts.update\n\n\
    The token of the admin listener is read from HANGU_ADMIN_TOKEN.")]
pub struct Pins {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists tools with the definition that is listed now and the one that is approved; of one
    /// tool, every definition that is kept
    Ls {
        /// `UPSTREAM/TOOL`, with the server's own name
        #[arg(value_name = "TOOL")]
        tool: Option<String>,
        /// Only tools that are held
        #[arg(long, conflicts_with = "tool")]
        held: bool,
        /// Of the servers that an employee registered: `TENANT/EMPLOYEE`
        #[arg(long, value_name = "OWNER", conflicts_with = "tool")]
        owner: Option<String>,
        #[command(flatten)]
        asked: AdminAsked,
    },
    /// Shows how two definitions of a tool differ, and what of that is published
    Diff {
        /// `UPSTREAM/TOOL`, with the server's own name
        #[arg(value_name = "TOOL")]
        tool: String,
        /// A version's number or digest; the approved one unless said
        #[arg(long, value_name = "VERSION")]
        from: Option<String>,
        /// The same; the one that is listed unless said
        #[arg(long, value_name = "VERSION")]
        to: Option<String>,
        #[command(flatten)]
        asked: AdminAsked,
    },
    /// Approves a definition of a tool: the one that is listed, unless another is named
    Approve {
        #[command(flatten)]
        choice: Choice,
        #[command(flatten)]
        asked: AdminAsked,
    },
    /// Goes back to an earlier definition: the one that was approved before, unless another is
    /// named
    #[command(after_help = "A tool can be called by a definition that its server lists. Where it \
        does not list this one, the tool is held until it does; only a `read_low` tool goes on by \
        it, where policy lets it.")]
    Rollback {
        #[command(flatten)]
        choice: Choice,
        #[command(flatten)]
        asked: AdminAsked,
    },
}

/// A definition of a tool.
#[derive(Debug, clap::Args)]
struct Choice {
    /// `UPSTREAM/TOOL`, with the server's own name
    #[arg(value_name = "TOOL")]
    tool: String,
    /// The digest, `sha256:` and 64 digits
    #[arg(value_name = "DIGEST")]
    digest: Option<String>,
    /// The number, as `hangu pins ls TOOL` lists it
    #[arg(long, value_name = "N", conflicts_with_all = ["digest", "sha256"])]
    version: Option<u64>,
    /// The digest, with or without `sha256:`
    #[arg(long, value_name = "DIGEST", conflicts_with = "digest")]
    sha256: Option<String>,
}

pub fn run(pins: &Pins, out: &mut dyn Write) -> Result<Ending, CommandError> {
    match &pins.command {
        Command::Ls { tool: None, held, owner, asked } => {
            let body = asked.at.gateway()?.get(&list_of(owner.as_deref()))?;
            asked.tell(&body, out, |answer: Value, out| Ok(tell::all(&answer, *held, out)?))?;
        }
        Command::Ls { tool: Some(tool), asked, .. } => {
            let query = query(tool, &[])?;
            let body = asked.at.gateway()?.get(&format!("/admin/api/pins/history?{query}"))?;
            asked.tell(&body, out, |answer: Value, out| Ok(tell::history(&answer, out)?))?;
        }
        Command::Diff { tool, from, to, asked } => {
            let query = query(tool, &[("from", from.as_deref()), ("to", to.as_deref())])?;
            let body = asked.at.gateway()?.get(&format!("/admin/api/pins/diff?{query}"))?;
            asked.tell(&body, out, |answer: Value, out| Ok(tell::diff(&answer, out)?))?;
        }
        Command::Approve { choice, asked } => {
            let gateway = asked.at.gateway()?;
            let wish = choice.wish()?;
            let wish = if choice.names_one() { wish } else { choice.listed(&gateway, wish)? };
            let body = gateway.post("/admin/api/pins/approve", &wish)?;
            asked.tell(&body, out, |answer: Value, out| {
                Ok(tell::approved("approved", &choice.tool, &answer, out)?)
            })?;
        }
        Command::Rollback { choice, asked } => {
            let wish = choice.wish()?;
            let body = asked.at.gateway()?.post("/admin/api/pins/rollback", &wish)?;
            asked.tell(&body, out, |answer: Value, out| {
                Ok(tell::approved("back to", &choice.tool, &answer, out)?)
            })?;
        }
    }
    Ok(Ending::Well)
}

fn parts(tool: &str) -> Result<(&str, &str), CommandError> {
    // A server that an employee registered: its tenant, owner and key.
    let own = owner(tool).map(|(_, scope)| (scope, tool[scope.len()..].trim_start_matches('/')));
    let named = own.or_else(|| tool.split_once('/'));
    let named = named.filter(|(upstream, name)| !upstream.is_empty() && !name.is_empty());
    named.ok_or_else(|| {
        let usage = "a tool is named as `UPSTREAM/TOOL`, one of a server that an employee \
                     registered as `TENANT/EMPLOYEE/SERVERKEY/TOOL`";
        CommandError::Usage(usage.to_owned())
    })
}

/// `TENANT/EMPLOYEE` of a tool of a server that an employee registered, and the same with the
/// server's key.
fn owner(tool: &str) -> Option<(&str, &str)> {
    let ends = tool.match_indices('/').map(|(at, _)| &tool[..at]);
    let mut own =
        ends.filter(|text| Scope::parse(text).is_some_and(|scope| scope.of_own().is_some()));
    let scope = own.next()?;
    Some((scope.rsplit_once('/')?.0, scope))
}

/// The list of those among which a tool is.
fn list_of(owner: Option<&str>) -> String {
    let mut path = "/admin/api/pins".to_owned();
    if let Some(owner) = owner {
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("owner", owner).finish();
        path.push('?');
        path.push_str(&query);
    }
    path
}

fn query(tool: &str, more: &[(&str, Option<&str>)]) -> Result<String, CommandError> {
    let (upstream, tool) = parts(tool)?;
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("upstream", upstream).append_pair("tool", tool);
    for (name, value) in more {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    Ok(query.finish())
}

impl Choice {
    fn names_one(&self) -> bool {
        self.digest.is_some() || self.sha256.is_some() || self.version.is_some()
    }

    fn wish(&self) -> Result<Value, CommandError> {
        let (upstream, tool) = parts(&self.tool)?;
        let mut wish = json!({ "upstream": upstream, "tool": tool });
        if let Some(version) = self.version {
            wish["version"] = version.into();
        }
        if let Some(digest) = self.digest.as_ref().or(self.sha256.as_ref()) {
            let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
            wish["digest"] = format!("sha256:{digits}").into();
        }
        Ok(wish)
    }

    /// The definition that is listed, by its digest: what is listed a moment later is another.
    fn listed(&self, gateway: &Gateway, mut wish: Value) -> Result<Value, CommandError> {
        let owner = owner(&self.tool).map(|(owner, _)| owner);
        let answer: Value = read(&gateway.get(&list_of(owner))?)?;
        let mut all = answer["pins"].as_array().into_iter().flatten();
        let same =
            |pin: &&Value| pin["upstream"] == wish["upstream"] && pin["tool"] == wish["tool"];
        let Some(listed) = all.find(same) else {
            return Err(CommandError::Refused(format!(
                "no server lists `{}`: `hangu pins ls` says which tools there are",
                escape(&self.tool)
            )));
        };
        wish["digest"] = listed["seen"].clone();
        Ok(wish)
    }
}
