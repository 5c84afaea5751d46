//! What opens a server, as it is posted: `{type, …}`. What is read here is a secret at once.

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};

use super::{
    AuthKind, Options, Secrets,
    fault::{InputFault, InputFaults, below, shown},
    options::read_header_name,
    read::{
        MAX_HEADER_BYTES, MAX_HEADERS, check_headers, given, is_object, known_members, parsed, text,
    },
};
use crate::{
    json::{Kind, Value},
    model::header,
};

/// More scopes no server has for one client.
const MAX_SCOPES: usize = 128;

/// Reads a credential that is given alone: what else is `auth` of a server.
///
/// # Errors
/// All that is wrong with it.
pub fn read_secrets(body: Bytes) -> Result<Option<Secrets>, Vec<InputFault>> {
    let mut faults = InputFaults::default();
    let Some(doc) = parsed(body, &mut faults) else { return faults.or(None) };
    let secrets = read_auth(doc.root(), "", &mut faults);
    check_headers(&Options::default(), secrets.as_ref(), "/headers", &mut faults);
    faults.or(Some(secrets))
}

/// `pointer` is where it stands.
pub(super) fn read_auth(
    value: Value<'_>,
    pointer: &str,
    faults: &mut InputFaults,
) -> Option<Secrets> {
    if !is_object(value, pointer, faults) {
        return None;
    }
    let Some(kind) = given(value, "type") else {
        let fault = faults.add(&below(pointer, "type"), "`type` is missing");
        fault.advise("one of `none`, `bearer`, `basic`, `headers` and `oauth`");
        return None;
    };
    let kind = text(kind, &below(pointer, "type"), faults)?;
    let Some(kind) = AuthKind::parse(&kind) else {
        let fault = faults.add(&below(pointer, "type"), format!("unknown type `{}`", shown(&kind)));
        fault.advise("one of `none`, `bearer`, `basic`, `headers` and `oauth`");
        return None;
    };
    let known: &[&str] = match kind {
        AuthKind::None => &["type"],
        AuthKind::Bearer => &["type", "token"],
        AuthKind::Basic => &["type", "user", "password"],
        AuthKind::Headers => &["type", "headers"],
        AuthKind::Oauth => &["type", "client_id", "client_secret", "scopes"],
    };
    known_members(value, pointer, known, faults);
    match kind {
        AuthKind::None => None,
        AuthKind::Bearer => {
            let token = required(value, pointer, "token", faults)?;
            is_sendable(&token, &below(pointer, "token"), faults).then_some(Secrets::Bearer(token))
        }
        AuthKind::Basic => {
            let user = required(value, pointer, "user", faults);
            let password = required(value, pointer, "password", faults);
            read_basic(user?.expose_secret(), password?, pointer, faults)
        }
        AuthKind::Headers => read_secret_headers(value, pointer, faults),
        AuthKind::Oauth => Some(read_oauth(value, pointer, faults)),
    }
}

/// A member of `auth` that has to be there.
fn required(
    auth: Value<'_>,
    pointer: &str,
    name: &str,
    faults: &mut InputFaults,
) -> Option<SecretString> {
    let pointer = below(pointer, name);
    let Some(value) = given(auth, name) else {
        faults.add(&pointer, format!("`{name}` is missing"));
        return None;
    };
    text(value, &pointer, faults).map(|text| SecretString::from(&*text))
}

fn is_sendable(value: &SecretString, pointer: &str, faults: &mut InputFaults) -> bool {
    let text = value.expose_secret();
    let fits = header::fits(text) && text.len() <= MAX_HEADER_BYTES;
    if !fits {
        let message = format!(
            "the value cannot be sent in a header: it is empty, begins or ends blank, is no \
             visible ASCII, or has more than {MAX_HEADER_BYTES} bytes"
        );
        faults.add(pointer, message);
    }
    fits
}

/// RFC 7617: no colon in the user's name, no control characters in either.
fn read_basic(
    user: &str,
    password: SecretString,
    pointer: &str,
    faults: &mut InputFaults,
) -> Option<Secrets> {
    let legal =
        |text: &str| !text.chars().any(char::is_control) && text.len() <= MAX_HEADER_BYTES / 4;
    let mut good = true;
    if user.is_empty() || user.contains(':') || !legal(user) {
        faults.add(&below(pointer, "user"), "a user's name is not empty, and holds no colon");
        good = false;
    }
    if !legal(password.expose_secret()) {
        faults.add(&below(pointer, "password"), "a password holds no control characters");
        good = false;
    }
    good.then(|| Secrets::Basic { user: user.to_owned(), password })
}

fn read_secret_headers(
    auth: Value<'_>,
    pointer: &str,
    faults: &mut InputFaults,
) -> Option<Secrets> {
    let pointer = &below(pointer, "headers");
    let Some(headers) = given(auth, "headers") else {
        let fault = faults.add(pointer, "`headers` is missing");
        fault.advise("such as `{\"X-Api-Key\": \"…\"}`");
        return None;
    };
    if !is_object(headers, pointer, faults) {
        return None;
    }
    let mut read = Vec::new();
    for (key, value) in headers.members() {
        if faults.is_full() || read.len() > MAX_HEADERS {
            break;
        }
        let name = key.unescaped();
        let at = below(pointer, &name);
        let parsed = read_header_name(&name, &at, faults);
        let Some(value) = text(value, &at, faults) else { continue };
        if value.contains("$ctx.") {
            let fault = faults.add(&at, "a secret is sent as it is: it holds no variables");
            fault.advise("`options.headers` is where variables stand");
            continue;
        }
        let value = SecretString::from(&*value);
        if let (Some(name), true) = (parsed, is_sendable(&value, &at, faults)) {
            read.push((name, value));
        }
    }
    if headers.members().next().is_none() {
        faults.add(pointer, "`headers` is empty");
    }
    (!read.is_empty()).then_some(Secrets::Headers(read))
}

fn read_oauth(auth: Value<'_>, pointer: &str, faults: &mut InputFaults) -> Secrets {
    let mut optional = |name: &str| {
        let value = given(auth, name)?;
        let text = text(value, &below(pointer, name), faults)?;
        if text.is_empty() || text.len() > 2_048 || text.chars().any(char::is_control) {
            let message = "1 to 2048 characters, no control characters";
            faults.add(&below(pointer, name), message);
        }
        Some(text.into_owned())
    };
    let (client_id, client_secret) = (optional("client_id"), optional("client_secret"));
    if client_secret.is_some() && client_id.is_none() {
        faults.add(&below(pointer, "client_id"), "`client_secret` without a `client_id`");
    }
    let mut scopes = Vec::new();
    if let Some(list) = given(auth, "scopes") {
        if list.kind() != Kind::Array {
            faults.add(&below(pointer, "scopes"), "expected a list of texts");
        }
        for (index, scope) in list.elements().enumerate() {
            let at = below(&below(pointer, "scopes"), &index.to_string());
            if faults.is_full() {
                break;
            }
            if index == MAX_SCOPES {
                faults.add(&at, format!("more than {MAX_SCOPES} scopes"));
                break;
            }
            // RFC 6749 section 3.3.
            let legal = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
            match text(scope, &at, faults) {
                Some(scope) if !scope.is_empty() && scope.bytes().all(legal) => {
                    scopes.push(scope.into_owned());
                }
                Some(_) => {
                    let message = "a scope is visible ASCII without quotes and backslashes";
                    faults.add(&at, message);
                }
                None => {}
            }
        }
    }
    Secrets::Oauth { client_id, client_secret: client_secret.map(Into::into), scopes }
}
