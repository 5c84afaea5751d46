//! Reading `mcpServers`, the JSON in which desktop clients keep their servers.
//!
//! The file is theirs, so what it says beside an address and headers is left out, and told. What
//! runs a program, and what their environment would fill in, is refused.

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};

use super::{
    Secrets,
    fault::{InputFault, InputFaults, below, shown},
    options::Given,
    read::{LIMITS, NewServer, Registrant, assemble, check_name, given, is_object, read_url, text},
};
use crate::{
    json::{Doc, Value},
    model::{header, server::DialectKind},
};

/// One of the servers of a file.
#[derive(Debug, Clone)]
pub struct Imported {
    /// As the file calls it.
    pub name: String,
    pub outcome: Result<NewServer, Vec<InputFault>>,
    /// Members of its entry that mean nothing here.
    pub left_out: Vec<String>,
}

/// More than anybody has.
const MAX_SERVERS: usize = 1_000;

/// Members of an entry that are named among what is left out.
const MAX_LEFT_OUT: usize = 32;

const TYPES: [(&str, DialectKind); 5] = [
    ("http", DialectKind::StreamableHttp),
    ("streamable-http", DialectKind::StreamableHttp),
    ("streamableHttp", DialectKind::StreamableHttp),
    ("sse", DialectKind::HttpSse),
    ("mcp-lite", DialectKind::McpLite),
];

/// Reads a file, server by server.
///
/// # Errors
/// Where it is no such file.
pub fn read_mcp_servers(
    file: Bytes,
    registrant: &Registrant,
) -> Result<Vec<Imported>, Vec<InputFault>> {
    let mut faults = InputFaults::default();
    let doc = match Doc::parse(file, &LIMITS) {
        Ok(doc) => doc,
        Err(fault) => {
            faults.add("", format!("the file is not JSON: {fault}"));
            return faults.or(None);
        }
    };
    let servers = given(doc.root(), "mcpServers")
        .filter(|servers| is_object(*servers, "/mcpServers", &mut faults));
    let Some(servers) = servers else {
        if faults.is_empty() {
            faults.add("/mcpServers", "`mcpServers` is missing");
        }
        return faults.or(None);
    };
    if servers.members().count() > MAX_SERVERS {
        faults.add("/mcpServers", format!("more than {MAX_SERVERS} servers"));
        return faults.or(None);
    }
    let read = servers.members().map(|(key, entry)| {
        let name = key.unescaped();
        read_entry(&name, entry, registrant)
    });
    Ok(read.collect())
}

fn read_entry(name: &str, entry: Value<'_>, registrant: &Registrant) -> Imported {
    let mut faults = InputFaults::default();
    let pointer = below("/mcpServers", name);
    let mut left_out = Vec::new();
    let new = read_members(name, entry, &pointer, registrant, &mut left_out, &mut faults);
    Imported { name: shown(name), outcome: faults.or(new), left_out }
}

fn read_members(
    name: &str,
    entry: Value<'_>,
    pointer: &str,
    registrant: &Registrant,
    left_out: &mut Vec<String>,
    faults: &mut InputFaults,
) -> Option<NewServer> {
    if !is_object(entry, pointer, faults) {
        return None;
    }
    if given(entry, "command").is_some() {
        let message = "it is a program, which the gateway runs for nobody";
        let fault = faults.add(&below(pointer, "command"), message);
        fault.advise("an operator can put it behind the gateway as an upstream with a `command`");
        return None;
    }
    for (key, _) in entry.members() {
        let key = key.unescaped();
        if !["type", "url", "headers"].contains(&&*key) {
            if left_out.len() == MAX_LEFT_OUT {
                left_out.push("and more".to_owned());
                break;
            }
            left_out.push(shown(&key));
        }
    }
    let name = check_name(name, pointer, faults);
    let kind = given(entry, "type").and_then(|kind| text(kind, &below(pointer, "type"), faults));
    let dialect = kind.and_then(|kind| {
        let found = TYPES.iter().find(|(name, _)| *name == kind).map(|(_, dialect)| *dialect);
        if found.is_none() {
            let message = format!("a server of type `{}` cannot be registered", shown(&kind));
            let fault = faults.add(&below(pointer, "type"), message);
            fault.advise("`http` and `sse` can");
        }
        found
    });
    let at = below(pointer, "url");
    let url = match given(entry, "url") {
        Some(url) => read_url(url, &at, faults),
        None => {
            faults.add(&at, "`url` is missing");
            None
        }
    };
    let headers = read_headers(entry, &below(pointer, "headers"), faults);
    let (auth, headers) = as_bearer(headers);
    let dialect = dialect.unwrap_or(DialectKind::Auto);
    assemble(registrant, url, name, dialect, auth, headers, faults)
}

fn read_headers(entry: Value<'_>, pointer: &str, faults: &mut InputFaults) -> Given {
    let mut read = Given::default();
    let Some(headers) = given(entry, "headers") else { return read };
    if !is_object(headers, pointer, faults) {
        return read;
    }
    for (key, value) in headers.members() {
        if read.is_enough(faults) {
            break;
        }
        let name = key.unescaped();
        let at = below(pointer, &name);
        let Some(value) = text(value, &at, faults) else { continue };
        if value.contains("${") {
            let message = "the value is filled in by a client's environment, which is not here";
            faults.add(&at, message).advise("write the value itself");
            continue;
        }
        read.header(&name, &value, &at, faults);
    }
    read
}

/// A token that is the only secret is a credential of its own kind.
fn as_bearer(mut given: Given) -> (Option<Secrets>, Given) {
    let token = match &given.secrets[..] {
        [(name, value, _)] if *name == http::header::AUTHORIZATION => {
            let value = value.expose_secret().split_once(' ');
            let token = value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            token.map(|(_, token)| token.trim()).filter(|token| header::fits(token))
        }
        _ => None,
    };
    let Some(token) = token.map(SecretString::from) else { return (None, given) };
    given.secrets.clear();
    (Some(Secrets::Bearer(token)), given)
}
