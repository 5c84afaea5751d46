//! `hangu pins ls|approve`: which definitions of tools are in use at a running gateway, and that
//! somebody has looked at one.

use std::io::Write;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::json;

use super::{
    remote::AdminAddress,
    tell::{CommandError, Ending},
};
use crate::fault::escape;

/// What to do with definitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    hangu pins ls\n  \
    hangu pins ls --held\n  \
    hangu pins approve crm/contacts.update sha256:77b1…\n\n\
    The token of the admin listener is read from HANGU_ADMIN_TOKEN.")]
pub struct Pins {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists tools with the definition that is listed now and the one that was approved
    Ls {
        /// Only tools that are held
        #[arg(long)]
        held: bool,
        /// Print what the gateway answers, as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: AdminAddress,
    },
    /// Approves the definition of a digest, as `ls` tells it
    Approve {
        /// `UPSTREAM/TOOL`, with the server's own name
        #[arg(value_name = "TOOL")]
        tool: String,
        /// `sha256:` and 64 digits
        #[arg(value_name = "DIGEST")]
        digest: String,
        #[command(flatten)]
        at: AdminAddress,
    },
}

#[derive(Deserialize)]
struct Answer {
    pins: Vec<Pin>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pin {
    upstream: String,
    tool: String,
    seen: String,
    approved: Option<String>,
    held: Option<String>,
}

pub fn run(pins: &Pins, out: &mut dyn Write) -> Result<Ending, CommandError> {
    match &pins.command {
        Command::Ls { held, json, at } => {
            let body = at.gateway()?.get("/admin/api/pins")?;
            if *json {
                out.write_all(&body)?;
                writeln!(out)?;
                return Ok(Ending::Well);
            }
            let answer: Answer = serde_json::from_slice(&body).map_err(|error| {
                CommandError::Environment(format!("the answer is not a gateway's: {error}"))
            })?;
            for pin in answer.pins.iter().filter(|pin| pin.held.is_some() || !held) {
                let state = pin.held.as_deref().unwrap_or("in use");
                let name = escape(&format!("{}/{}", pin.upstream, pin.tool));
                writeln!(out, "{state:<8} {name}  listed {}", escape(&pin.seen))?;
                if let Some(approved) = pin.approved.as_ref().filter(|one| **one != pin.seen) {
                    writeln!(out, "         approved {}", escape(approved))?;
                }
            }
        }
        Command::Approve { tool, digest, at } => {
            let (upstream, name) = tool.split_once('/').ok_or_else(|| {
                CommandError::Usage("a tool is named as `UPSTREAM/TOOL`".to_owned())
            })?;
            let body = json!({ "upstream": upstream, "tool": name, "digest": digest });
            at.gateway()?.post("/admin/api/pins/approve", &body)?;
            writeln!(out, "approved {}", escape(tool))?;
        }
    }
    Ok(Ending::Well)
}
