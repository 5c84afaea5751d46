//! Options of a server as they are posted: headers, and how it is spoken to.
//!
//! They mean what they mean in `hangu.yaml`, within what the operator allows. A header's value
//! that is written out is put apart, whatever its name: nobody can tell a secret by its name. Only
//! variables stay, whose values are each caller's.

use std::time::Duration;

use http::HeaderName;
use secrecy::{ExposeSecret, SecretString};

use super::{
    Options,
    fault::{InputFaults, below, shown},
    read::{MAX_HEADERS, OptionLimits, flag, given, is_object, text},
};
use crate::{
    fault::nearest,
    json::{Kind, Value},
    mcp::Version,
    model::{
        header,
        sensitive::{is_sensitive, looks_secret},
        server::DialectKind,
        template::HeaderTemplate,
    },
    yaml::{duration_text, parse_duration},
};

/// How an option that sets a header begins.
const HEADER_OPTION: &str = "mcp.headers.";

/// What options say, secrets apart.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub options: Options,
    /// Values of headers that are written out, and where they stand.
    pub secrets: Vec<(HeaderName, SecretString, String)>,
}

const OPTIONS: [&str; 7] =
    ["headers", "protocol", "timeout", "max_time", "stateless", "park", "inject_user"];

/// Options as `hangu.yaml` has them, with headers as properties beside them: an object, or a list
/// of `mcp.headers.NAME=VALUE`.
pub(super) fn read_options(
    value: Value<'_>,
    pointer: &str,
    dialect: DialectKind,
    limits: &OptionLimits,
    faults: &mut InputFaults,
) -> Given {
    let mut given = Given::default();
    if value.kind() == Kind::Array {
        for (index, item) in value.elements().enumerate() {
            if given.is_enough(faults) {
                break;
            }
            let at = below(pointer, &index.to_string());
            let Some(item) = text(item, &at, faults) else { continue };
            let property = item.split_once('=');
            let property = property.map(|(name, value)| (name.trim(), value.trim()));
            match property
                .and_then(|(name, value)| Some((name.strip_prefix(HEADER_OPTION)?, value)))
            {
                Some((name, value)) => given.header(name, value, &at, faults),
                // It may be a secret, whatever it is.
                None => {
                    let fault = faults.add(&at, "not an option of the form `NAME=VALUE`");
                    fault.advise(format!("known is `{HEADER_OPTION}NAME=VALUE`"));
                }
            }
        }
        return given;
    }
    if !is_object(value, pointer, faults) {
        return given;
    }
    for (key, member) in value.members() {
        if given.is_enough(faults) {
            break;
        }
        let name = key.unescaped();
        if let Some(header) = name.strip_prefix(HEADER_OPTION) {
            given.member(header, member, &below(pointer, &name), faults);
        } else if !OPTIONS.contains(&&*name) {
            let fault =
                faults.add(&below(pointer, &name), format!("unknown option `{}`", shown(&name)));
            fault.advise(match nearest(&name, OPTIONS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are `{}` and `{HEADER_OPTION}NAME`", OPTIONS.join("`, `")),
            });
        }
    }
    if let Some(headers) = self::given(value, "headers") {
        let at = below(pointer, "headers");
        if is_object(headers, &at, faults) {
            for (key, member) in headers.members() {
                if given.is_enough(faults) {
                    break;
                }
                let name = key.unescaped();
                given.member(&name, member, &below(&at, &name), faults);
            }
        }
    }
    read_ways(value, pointer, dialect, limits, &mut given.options, faults);
    given
}

/// All but the headers.
fn read_ways(
    value: Value<'_>,
    pointer: &str,
    dialect: DialectKind,
    limits: &OptionLimits,
    options: &mut Options,
    faults: &mut InputFaults,
) {
    let member = |name: &str| Some((given(value, name)?, below(pointer, name)));
    if let Some((protocol, at)) = member("protocol") {
        options.protocol = read_protocol(protocol, &at, dialect, faults);
    }
    let mut time = |name: &str, most: Duration| {
        let (value, at) = member(name)?;
        read_time(value, &at, most, faults)
    };
    options.timeout = time("timeout", limits.timeout);
    options.max_time = time("max_time", limits.max_time);
    if let (Some(timeout), Some(max_time)) = (options.timeout, options.max_time)
        && timeout > max_time
    {
        let message = "`timeout` is longer than `max_time`, which ends every call";
        faults.add(&below(pointer, "timeout"), message);
    }
    let mut set = |name: &str| member(name).and_then(|(value, at)| flag(value, &at, faults));
    options.stateless = set("stateless").unwrap_or(false);
    options.park = set("park");
    options.inject_user = set("inject_user");
    let lite = dialect == DialectKind::McpLite;
    let sessions = !lite && !options.protocol.is_some_and(Version::is_modern);
    if options.inject_user.is_some() && !lite {
        let message = "`inject_user` is about `mcp-lite` only";
        faults.add(&below(pointer, "inject_user"), message);
    }
    if options.park.is_some() && !sessions {
        faults.add(&below(pointer, "park"), "`park` is about servers that have sessions");
    }
}

fn read_protocol(
    value: Value<'_>,
    pointer: &str,
    dialect: DialectKind,
    faults: &mut InputFaults,
) -> Option<Version> {
    let text = text(value, pointer, faults)?;
    if text == "auto" {
        return None;
    }
    let Some(version) = Version::of_server(&text) else {
        let message = format!("unknown protocol revision `{}`", shown(&text));
        let known: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
        faults.add(pointer, message).advise(format!("known are `auto` and {}", known.join(", ")));
        return None;
    };
    match dialect {
        DialectKind::McpLite => {
            faults.add(pointer, "`mcp-lite` has no protocol revisions");
        }
        DialectKind::HttpSse if version.is_modern() => {
            faults.add(pointer, "the stateless revision is not spoken over HTTP+SSE");
        }
        _ => {}
    }
    Some(version)
}

fn read_time(
    value: Value<'_>,
    pointer: &str,
    most: Duration,
    faults: &mut InputFaults,
) -> Option<Duration> {
    let text = text(value, pointer, faults)?;
    match parse_duration(&text) {
        Err(reason) => {
            faults.add(pointer, format!("`{}` {reason}", shown(&text)));
            None
        }
        Ok(time) if time.is_zero() || time > most => {
            let message = format!("a time above 0 and up to {} is allowed", duration_text(most));
            faults.add(pointer, message);
            None
        }
        Ok(time) => Some(time),
    }
}

impl Given {
    /// Whether there is nothing to be gained by reading on: more headers are a fault, which is
    /// told of all of them together, and more faults are not told.
    pub fn is_enough(&self, faults: &InputFaults) -> bool {
        faults.is_full() || self.options.headers.len() + self.secrets.len() > MAX_HEADERS
    }

    fn member(&mut self, name: &str, value: Value<'_>, at: &str, faults: &mut InputFaults) {
        if let Some(value) = text(value, at, faults) {
            self.header(name, &value, at, faults);
        }
    }

    /// Takes over a header: as it is where it has variables, as a secret where it has none.
    pub fn header(&mut self, name: &str, value: &str, at: &str, faults: &mut InputFaults) {
        let Some(name) = read_header_name(name, at, faults) else { return };
        let sensitive = is_sensitive(name.as_str());
        let template = match HeaderTemplate::parse(value) {
            Ok(template) => template,
            Err(found) => {
                let message = match sensitive {
                    // It would repeat what stands there.
                    true => {
                        "the value holds a variable that is none, or no visible ASCII".to_owned()
                    }
                    false => found.message,
                };
                let fault = faults.add(at, message);
                fault.advice = found.suggestion.filter(|_| !sensitive);
                return;
            }
        };
        if !header::fits(value) {
            faults.add(at, "the value is empty, begins or ends blank, or is no visible ASCII");
        } else if template.is_constant() {
            self.secrets.push((name, value.into(), at.to_owned()));
        } else if template.is_all_context() || !(sensitive || looks_secret(value)) {
            self.options.headers.push((name, template));
        } else {
            let message = format!("`{name}` is a secret: it is one text, or variables alone");
            faults.add(at, message);
        }
    }

    /// What an earlier version kept open: values that are written out, under harmless names.
    pub fn reopen(mut self) -> Option<Options> {
        for (name, value, _) in self.secrets {
            if is_sensitive(name.as_str()) {
                return None;
            }
            let template = HeaderTemplate::parse(value.expose_secret()).ok()?;
            self.options.headers.push((name, template));
        }
        Some(self.options)
    }
}

pub(super) fn read_header_name(
    name: &str,
    at: &str,
    faults: &mut InputFaults,
) -> Option<HeaderName> {
    header::settable(name)
        .map_err(|fault| _ = faults.add(at, format!("`{}` {fault}", shown(name))))
        .ok()
}
