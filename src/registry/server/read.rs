//! Reading a server as it is posted: `{url, name?, dialect?, auth?, options?}`.
//!
//! All faults are told at once. Secrets leave here beside the registration, never in it: also the
//! value of a header whose name says that it is one. Whether the owner may register the server is
//! not asked here.

use std::{borrow::Cow, collections::HashSet, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, header::AUTHORIZATION};
use secrecy::{ExposeSecret, SecretString};
use url::Url;
use zeroize::Zeroizing;

use super::{
    AuthKind, Options, Registration, Secrets,
    auth::read_auth,
    fault::{InputFault, InputFaults, below, shown},
    options::{Given, read_options},
};
use crate::{
    fault::nearest,
    json::{Doc, Duplicates, Kind, Limits, Value},
    model::{
        address::{self, AddressFault},
        caller::{EmployeeId, TenantId},
        server::DialectKind,
        server_key::{normalised, server_key},
    },
    registry::store::HandedOn,
};

pub(super) const LIMITS: Limits = Limits { depth: 64, duplicates: Duplicates::Refuse, outline: 2 };

/// The longest address, in bytes.
const MAX_URL: usize = 2_048;
/// The longest name, in characters.
pub const MAX_NAME: usize = 80;
/// Of headers and of a credential together. Whoever reads a list of them stops behind the first
/// one too many: a body may hold hundreds of thousands.
pub(super) const MAX_HEADERS: usize = 32;
pub(super) const MAX_HEADER_BYTES: usize = 16 * 1_024;

pub(super) const DIALECTS: [(&str, DialectKind); 4] = [
    ("auto", DialectKind::Auto),
    ("mcp-lite", DialectKind::McpLite),
    ("streamable-http", DialectKind::StreamableHttp),
    ("sse", DialectKind::HttpSse),
];

/// Who registers, and when.
#[derive(Debug, Clone)]
pub struct Registrant {
    pub tenant: TenantId,
    pub owner: EmployeeId,
    pub now_ms: u64,
}

/// What the operator allows at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionLimits {
    pub timeout: Duration,
    pub max_time: Duration,
}

/// What was posted: to be kept, and to be sealed.
#[derive(Debug, Clone)]
pub struct NewServer {
    pub registration: Registration,
    /// Of the kind that [`Registration::auth`] says.
    pub secrets: Option<Secrets>,
    /// What another gateway has kept of its tools.
    pub history: Vec<HandedOn>,
}

impl Default for OptionLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), max_time: Duration::from_secs(600) }
    }
}

impl OptionLimits {
    /// None at all.
    pub const NONE: OptionLimits = OptionLimits { timeout: Duration::MAX, max_time: Duration::MAX };
}

/// A body as JSON.
pub(super) fn parsed(body: Bytes, faults: &mut InputFaults) -> Option<Doc> {
    match Doc::parse(body, &LIMITS) {
        Ok(doc) => Some(doc),
        Err(fault) => {
            faults.add("", format!("the body is not JSON: {fault}"));
            None
        }
    }
}

/// Reads what was posted.
///
/// # Errors
/// All that is wrong with it.
pub fn read_server(
    body: Bytes,
    registrant: &Registrant,
    limits: &OptionLimits,
) -> Result<NewServer, Vec<InputFault>> {
    let mut faults = InputFaults::default();
    let Some(doc) = parsed(body, &mut faults) else { return faults.or(None) };
    let root = doc.root();
    if !is_object(root, "", &mut faults) {
        return faults.or(None);
    }
    known_members(root, "", &["url", "name", "dialect", "auth", "options"], &mut faults);
    let url = match given(root, "url") {
        Some(url) => read_url(url, "/url", &mut faults),
        None => {
            faults.add("/url", "`url` is missing");
            None
        }
    };
    let name = given(root, "name").and_then(|name| text(name, "/name", &mut faults));
    let name = name.and_then(|name| check_name(&name, "/name", &mut faults));
    let dialect = given(root, "dialect").and_then(|it| read_dialect(it, "/dialect", &mut faults));
    let dialect = dialect.unwrap_or(DialectKind::Auto);
    let auth = given(root, "auth").and_then(|auth| read_auth(auth, "/auth", &mut faults));
    let options = given(root, "options");
    let options = options.map(|it| read_options(it, "/options", dialect, limits, &mut faults));
    let new =
        assemble(registrant, url, name, dialect, auth, options.unwrap_or_default(), &mut faults);
    faults.or(new)
}

/// Puts together what was read, and looks at what only shows then.
pub(super) fn assemble(
    registrant: &Registrant,
    url: Option<Url>,
    name: Option<Arc<str>>,
    dialect: DialectKind,
    auth: Option<Secrets>,
    given: Given,
    faults: &mut InputFaults,
) -> Option<NewServer> {
    let Given { options, secrets } = given;
    let auth = join_secrets(auth, secrets, faults);
    check_headers(&options, auth.as_ref(), "/options", faults);
    let url = url?;
    let registration = Registration {
        tenant: registrant.tenant.clone(),
        owner: registrant.owner.clone(),
        server_key: server_key(&url),
        url,
        name,
        dialect,
        options,
        auth: auth.as_ref().map_or(AuthKind::None, Secrets::kind),
        team: None,
        created_ms: registrant.now_ms,
        updated_ms: registrant.now_ms,
        revision: 0,
    };
    Some(NewServer { registration, secrets: auth, history: Vec::new() })
}

// === members ===

/// A member that is there, and not `null`.
pub(super) fn given<'a>(object: Value<'a>, name: &str) -> Option<Value<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

pub(super) fn is_object(value: Value<'_>, pointer: &str, faults: &mut InputFaults) -> bool {
    let is = value.kind() == Kind::Object;
    if !is {
        faults.add(pointer, "expected a JSON object");
    }
    is
}

pub(super) fn known_members(
    object: Value<'_>,
    pointer: &str,
    known: &[&str],
    faults: &mut InputFaults,
) {
    for (key, _) in object.members() {
        if faults.is_full() {
            return;
        }
        let name = key.unescaped();
        if known.contains(&&*name) {
            continue;
        }
        let message = format!("unknown member `{}`", shown(&name));
        let fault = faults.add(&below(pointer, &name), message);
        fault.advise(match nearest(&name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are `{}`", known.join("`, `")),
        });
    }
}

pub(super) fn text<'a>(
    value: Value<'a>,
    pointer: &str,
    faults: &mut InputFaults,
) -> Option<Cow<'a, str>> {
    let text = value.as_str();
    if text.is_none() {
        faults.add(pointer, "expected a text");
    }
    text
}

pub(super) fn flag(value: Value<'_>, pointer: &str, faults: &mut InputFaults) -> Option<bool> {
    let flag = value.as_bool();
    if flag.is_none() {
        faults.add(pointer, "expected `true` or `false`");
    }
    flag
}

/// An address in its normal form.
pub(super) fn read_url(value: Value<'_>, pointer: &str, faults: &mut InputFaults) -> Option<Url> {
    let text = text(value, pointer, faults)?;
    if text.len() > MAX_URL {
        faults.add(pointer, format!("an address has at most {MAX_URL} bytes"));
        return None;
    }
    let read = Url::parse(&text).map_err(AddressFault::NotOne).and_then(|mut url| {
        // Servers never see it.
        url.set_fragment(None);
        address::check(&url).map(|()| url)
    });
    let normal = match read {
        Ok(url) => Url::parse(&normalised(&url)),
        Err(fault) => {
            let secret = fault.is_secret();
            let fault = faults.add(pointer, fault.to_string());
            if secret {
                fault.advise("send it in a header: `\"auth\": {\"type\": \"headers\", …}`");
            }
            return None;
        }
    };
    if normal.is_err() {
        faults.add(pointer, "the address has no normal form");
    }
    normal.ok()
}

/// A name for people.
pub(super) fn check_name(text: &str, pointer: &str, faults: &mut InputFaults) -> Option<Arc<str>> {
    let length = text.chars().count();
    if length == 0 || length > MAX_NAME || text.trim() != text {
        let message = format!("a name has 1 to {MAX_NAME} characters, none of them a blank end");
        faults.add(pointer, message);
        return None;
    }
    // What steers a terminal or turns a line around is no name.
    let steers = |c: char| {
        let turns = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{2069}'];
        c.is_control() || c == '\u{feff}' || turns.iter().any(|range| range.contains(&c))
    };
    if text.chars().any(steers) {
        faults.add(pointer, "a name holds no control characters");
        return None;
    }
    Some(text.into())
}

pub(super) fn read_dialect(
    value: Value<'_>,
    pointer: &str,
    faults: &mut InputFaults,
) -> Option<DialectKind> {
    let text = text(value, pointer, faults)?;
    let found = DIALECTS.iter().find(|(name, _)| *name == text).map(|(_, dialect)| *dialect);
    if found.is_none() {
        let message = match &*text {
            "stdio" => "a server of an employee's is no process of the gateway".to_owned(),
            text => format!("unknown dialect `{}`", shown(text)),
        };
        let names: Vec<&str> = DIALECTS.iter().map(|(name, _)| *name).collect();
        faults.add(pointer, message).advise(format!("known are `{}`", names.join("`, `")));
    }
    found
}

// === what only shows together ===

/// Values among the options that are written out go with the credential, and make it one of
/// headers: a token beside them is one of those.
fn join_secrets(
    auth: Option<Secrets>,
    found: Vec<(HeaderName, SecretString, String)>,
    faults: &mut InputFaults,
) -> Option<Secrets> {
    let mut headers = match auth {
        None => Vec::new(),
        Some(Secrets::Headers(headers)) => headers,
        auth if found.is_empty() => return auth,
        Some(Secrets::Bearer(token)) => {
            vec![(AUTHORIZATION, format!("Bearer {}", token.expose_secret()).into())]
        }
        Some(Secrets::Basic { user, password }) => {
            let pair = Zeroizing::new(format!("{user}:{}", password.expose_secret()));
            vec![(AUTHORIZATION, format!("Basic {}", STANDARD.encode(&*pair)).into())]
        }
        Some(other @ Secrets::Oauth { .. }) => {
            for (name, _, at) in &found {
                let message =
                    format!("`{name}` is sealed, and `auth` of type `oauth` has no place for it");
                faults.add(at, message).advise("variables can stand there: `$ctx.tenant`");
            }
            return Some(other);
        }
    };
    headers.extend(found.into_iter().map(|(name, value, _)| (name, value)));
    (!headers.is_empty()).then_some(Secrets::Headers(headers))
}

/// Each header once, and no more of them than any server reads.
pub(super) fn check_headers(
    options: &Options,
    auth: Option<&Secrets>,
    pointer: &str,
    faults: &mut InputFaults,
) {
    let secret: &[(HeaderName, SecretString)] = match auth {
        Some(Secrets::Headers(headers)) => headers,
        _ => &[],
    };
    let authorization = match auth {
        Some(Secrets::Bearer(_) | Secrets::Basic { .. } | Secrets::Oauth { .. }) => {
            Some(&AUTHORIZATION)
        }
        _ => None,
    };
    let secret = secret.iter().map(|(name, value)| (name, value.expose_secret().len()));
    let open = options.headers.iter().map(|(name, value)| (name, value.to_string().len()));
    let all = authorization.into_iter().map(|name| (name, 0)).chain(secret).chain(open);
    let (mut names, mut count, mut bytes) = (HashSet::new(), 0, 0);
    for (name, length) in all {
        count += 1;
        bytes += name.as_str().len() + length;
        if count > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
            break;
        }
        if !names.insert(name) {
            faults.add(pointer, format!("header `{name}` is set twice"));
        }
    }
    if count > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let message =
            format!("more than {MAX_HEADERS} headers, or {MAX_HEADER_BYTES} bytes of them");
        faults.add(pointer, message);
    }
}
