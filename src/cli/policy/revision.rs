//! Revisions that a gateway keeps, from the running one or from its disk.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use crate::{
    app::Kept,
    cli::tell::CommandError,
    config::{self, Config},
    fault::{Report, Severity, Source, escape},
    policy::{Language, Library, Policies, PolicyFile},
};

/// The largest answer that is read.
const MAX_ANSWER: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Where kept revisions are asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Shelf {
    /// The running gateway's admin listener; its token is in HANGU_ADMIN_TOKEN
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9090",
        env = "HANGU_ADMIN_URL",
        conflicts_with = "config"
    )]
    url: Url,
    /// Reads what the gateway of this configuration has kept on disk, and asks nobody
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Answer {
    files: Vec<AnswerFile>,
}

#[derive(Deserialize)]
struct AnswerFile {
    path: String,
    text: String,
}

/// Whether this is written as revisions are.
pub fn is_revision(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl Shelf {
    /// The files of a revision, by path.
    pub fn files(&self, revision: &str) -> Result<Vec<PolicyFile>, CommandError> {
        if !is_revision(revision) {
            let message = format!("`{}` is no revision: those are 12 hex digits", escape(revision));
            return Err(CommandError::Usage(message));
        }
        match &self.config {
            Some(config) => kept(config, revision),
            None => asked(&self.url, revision),
        }
    }

    /// A revision's policies.
    pub fn load(&self, revision: &str) -> Result<Policies, CommandError> {
        let files = self.files(revision)?;
        let count = files.len();
        let (policies, faults) = Library::new(Language::Whole).compile(files);
        policies.map(|policies| policies.as_written()).ok_or_else(|| {
            let errors = faults.into_iter().filter(|fault| fault.severity() == Severity::Error);
            CommandError::Faults(Report { faults: errors.collect(), files: count })
        })
    }
}

fn file(revision: &str, path: String, text: String) -> PolicyFile {
    let source = Source { name: format!("{path} ({revision})"), text };
    PolicyFile { path, source: Arc::new(source) }
}

fn kept(config: &Path, revision: &str) -> Result<Vec<PolicyFile>, CommandError> {
    let audit = Config::look(config, &config::process_env).audit.ok_or_else(|| {
        let message = format!("`{}` cannot be read as a configuration", config.display());
        CommandError::Environment(message)
    })?;
    let kept = Kept::beside(&audit);
    let place = kept.folder().display();
    let files = kept
        .revision(revision)
        .map_err(|error| CommandError::Environment(format!("`{place}` cannot be read: {error}")))?;
    let files = files.ok_or_else(|| {
        let kept = kept.revisions().unwrap_or_default();
        let known: Vec<_> = kept.iter().rev().map(|(_, known)| known.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        CommandError::Usage(format!("`{place}` does not keep `{revision}`; it has: {known}"))
    })?;
    let named = |kept: PolicyFile| file(revision, kept.path, kept.source.text.clone());
    Ok(files.into_iter().map(named).collect())
}

fn asked(url: &Url, revision: &str) -> Result<Vec<PolicyFile>, CommandError> {
    let cannot = |why: String| CommandError::Environment(format!("{url} {why}"));
    let token = config::process_env("HANGU_ADMIN_TOKEN").filter(|token| !token.is_empty());
    let token: SecretString =
        token.ok_or_else(|| CommandError::Usage("HANGU_ADMIN_TOKEN is not set".to_owned()))?.into();
    let path = format!("/admin/api/policy/revisions/{revision}");
    let (status, body) = get(url, &path, &token).map_err(cannot)?;
    match status {
        200 => {
            let answer: Answer = serde_json::from_slice(&body)
                .map_err(|_| cannot("answered something else than a gateway does".to_owned()))?;
            let named = |one: AnswerFile| file(revision, one.path, one.text);
            Ok(answer.files.into_iter().map(named).collect())
        }
        401 | 403 => Err(cannot("does not take the token in HANGU_ADMIN_TOKEN".to_owned())),
        404 => {
            let message = format!(
                "{url} does not keep `{revision}`, or has no admin API: GET /admin/api/policy lists \
                 what is kept"
            );
            Err(CommandError::Usage(message))
        }
        429 => Err(cannot("heard too many wrong tokens: try again in a minute".to_owned())),
        status => Err(cannot(format!("answered with the status {status}"))),
    }
}

/// One request on a connection of its own: status and body. The admin listener has no TLS.
fn get(url: &Url, path: &str, token: &SecretString) -> Result<(u16, Vec<u8>), String> {
    let host = url.host_str().filter(|_| url.scheme() == "http");
    let host = host.ok_or("is no address of an admin listener: `http://HOST:PORT`")?;
    let port = url.port_or_known_default().unwrap_or(80);
    let said = |error: std::io::Error| format!("cannot be reached: {error}");
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (plain, port).to_socket_addrs().map_err(said)?;
    let address = addresses.next().ok_or("has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(said)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(said)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(said)?;
    let head = SecretString::from(format!(
        "GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAuthorization: Bearer {}\r\n\r\n",
        token.expose_secret()
    ));
    stream.write_all(head.expose_secret().as_bytes()).map_err(said)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).map_err(said)?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.ok_or("did not answer in HTTP")?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| "did not answer in HTTP")?;
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or("did not answer in HTTP")?;
    Ok((status, answer.split_off(end + 4)))
}
