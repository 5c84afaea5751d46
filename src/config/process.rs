//! Servers that are child processes: the command as it is meant, and what does not go with one.

use std::{path::PathBuf, time::Duration};

use secrecy::ExposeSecret;

use super::{
    EnvSource, Process,
    build::{MAX_WAIT, within},
    is_sensitive,
    raw::{RawHeader, RawHeaderValue, RawProcess, RawUpstream},
    secret::Vault,
};
use crate::{
    fault::{FaultCode, Faults},
    model::server::DialectKind,
};

const STOP_WAIT: Duration = Duration::from_secs(2);
const MAX_PROCESSES: usize = 32;

/// Reports what excludes each other around `command`, `url` and `dialect`.
pub(super) fn agree(raw: &RawUpstream, faults: &mut Faults) {
    let dialect = raw.dialect.as_ref();
    if raw.process.is_none() {
        if let Some(dialect) = dialect.filter(|dialect| dialect.value == DialectKind::Stdio) {
            let message = "`dialect: stdio` is of a server that is a `command`";
            faults.add(FaultCode::Contradiction, &dialect.at, message);
        }
        if let (Some(dialect), Some(protocol)) = (dialect, &raw.protocol)
            && dialect.value == DialectKind::HttpSse
            && protocol.value.is_some_and(|version| version.is_modern())
        {
            let message = "the stateless revision is not spoken over HTTP+SSE";
            faults.add(FaultCode::Contradiction, &protocol.at, message);
        }
        return;
    }
    let mut excluded = |at, message: &str| {
        faults.add(FaultCode::Contradiction, at, message.to_owned());
    };
    if let Some(url) = raw.urls.first() {
        excluded(&url.at, "either `url` or `command`, not both");
    }
    if let Some(dialect) =
        dialect.filter(|d| !matches!(d.value, DialectKind::Auto | DialectKind::Stdio))
    {
        excluded(&dialect.at, "a `command` speaks `dialect: stdio`");
    }
    if let Some(header) = raw.headers.first() {
        let message = "a process has no headers, so it cannot be told who calls: `command` takes \
                       neither `headers` nor `options` (`env` is the same for every caller)";
        excluded(&header.name.at, message);
    }
    if let Some(name) = raw.forward_headers.first() {
        excluded(&name.at, "a process has no headers: none can be forwarded to a `command`");
    }
    if let Some(tls) = &raw.tls {
        excluded(&tls.at, "`tls` is about a `url`: nobody connects to a `command`");
    }
    if let Some(time) = &raw.connect_timeout {
        excluded(&time.at, "`connect_timeout` is about a `url`: nobody connects to a `command`");
    }
}

pub(super) fn build(raw: RawProcess, vault: Vault<'_>, faults: &mut Faults) -> Process {
    let mut words = raw.command.into_iter();
    let program = PathBuf::from(words.next().unwrap_or_default());
    // A name is looked up; a path starts at the file's folder, as every path here.
    let is_path = program.components().count() > 1 || program.starts_with(".");
    let program = if is_path { vault.folder.join(program) } else { program };
    let env = raw.env.into_iter().filter_map(|variable| env(variable, vault, faults)).collect();
    Process {
        program,
        args: words.collect(),
        env,
        stop_wait: within(
            raw.stop_wait,
            STOP_WAIT,
            Duration::from_millis(1)..=Duration::from_secs(60).min(MAX_WAIT),
            faults,
        ),
        // One is the gateway's own, that lists the tools.
        max_processes: within(raw.max_processes, MAX_PROCESSES, 2..=10_000, faults),
    }
}

fn env(raw: RawHeader, vault: Vault<'_>, faults: &mut Faults) -> Option<(String, EnvSource)> {
    let name = raw.name.value;
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || !name.bytes().all(legal) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        let message = format!("`{name}` is not a variable's name");
        faults.add(FaultCode::BadName, &raw.name.at, message);
        return None;
    }
    match raw.value {
        RawHeaderValue::Secret(secret) => {
            let value = vault.open(&secret, &raw.value_at, faults)?;
            if value.expose_secret().contains('\0') {
                faults.add(FaultCode::BadValue, &raw.value_at, "a variable cannot hold a NUL");
                return None;
            }
            Some((name, EnvSource::Secret(value)))
        }
        RawHeaderValue::Text(text) => {
            if is_sensitive(&name) {
                let message = format!("the value of `{name}` is a secret: it does not stand here");
                let fault = faults.add(FaultCode::SecretInTheOpen, &raw.value_at, message);
                fault.suggest("write `{ env: NAME }` or `{ file: PATH }`").secret();
                return None;
            }
            if text.contains("$ctx") {
                let message = "`$ctx` is of headers: a process is started before anybody calls, \
                               and its environment is the same for every caller";
                faults.add(FaultCode::BadTemplate, &raw.value_at, message);
                return None;
            }
            if text.contains('\0') {
                faults.add(FaultCode::BadValue, &raw.value_at, "a variable cannot hold a NUL");
                return None;
            }
            Some((name, EnvSource::Plain(text)))
        }
    }
}
