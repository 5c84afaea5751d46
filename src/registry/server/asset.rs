//! A server's description as a file that can be handed on: address, options, what it listed, and
//! which definitions of its tools were seen and approved. Without any secret.
//!
//! What a server listed stands there byte for byte. The form has a version; a later one still
//! reads every earlier one.

mod history;

use std::sync::Arc;

use bytes::Bytes;
use secrecy::ExposeSecret;

use super::{
    Archive, AuthKind, Kept, OptionLimits, Registrant, Registration, ServerInfo, Spoken,
    fault::{InputFault, InputFaults, below, shown},
    options::read_options,
    read::{
        check_headers, check_name, given, is_object, known_members, read_dialect, read_url, text,
    },
};
use crate::{
    json::{self, Doc, Duplicates, Kind, Limits, Value},
    mcp::{Family, Served, Version},
    model::{
        ids,
        sensitive::{is_sensitive, looks_secret},
        server::DialectKind,
        server_key::server_key,
    },
    registry::definition,
};

/// What the file says that it is.
pub const ASSET_VERSION: &str = "hangu/asset/v1";

/// The largest file that is read, in bytes.
pub const MAX_ASSET: usize = 64 << 20;

/// More than any server ever has.
const MAX_VERSION: u64 = 1_000_000_000;

/// What servers list may say a member twice, and means the last.
const LIMITS: Limits = Limits { depth: 520, duplicates: Duplicates::Allow, outline: 2 };

/// Of a tool: what was seen of it, and what somebody approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssetPin {
    pub tool: Arc<str>,
    /// In the order in which they were seen.
    pub versions: Vec<AssetVersion>,
    /// One of these, by its digest.
    pub approved: Option<[u8; 32]>,
}

/// One definition of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssetVersion {
    /// Its number among the tool's, from 1 on; `None`: the file does not say, and it is the one
    /// after the one before.
    pub version: Option<u64>,
    pub digest: [u8; 32],
    pub seen_ms: u64,
    /// The JSON object, as its server sent it, where it is still known.
    pub definition: Option<Bytes>,
}

/// What was read from a file. Nobody has vouched for any of it: what is listed is listed again,
/// and an approval is another gateway's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Whoever imports it has to give a credential of the kind that it says.
    pub registration: Registration,
    pub archive: Option<Archive>,
    pub pins: Vec<AssetPin>,
}

const SERVED: [(Served, &str); 10] = [
    (Served::TOOLS, "tools"),
    (Served::TOOLS_CHANGED, "tools.listChanged"),
    (Served::PROMPTS, "prompts"),
    (Served::PROMPTS_CHANGED, "prompts.listChanged"),
    (Served::RESOURCES, "resources"),
    (Served::RESOURCES_CHANGED, "resources.listChanged"),
    (Served::SUBSCRIBE, "resources.subscribe"),
    (Served::COMPLETIONS, "completions"),
    (Served::LOGGING, "logging"),
    (Served::TASKS, "tasks"),
];

// === writing ===

/// The file of a server. The same server, the same bytes.
pub fn write_asset(kept: &Kept, pins: &[AssetPin]) -> Bytes {
    let registration = &kept.registration;
    let mut out = b"{\n  \"version\": ".to_vec();
    json::write_str(&mut out, ASSET_VERSION);
    member(&mut out, "server");
    out.extend_from_slice(b"{ \"serverKey\": ");
    json::write_str(&mut out, &registration.server_key);
    let name = registration.name.as_deref().map(|name| ("name", name));
    let words = [
        Some(("url", registration.url.as_str())),
        name,
        Some(("dialect", registration.dialect_name())),
        Some(("auth", registration.auth.as_str())),
    ];
    for (key, word) in words.into_iter().flatten() {
        out.extend_from_slice(format!(", \"{key}\": ").as_bytes());
        json::write_str(&mut out, word);
    }
    out.extend_from_slice(b", \"options\": ");
    registration.options.write(&mut out);
    out.extend_from_slice(b" }");
    if let Some(archive) = &kept.archive {
        write_archive(&mut out, archive);
    }
    member(&mut out, "pins");
    write_list(&mut out, pins.iter().map(write_pin));
    out.extend_from_slice(b"\n}\n");
    out.into()
}

fn write_archive(out: &mut Vec<u8>, archive: &Archive) {
    member(out, "listedMs");
    out.extend_from_slice(archive.listed_ms.to_string().as_bytes());
    let texts = [
        ("spoken", archive.spoken.map(Spoken::as_str)),
        ("revision", archive.spoken.and_then(Spoken::version).map(Version::as_str)),
        ("serverName", archive.server.as_ref().map(|server| &*server.name)),
        ("serverVersion", archive.server.as_ref().map(|server| &*server.version)),
        ("instructions", archive.instructions.as_deref()),
    ];
    for (key, text) in texts {
        let Some(text) = text else { continue };
        member(out, key);
        json::write_str(out, text);
    }
    if let Some(served) = archive.served {
        member(out, "serves");
        let words = SERVED.iter().filter(|(one, _)| served.contains(*one));
        let words = words.map(|(_, word)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        out.extend_from_slice(format!("[{words}]").as_bytes());
    }
    for family in Family::ALL {
        let Some(elements) = &archive.families[family as usize] else { continue };
        member(out, family.member());
        write_list(out, elements.iter().map(|element| element.to_vec()));
    }
}

fn write_pin(pin: &AssetPin) -> Vec<u8> {
    let mut out = b"{ \"tool\": ".to_vec();
    json::write_str(&mut out, &pin.tool);
    if let Some(approved) = pin.approved {
        out.extend_from_slice(format!(", \"approved\": \"{}\"", digest_text(approved)).as_bytes());
    }
    out.extend_from_slice(b", \"versions\": [");
    for (index, version) in pin.versions.iter().enumerate() {
        let comma = if index > 0 { ",\n      " } else { "\n      " };
        let AssetVersion { version, digest, seen_ms, definition } = version;
        let number = version.map_or_else(String::new, |it| format!("\"version\": {it}, "));
        let digest = digest_text(*digest);
        let head = format!("{comma}{{ {number}\"digest\": \"{digest}\", \"seenMs\": {seen_ms}");
        out.extend_from_slice(head.as_bytes());
        if let Some(definition) = definition {
            out.extend_from_slice(b", \"definition\": ");
            out.extend_from_slice(definition);
        }
        out.extend_from_slice(b" }");
    }
    out.extend_from_slice(b"] }");
    out
}

fn member(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\n  ");
    json::write_str(out, key);
    out.extend_from_slice(b": ");
}

fn write_list(out: &mut Vec<u8>, elements: impl Iterator<Item = Vec<u8>>) {
    out.push(b'[');
    for (index, element) in elements.enumerate() {
        out.extend_from_slice(if index > 0 { b",\n    " } else { b"\n    " });
        out.extend_from_slice(&element);
    }
    out.push(b']');
}

fn digest_text(digest: [u8; 32]) -> String {
    let digits: [u8; 64] = ids::hex(digest);
    format!("sha256:{}", String::from_utf8_lossy(&digits))
}

// === reading ===

/// Reads a file.
///
/// # Errors
/// All that is wrong with it.
pub fn read_asset(
    file: Bytes,
    registrant: &Registrant,
    limits: &OptionLimits,
) -> Result<Asset, Vec<InputFault>> {
    let mut faults = InputFaults::default();
    if file.len() > MAX_ASSET {
        faults.add("", format!("the file has more than {MAX_ASSET} bytes"));
        return faults.or(None);
    }
    let doc = match Doc::parse(file, &LIMITS) {
        Ok(doc) => doc,
        Err(fault) => {
            faults.add("", format!("the file is not JSON: {fault}"));
            return faults.or(None);
        }
    };
    let root = doc.root();
    if !is_object(root, "", &mut faults) {
        return faults.or(None);
    }
    let version = given(root, "version").and_then(Value::as_str);
    if version.as_deref() != Some(ASSET_VERSION) {
        let message = match version {
            Some(other) => format!("unknown version `{}`", shown(&other)),
            None => "`version` is missing".to_owned(),
        };
        faults.add("/version", message).advise(format!("known is `{ASSET_VERSION}`"));
        return faults.or(None);
    }
    let mut known = vec![
        "version",
        "server",
        "listedMs",
        "spoken",
        "revision",
        "serverName",
        "serverVersion",
        "instructions",
        "serves",
        "pins",
    ];
    known.extend(Family::ALL.map(Family::member));
    known_members(root, "", &known, &mut faults);
    let registration = match given(root, "server") {
        Some(server) => read_registration(server, registrant, limits, &mut faults),
        None => {
            faults.add("/server", "`server` is missing");
            None
        }
    };
    let archive = given(root, "listedMs").map(|at| read_archive(root, at, &mut faults));
    let pins = given(root, "pins").map(|pins| read_pins(pins, &mut faults)).unwrap_or_default();
    let asset = registration.map(|registration| Asset { registration, archive, pins });
    faults.or(asset)
}

fn read_registration(
    server: Value<'_>,
    registrant: &Registrant,
    limits: &OptionLimits,
    faults: &mut InputFaults,
) -> Option<Registration> {
    let at = "/server";
    if !is_object(server, at, faults) {
        return None;
    }
    let known = ["serverKey", "url", "name", "dialect", "auth", "options"];
    known_members(server, at, &known, faults);
    let mut word = |name: &str| {
        let value = given(server, name);
        if value.is_none() {
            faults.add(&below(at, name), format!("`{name}` is missing"));
        }
        value
    };
    let (key, url, auth) = (word("serverKey"), word("url"), word("auth"));
    let url = url.and_then(|url| read_url(url, "/server/url", faults));
    let auth = auth.and_then(|auth| text(auth, "/server/auth", faults)).and_then(|auth| {
        let kind = AuthKind::parse(&auth);
        if kind.is_none() {
            faults.add("/server/auth", format!("unknown type `{}`", shown(&auth)));
        }
        kind
    });
    let name = given(server, "name").and_then(|name| text(name, "/server/name", faults));
    let name = name.and_then(|name| check_name(&name, "/server/name", faults));
    let dialect =
        given(server, "dialect").and_then(|it| read_dialect(it, "/server/dialect", faults));
    let dialect = dialect.unwrap_or(DialectKind::Auto);
    let options = given(server, "options");
    let options = options.map(|it| read_options(it, "/server/options", dialect, limits, faults));
    let options = options.unwrap_or_default();
    for (name, value, at) in &options.secrets {
        if is_sensitive(name.as_str()) || looks_secret(value.expose_secret()) {
            faults.add(at, format!("`{name}` is a secret: it does not stand here"));
        }
    }
    // Files of earlier versions have values in them that are open to whoever has the file.
    let options = options.reopen().unwrap_or_default();
    check_headers(&options, None, "/server/options", faults);
    let url = url?;
    let own = server_key(&url);
    if key.and_then(Value::as_str).is_some_and(|key| *key != *own) {
        let message = format!("the address has another serverKey: `{own}`");
        faults.add("/server/serverKey", message);
    }
    Some(Registration {
        tenant: registrant.tenant.clone(),
        owner: registrant.owner.clone(),
        server_key: own,
        url,
        name,
        dialect,
        options,
        auth: auth?,
        team: None,
        created_ms: registrant.now_ms,
        updated_ms: registrant.now_ms,
        revision: 0,
    })
}

fn read_archive(root: Value<'_>, at: Value<'_>, faults: &mut InputFaults) -> Archive {
    let mut word = |name: &str| {
        let value = given(root, name)?;
        text(value, &below("", name), faults).map(|text| Arc::<str>::from(&*text))
    };
    let (spoken, revision) = (word("spoken"), word("revision"));
    let (name, version) = (word("serverName"), word("serverVersion"));
    let instructions = word("instructions");
    let revision = revision.and_then(|revision| Version::of_server(&revision));
    let mut archive = Archive {
        families: Default::default(),
        served: given(root, "serves").map(|serves| read_served(serves, faults)),
        instructions,
        server: name.map(|name| ServerInfo { name, version: version.unwrap_or_default() }),
        spoken: spoken.and_then(|spoken| Spoken::parse(&spoken, revision)),
        listed_ms: at.as_i64().and_then(|at| u64::try_from(at).ok()).unwrap_or_else(|| {
            faults.add("/listedMs", "expected a time in milliseconds");
            0
        }),
        failure: None,
    };
    if given(root, "spoken").is_some() && archive.spoken.is_none() {
        faults.add("/spoken", "no dialect and revision that a server speaks");
    }
    for family in Family::ALL {
        let Some(list) = given(root, family.member()) else { continue };
        let pointer = below("", family.member());
        if list.kind() != Kind::Array {
            faults.add(&pointer, "expected a list");
        }
        let elements = list.elements().enumerate().map(|(index, element)| {
            is_object(element, &below(&pointer, &index.to_string()), faults);
            element.bytes()
        });
        archive.set(family, elements.collect());
    }
    archive
}

fn read_served(serves: Value<'_>, faults: &mut InputFaults) -> Served {
    if serves.kind() != Kind::Array {
        faults.add("/serves", "expected a list of texts");
    }
    let mut bits = 0;
    for (index, word) in serves.elements().enumerate() {
        if faults.is_full() {
            break;
        }
        match SERVED.iter().find(|(_, known)| word.is_str(known)) {
            Some((served, _)) => bits |= served.bits(),
            None => {
                let at = below("/serves", &index.to_string());
                faults.add(&at, "nothing that a server serves");
            }
        }
    }
    Served::from_bits(bits)
}

fn read_pins(pins: Value<'_>, faults: &mut InputFaults) -> Vec<AssetPin> {
    if pins.kind() != Kind::Array {
        faults.add("/pins", "expected a list");
    }
    let read = pins.elements().enumerate().filter_map(|(index, pin)| {
        let at = below("/pins", &index.to_string());
        if !is_object(pin, &at, faults) {
            return None;
        }
        known_members(pin, &at, &["tool", "approved", "versions"], faults);
        let Some(tool) = given(pin, "tool").and_then(Value::as_str).filter(|it| !it.is_empty())
        else {
            faults.add(&below(&at, "tool"), "expected a tool's name");
            return None;
        };
        let place = below(&at, "versions");
        let versions = given(pin, "versions").map(Value::elements);
        if given(pin, "versions").is_none_or(|versions| versions.kind() != Kind::Array) {
            faults.add(&place, "expected a list");
        }
        let versions = versions.into_iter().flatten().enumerate();
        let versions: Vec<AssetVersion> = versions
            .filter_map(|(index, version)| {
                read_version(version, &below(&place, &index.to_string()), &tool, faults)
            })
            .collect();
        let place = below(&at, "approved");
        let approved =
            given(pin, "approved").and_then(|digest| read_digest(digest, &place, faults));
        let mut last = 0;
        for (index, version) in versions.iter().enumerate() {
            let number = version.version.unwrap_or(last + 1);
            if number <= last {
                let at = below(&below(&below(&at, "versions"), &index.to_string()), "version");
                faults.add(&at, "no number above that of the version before");
            }
            last = number;
        }
        if approved.is_some_and(|digest| versions.iter().all(|it| it.digest != digest)) {
            faults.add(&place, "none of the versions has this digest");
        }
        Some(AssetPin { tool: (&*tool).into(), versions, approved })
    });
    read.collect()
}

fn read_version(
    version: Value<'_>,
    at: &str,
    tool: &str,
    faults: &mut InputFaults,
) -> Option<AssetVersion> {
    if !is_object(version, at, faults) {
        return None;
    }
    known_members(version, at, &["version", "digest", "seenMs", "definition"], faults);
    let number = given(version, "version").map(|number| {
        let known = number.as_i64().and_then(|number| u64::try_from(number).ok());
        let known = known.filter(|number| (1..=MAX_VERSION).contains(number));
        if known.is_none() {
            faults.add(&below(at, "version"), format!("expected a number of 1 to {MAX_VERSION}"));
        }
        known.unwrap_or(1)
    });
    let place = below(at, "digest");
    let Some(digest) = given(version, "digest") else {
        faults.add(&place, "`digest` is missing");
        return None;
    };
    let digest = read_digest(digest, &place, faults)?;
    let seen = given(version, "seenMs").and_then(Value::as_i64);
    let seen_ms = seen.and_then(|seen| u64::try_from(seen).ok());
    if seen_ms.is_none() {
        faults.add(&below(at, "seenMs"), "expected a time in milliseconds");
    }
    let definition = given(version, "definition").map(|definition| {
        let place = below(at, "definition");
        if is_object(definition, &place, faults) {
            if definition::digest(definition) != digest {
                faults.add(&place, "the definition has another digest");
            }
            if definition.get("name").is_none_or(|name| !name.is_str(tool)) {
                faults.add(&place, "the definition is another tool's");
            }
        }
        definition.bytes()
    });
    Some(AssetVersion { version: number, digest, seen_ms: seen_ms?, definition })
}

fn read_digest(value: Value<'_>, at: &str, faults: &mut InputFaults) -> Option<[u8; 32]> {
    let text = text(value, at, faults)?;
    let digest = text.strip_prefix("sha256:").and_then(ids::from_hex);
    if digest.is_none() {
        faults.add(at, "not a digest: `sha256:` is followed by 64 digits of 0-9 and a-f");
    }
    digest
}
