//! `hangu servers …`: an employee's own servers at a running gateway, as the employee whom the
//! environment names.
//!
//! A secret is read from a file, from standard input or from the environment, never from a flag,
//! which every process of the machine could read. What is said of what the gateway tells is
//! `servers/tell.rs`.

mod tell;

use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
};

use clap::{Subcommand, ValueEnum};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use self::tell::{Imported, Listed, Server};
use super::{
    remote::Asked,
    tell::{CommandError, Ending},
};
use crate::{
    config,
    fault::escape,
    model::{sensitive::is_sensitive, server::UpstreamName},
};

/// Where a secret is read from unless a flag says otherwise.
const SECRET: &str = "HANGU_SERVER_SECRET";

/// The largest file that is sent.
const MAX_FILE: u64 = 16 << 20;

/// Examples come first: most who ask for help want one.
const EXAMPLES_FIRST: &str = "{about}\n\n{after-help}\n\n{usage-heading} {usage}\n\n{all-args}";

/// What to do with one's own servers.
#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        HANGU_API_KEY=… HANGU_EMP_ID=E1001 hangu servers ls\n  \
        hangu servers add https://tools.partner.example/mcp --auth bearer --secret-file token.txt\n  \
        hangu servers add https://tools.partner.example/mcp --auth oauth --scope read\n  \
        hangu servers import ~/.config/client/mcp.json\n  \
        hangu servers credential set mcp_tools_5a8b1fd1 --auth bearer < token.txt --secret-file -\n  \
        hangu servers share mcp_tools_5a8b1fd1 --team payments\n\n\
        The key is read from HANGU_API_KEY, the employee from HANGU_EMP_ID, a server's secret from \
        --secret-file or HANGU_SERVER_SECRET."
)]
pub struct Servers {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists your servers, and those that are shared with your teams
    Ls(Asked),
    /// Shows one server, with its tools
    Show(One),
    /// Registers a server, or registers it anew: it is asked what it has, and then kept
    Add(Add),
    /// Deletes a server of yours, and your credential for it
    Rm(One),
    /// Registers what a file holds: a description, or the `mcpServers` of a desktop client
    Import(Import),
    /// Writes a server's description without any secret, for others to import
    Asset(One),
    /// Asks a server of yours again what it has
    Refresh(One),
    /// Sets or deletes your credential for a server, also one that is shared with you
    #[command(subcommand)]
    Credential(Credential),
    /// Shows a server of yours, and what it has, to a team; nobody gets your credential
    Share(Share),
    /// Shows it to nobody else any more
    Unshare(One),
}

#[derive(Debug, Subcommand)]
enum Credential {
    /// Sets it
    Set(SetCredential),
    /// Deletes it
    Rm(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// Of the server, as `ls` lists it
    #[arg(value_name = "SERVERKEY", value_parser = parse_key)]
    key: String,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The server's address
    #[arg(value_name = "URL")]
    address: String,
    /// What people call it
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// How it is spoken to: auto, mcp-lite, streamable-http or sse
    #[arg(long, value_name = "DIALECT")]
    dialect: Option<String>,
    /// A header of each request that is no secret; `$ctx.…` is filled in
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_pair)]
    headers: Vec<(String, String)>,
    /// Another option, such as `timeout=5s` or `stateless=true`
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_pair)]
    options: Vec<(String, String)>,
    #[command(flatten)]
    auth: Auth,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Import {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct SetCredential {
    /// Of the server, as `ls` lists it, or the name of an operator's upstream
    #[arg(value_name = "SERVERKEY|UPSTREAM", value_parser = parse_key_or_name)]
    key: String,
    #[command(flatten)]
    auth: Auth,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Share {
    /// Of the server, as `ls` lists it
    #[arg(value_name = "SERVERKEY", value_parser = parse_key)]
    key: String,
    /// A team of yours, as the directory has it
    #[arg(long, value_name = "TEAM")]
    team: String,
    #[command(flatten)]
    asked: Asked,
}

/// What opens a server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What opens it")]
struct Auth {
    /// With headers, each line of the secret is `Name: value`
    #[arg(long, value_enum, default_value_t = AuthKind::None)]
    auth: AuthKind,
    /// The user's name, with `--auth basic`
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// With `--auth oauth`, as which client the gateway comes to the server, where you have
    /// registered one there; its secret is optional
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// With `--auth oauth`, what to ask for; may be given more than once
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Where the secret stands, if not in HANGU_SERVER_SECRET; `-` is standard input
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuthKind {
    None,
    Bearer,
    Basic,
    Headers,
    /// You grant a token in a browser: the address to open is printed
    Oauth,
}

/// Does it, and writes what the gateway says.
pub fn run(args: &Servers, out: &mut dyn Write) -> Result<Ending, CommandError> {
    match &args.command {
        Command::Ls(asked) => {
            let answer = asked.at.gateway()?.get("/v1/servers")?;
            asked.tell(&answer, out, |listed: Listed, out| tell::table(&listed.servers, out))?;
        }
        Command::Show(one) => {
            let answer = one.asked.at.gateway()?.get(&one.path(""))?;
            one.asked.tell(&answer, out, |server: Server, out| tell::page(&server, out))?;
        }
        Command::Add(add) => add.run(out)?,
        Command::Rm(one) => {
            let answer = one.asked.at.gateway()?.delete(&one.path(""))?;
            one.asked.tell(&answer, out, |_: Value, out| said(out, "deleted", &one.key))?;
        }
        Command::Import(import) => return import.run(out),
        Command::Asset(one) => {
            out.write_all(&one.asked.at.gateway()?.get(&one.path("/asset"))?)?;
        }
        Command::Refresh(one) => {
            let answer = one.asked.at.gateway()?.post(&one.path("/refresh"), &json!({}))?;
            one.asked.tell(&answer, out, |server: Server, out| tell::page(&server, out))?;
        }
        Command::Credential(Credential::Set(set)) => set.run(out)?,
        Command::Credential(Credential::Rm(one)) => {
            let answer = one.asked.at.gateway()?.delete(&one.path("/credential"))?;
            let what = "no credential of yours is kept for";
            one.asked.tell(&answer, out, |_: Value, out| said(out, what, &one.key))?;
        }
        Command::Share(share) => {
            let path = format!("/v1/servers/{}/share", share.key);
            let answer = share.asked.at.gateway()?.put(&path, &json!({ "team": share.team }))?;
            let what = format!("shared with {}:", escape(&share.team));
            share.asked.tell(&answer, out, |_: Value, out| said(out, &what, &share.key))?;
        }
        Command::Unshare(one) => {
            let answer = one.asked.at.gateway()?.delete(&one.path("/share"))?;
            one.asked.tell(&answer, out, |_: Value, out| said(out, "not shared:", &one.key))?;
        }
    }
    Ok(Ending::Well)
}

fn said(out: &mut dyn Write, what: &str, key: &str) -> Result<(), CommandError> {
    Ok(writeln!(out, "{what} {}", escape(key))?)
}

impl One {
    fn path(&self, below: &str) -> String {
        format!("/v1/servers/{}{below}", self.key)
    }
}

impl Add {
    fn run(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        let mut body = Map::new();
        body.insert("url".to_owned(), self.address.as_str().into());
        for (key, value) in [("name", &self.name), ("dialect", &self.dialect)] {
            if let Some(value) = value {
                body.insert(key.to_owned(), value.as_str().into());
            }
        }
        if let Some(auth) = self.auth.read()? {
            body.insert("auth".to_owned(), auth);
        }
        let options = self.options()?;
        if !options.is_empty() {
            body.insert("options".to_owned(), options.into());
        }
        let answer = self.asked.at.gateway()?.post("/v1/servers", &body.into())?;
        self.asked.tell(&answer, out, |server: Server, out| tell::added(&server, out))
    }

    fn options(&self) -> Result<Map<String, Value>, CommandError> {
        let mut options = Map::new();
        for (name, value) in &self.options {
            let value = match value.as_str() {
                "true" => true.into(),
                "false" => false.into(),
                text => text.into(),
            };
            options.insert(name.clone(), value);
        }
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            if is_sensitive(name) && !value.starts_with("$ctx.") {
                let message = format!(
                    "`{}` is a secret by its name, and flags are read by every process: give it \
                     with `--auth headers`",
                    escape(name)
                );
                return Err(CommandError::Usage(message));
            }
            headers.insert(name.clone(), value.as_str().into());
        }
        if !headers.is_empty() {
            options.insert("headers".to_owned(), headers.into());
        }
        Ok(options)
    }
}

impl Import {
    fn run(&self, out: &mut dyn Write) -> Result<Ending, CommandError> {
        let text = read_file(&self.file)?;
        let body: Value = serde_json::from_slice(text.expose_secret().as_bytes())
            // What cannot be read may be a secret: it is not repeated.
            .map_err(|error| {
                let (line, column) = (error.line(), error.column());
                let file = escape(&self.file.display().to_string());
                CommandError::Usage(format!("{file}:{line}:{column}: no JSON stands there"))
            })?;
        let answer = self.asked.at.gateway()?.post("/v1/servers/import", &body)?;
        let mut ending = Ending::Well;
        self.asked.tell(&answer, out, |imported: Imported, out| {
            if imported.has_refused() {
                ending = Ending::Findings;
            }
            tell::imported(&imported, out)
        })?;
        Ok(ending)
    }
}

impl SetCredential {
    fn run(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        if self.auth.auth == AuthKind::Oauth {
            let message = format!(
                "a token is granted in a browser, and not set: `hangu servers show {}` says where",
                self.key
            );
            return Err(CommandError::Usage(message));
        }
        let Some(auth) = self.auth.read()? else {
            let message =
                "say what kind of credential it is: `--auth bearer`, `basic` or `headers`";
            return Err(CommandError::Usage(message.to_owned()));
        };
        let path = format!("/v1/servers/{}/credential", self.key);
        let answer = self.asked.at.gateway()?.put(&path, &auth)?;
        let what = "your credential is kept for";
        self.asked.tell(&answer, out, |_: Value, out| said(out, what, &self.key))
    }
}

// === Secrets ===

impl Auth {
    /// As it is posted; nothing for a server that is open.
    fn read(&self) -> Result<Option<Value>, CommandError> {
        let usage = |message: &str| Err(CommandError::Usage(message.to_owned()));
        if self.user.is_some() != (self.auth == AuthKind::Basic) {
            return usage("`--user` goes with `--auth basic`, and with nothing else");
        }
        let says_oauth = self.client_id.is_some() || !self.scopes.is_empty();
        if self.auth == AuthKind::Oauth {
            return self.oauth().map(Some);
        }
        if says_oauth {
            return usage("`--client-id` and `--scope` go with `--auth oauth`");
        }
        if self.auth == AuthKind::None {
            return match self.secret_file {
                Some(_) => usage("`--secret-file` goes with an `--auth` other than `none`"),
                None => Ok(None),
            };
        }
        let secret = self.secret()?;
        let secret = secret.expose_secret().trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            return usage("the secret is empty");
        }
        Ok(Some(match self.auth {
            AuthKind::None | AuthKind::Oauth => return Ok(None),
            AuthKind::Bearer => json!({ "type": "bearer", "token": secret }),
            AuthKind::Basic => json!({ "type": "basic", "user": self.user, "password": secret }),
            AuthKind::Headers => json!({ "type": "headers", "headers": secret_headers(secret)? }),
        }))
    }

    /// What is said of a client; the token itself is granted later.
    fn oauth(&self) -> Result<Value, CommandError> {
        let mut auth = json!({ "type": "oauth" });
        let has_secret = self.secret_file.is_some();
        let Some(client) = &self.client_id else {
            if has_secret {
                let message = "`--secret-file` is a client's secret here: say `--client-id` too";
                return Err(CommandError::Usage(message.to_owned()));
            }
            if !self.scopes.is_empty() {
                auth["scopes"] = json!(self.scopes);
            }
            return Ok(auth);
        };
        auth["client_id"] = client.as_str().into();
        if has_secret || config::process_env(SECRET).is_some() {
            let secret = self.secret()?;
            let secret = secret.expose_secret().trim_end_matches(['\r', '\n']);
            if secret.is_empty() {
                return Err(CommandError::Usage("the secret is empty".to_owned()));
            }
            auth["client_secret"] = secret.into();
        }
        if !self.scopes.is_empty() {
            auth["scopes"] = json!(self.scopes);
        }
        Ok(auth)
    }

    fn secret(&self) -> Result<SecretString, CommandError> {
        match &self.secret_file {
            Some(file) => read_file(file),
            None => config::process_env(SECRET).map(Into::into).ok_or_else(|| {
                CommandError::Usage(format!(
                    "set {SECRET} to the secret, or say `--secret-file FILE` (`-` is standard \
                     input)"
                ))
            }),
        }
    }
}

/// Lines of the form `Name: value`.
fn secret_headers(text: &str) -> Result<Map<String, Value>, CommandError> {
    let mut headers = Map::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let Some((name, value)) = line.split_once(':') else {
            let message = format!("line {number} of the secret is no `Name: value`");
            return Err(CommandError::Usage(message));
        };
        headers.insert(name.trim().to_owned(), value.trim().into());
    }
    Ok(headers)
}

/// What stands in a file, or comes in; it may hold secrets.
fn read_file(file: &PathBuf) -> Result<SecretString, CommandError> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().take(MAX_FILE).read_to_string(&mut text),
        _ => fs::File::open(file).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)),
    };
    match read {
        Ok(_) => Ok(text.into()),
        Err(error) => {
            let file = escape(&file.display().to_string());
            Err(CommandError::Environment(format!("{file} cannot be read: {error}")))
        }
    }
}

// === Arguments ===

/// A key goes into a path as it is.
fn parse_key(text: &str) -> Result<String, String> {
    UpstreamName::of_key(text).map(|key| key.as_str().to_owned()).ok_or_else(|| {
        "such a key is `mcp_NAME_12345678`, as `hangu servers ls` lists it".to_owned()
    })
}

fn parse_key_or_name(text: &str) -> Result<String, String> {
    match UpstreamName::parse(text) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => parse_key(text),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
    pair.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .ok_or_else(|| "expected NAME=VALUE".to_owned())
}
