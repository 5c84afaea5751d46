//! Complete listings of each family that a server declares: every page, each element read for
//! itself.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use tower::Service;

use super::Watcher;
use crate::{
    dialect::{downgrade, south},
    error::{Code, Error},
    json::{Doc, Kind, Value},
    mcp::{Family, Served, rpc},
    model::reply::{Final, Reply},
    registry::{Definition, DefinitionFault, Entry, read_definition, read_entry, without_marks},
    stack::stage::{Era, Routed, SouthRequest},
};

/// Pages of one listing; a server that pages on is stopped here.
const PAGES_MAX: usize = 1_000;
/// Faults of single elements that are told of one listing.
const FAULTS_MAX: usize = 100;
/// Elements that are read before others on the thread have a turn.
const AT_ONCE: usize = 16;

/// What a server may list. All of it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pages of all families together, in one look.
    pub bytes: usize,
    /// Elements of one listing.
    pub elements: usize,
}

/// What is left of that for one look.
pub(super) struct Room {
    limits: Limits,
    read: AtomicUsize,
}

impl Room {
    pub fn new(limits: Limits) -> Self {
        Self { limits, read: AtomicUsize::new(0) }
    }

    /// Takes room for a page; whether there was any.
    fn take(&self, bytes: usize) -> bool {
        let before = self.read.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= self.limits.bytes
    }
}

/// What a listing brought.
pub(super) enum Elements {
    Tools(Vec<Arc<Definition>>),
    Others(Vec<Arc<Entry>>),
}

pub(super) struct Listed {
    pub elements: Elements,
    /// What was left out or changed, and why.
    pub faults: Vec<String>,
}

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync,
    S::Future: Send,
{
    /// Every page of a family's listing; `known` are the tools that were read before.
    pub(super) async fn pages(
        &self,
        family: Family,
        known: &[Arc<Definition>],
        room: &Room,
    ) -> Result<Listed, Error> {
        let is_pipe = self.upstream.reach.is_pipe();
        let mut reading = Reading::new(family, self.upstream.era(), is_pipe, known);
        let mut cursors: HashSet<Box<str>> = HashSet::new();
        let mut cursor: Option<Box<str>> = None;
        for _ in 0..PAGES_MAX {
            let request = SouthRequest::List { family, cursor: cursor.take() };
            let page = match self.ask(request).await? {
                Final::Result(body) => body.raw,
                // Resources and templates have one capability; many servers have only one of
                // the two.
                Final::Error(error)
                    if error.code == i64::from(rpc::METHOD_NOT_FOUND)
                        && family.capability() == Served::RESOURCES =>
                {
                    return Ok(reading.done());
                }
                Final::Error(error) => return Err(self.refused(family, error.code)),
            };
            if !room.take(page.len()) {
                let most = room.limits.bytes;
                return Err(self.too_large(&format!("its listings have more than {most} bytes")));
            }
            let doc = south::read_page(page)?;
            let list = doc.root().get(family.member()).filter(|list| list.kind() == Kind::Array);
            let Some(list) = list else {
                return Err(self.malformed(&format!("a listing without `{}`", family.member())));
            };
            for element in list.elements() {
                if reading.seen == room.limits.elements {
                    let (most, member) = (room.limits.elements, family.member());
                    return Err(self.too_large(&format!("it lists more than {most} `{member}`")));
                }
                reading.read(element);
                if reading.seen.is_multiple_of(AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
            let next = doc.root().get("nextCursor").and_then(Value::as_str);
            let Some(next) = next else { return Ok(reading.done()) };
            let next: Box<str> = next.into();
            // A cursor that comes again leads in a circle: what it would bring is known.
            if !cursors.insert(next.clone()) {
                let fault = "its pages lead in a circle; what came before is used";
                reading.listed.faults.push(format!("`{}`: {fault}", family.member()));
                return Ok(reading.done());
            }
            cursor = Some(next);
        }
        Err(self.malformed("more pages than the gateway reads"))
    }

    fn refused(&self, family: Family, code: i64) -> Error {
        let (name, member) = (&self.upstream.name, family.member());
        let message = format!("`{name}` refused to list its `{member}` (JSON-RPC error {code})");
        Error::new(Code::ExternalServiceError, message).with_kind("rpc_error").from_upstream()
    }

    /// What was listed before stays.
    fn too_large(&self, what: &str) -> Error {
        let message = format!("`{}` lists too much: {what}", self.upstream.name);
        Error::new(Code::ExternalServiceError, message).with_kind("too_large").from_upstream()
    }

    fn malformed(&self, what: &str) -> Error {
        let message = format!("`{}` answered with {what}", self.upstream.name);
        Error::new(Code::ExternalServiceError, message).with_kind("malformed").from_upstream()
    }
}

/// A listing as far as it has been read.
struct Reading<'k> {
    family: Family,
    /// By their text. What is listed again to the letter is not read again: compiling its schema
    /// takes longer than all else, and most polls bring nothing new.
    known: HashMap<&'k [u8], &'k Arc<Definition>, RandomState>,
    /// Calls of its tools carry headers, so that a wrong mark makes a tool unusable.
    headers: bool,
    /// It may list tools that run only as tasks of its revision, which the gateway carries for
    /// nobody.
    tasks: bool,
    names: HashSet<Arc<str>>,
    /// Elements, also those that could not be read.
    seen: usize,
    listed: Listed,
}

impl<'k> Reading<'k> {
    fn new(family: Family, era: Option<Era>, is_pipe: bool, known: &'k [Arc<Definition>]) -> Self {
        let elements = match family {
            Family::Tools => Elements::Tools(Vec::new()),
            Family::Prompts | Family::Resources | Family::Templates => Elements::Others(Vec::new()),
        };
        let listed = Listed { elements, faults: Vec::new() };
        let (headers, tasks) = (era != Some(Era::Lite) && !is_pipe, era == Some(Era::Legacy));
        let known = known.iter().map(|tool| (&*tool.raw, tool)).collect();
        Self { family, known, headers, tasks, names: HashSet::new(), seen: 0, listed }
    }

    /// What was read, with the first of its faults.
    fn done(mut self) -> Listed {
        let faults = &mut self.listed.faults;
        if faults.len() > FAULTS_MAX {
            faults.truncate(FAULTS_MAX);
            faults.push(format!("`{}`: and more", self.family.member()));
        }
        self.listed
    }

    /// Takes one element; one that cannot be read costs only itself.
    fn read(&mut self, element: Value<'_>) {
        self.seen += 1;
        if self.tasks && self.family == Family::Tools && downgrade::only_as_task(element) {
            let name = element.get("name").and_then(Value::as_str).unwrap_or_default();
            let shown: String = name.chars().take(128).collect();
            self.listed.faults.push(format!("`{shown}` runs only as a task: it is left out"));
            return;
        }
        let result = match &mut self.listed.elements {
            Elements::Tools(tools) => match self.known.get(element.raw()) {
                Some(known) => Ok(Arc::clone(known)),
                None => read_tool(element, self.headers, &mut self.listed.faults).map(Arc::new),
            }
            .map(|tool| {
                let name = tool.name.clone();
                let new = self.names.insert(name.clone());
                if new {
                    tools.push(tool);
                }
                (new, name)
            }),
            Elements::Others(others) => read_entry(self.family, element).map(|entry| {
                let own = entry.own.clone();
                let new = self.names.insert(own.clone());
                if new {
                    others.push(Arc::new(entry));
                }
                (new, own)
            }),
        };
        match result {
            Ok((true, _)) => {}
            Ok((false, name)) => {
                let member = self.family.member();
                let shown: String = name.chars().take(128).collect();
                self.listed.faults.push(format!("`{shown}` stands twice in `{member}`"));
            }
            Err(fault) => self.listed.faults.push(fault.to_string()),
        }
    }
}

/// A tool. Where its calls carry no headers, wrong marks are taken out of it: clients of the
/// gateway, which do send headers, must not see them.
fn read_tool(
    element: Value<'_>,
    headers: bool,
    faults: &mut Vec<String>,
) -> Result<Definition, DefinitionFault> {
    match read_definition(element) {
        Err(DefinitionFault::Mark(name, fault)) if !headers => {
            faults.push(format!("the marks for headers are taken out of tool `{name}`: {fault}"));
            let plain: Bytes = without_marks(element);
            let limits = crate::json::Limits {
                depth: usize::MAX,
                duplicates: crate::json::Duplicates::Allow,
                outline: 2,
            };
            let doc = Doc::parse(plain, &limits).map_err(|_| DefinitionFault::NotAnObject)?;
            read_definition(doc.root())
        }
        other => other,
    }
    // Here, once, and not where somebody waits for a catalog.
    .inspect(|definition| _ = definition.quality())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        json::{Duplicates, Limits},
        registry::MAX_DEFINITION,
    };

    fn listed(
        family: Family,
        era: Option<Era>,
        known: &[Arc<Definition>],
        elements: &str,
    ) -> Listed {
        let limits = Limits { depth: 64, duplicates: Duplicates::Allow, outline: 2 };
        let doc = Doc::parse(Bytes::copy_from_slice(elements.as_bytes()), &limits).unwrap();
        let mut reading = Reading::new(family, era, false, known);
        for element in doc.root().elements() {
            reading.read(element);
        }
        reading.done()
    }

    fn read(family: Family, era: Option<Era>, elements: &str) -> (Vec<String>, usize) {
        let listed = listed(family, era, &[], elements);
        let names = match listed.elements {
            Elements::Tools(tools) => tools.iter().map(|tool| tool.name.to_string()).collect(),
            Elements::Others(others) => others.iter().map(|other| other.own.to_string()).collect(),
        };
        (names, listed.faults.len())
    }

    #[test]
    fn what_is_listed_again_to_the_letter_is_not_read_again() {
        let tools = |known: &[Arc<Definition>], elements: &str| {
            let listed = listed(Family::Tools, None, known, elements);
            let Elements::Tools(tools) = listed.elements else { panic!() };
            (tools, listed.faults.len())
        };
        let (first, _) = tools(&[], r#"[{"name":"a"},{"name":"b","description":"old"}]"#);
        let (then, faults) = tools(
            &first,
            r#"[{"name":"c"},{"name":"b","description":"new"},{"name":"a"},{"name":"a"}]"#,
        );
        let names: Vec<_> = then.iter().map(|tool| &*tool.name).collect();
        // What stands twice is told as before.
        assert_eq!((&names[..], faults), (&["c", "b", "a"][..], 1));
        assert!(Arc::ptr_eq(&then[2], &first[0]));
        assert!(!Arc::ptr_eq(&then[1], &first[1]) && then[1].digest != first[1].digest);
    }

    #[test]
    fn what_cannot_be_read_costs_only_itself() {
        for (family, key) in [
            (Family::Tools, "name"),
            (Family::Prompts, "name"),
            (Family::Resources, "uri"),
            (Family::Templates, "uriTemplate"),
        ] {
            let listing = format!(
                r#"[7,{{}},{{"{key}":7}},{{"{key}":""}},{{"{key}":"a"}},{{"{key}":"a","x":1}},{{"{key}":"b"}}]"#
            );
            assert_eq!(read(family, None, &listing), (vec!["a".into(), "b".into()], 5), "{key}");
        }
    }

    #[test]
    fn an_element_that_is_too_large_costs_only_itself() {
        for (family, key) in [(Family::Tools, "name"), (Family::Prompts, "name")] {
            let long = "x".repeat(MAX_DEFINITION);
            let listing = format!(r#"[{{"{key}":"a","description":"{long}"}},{{"{key}":"b"}}]"#);
            assert_eq!(read(family, None, &listing), (vec!["b".into()], 1), "{key}");
        }
    }

    #[test]
    fn of_hundreds_of_thousands_of_faults_the_first_are_told() {
        let listing = format!("[{}]", vec!["7"; 300_000].join(","));
        assert_eq!(read(Family::Tools, None, &listing), (vec![], FAULTS_MAX + 1));
    }

    #[test]
    fn a_look_has_room_for_so_much_and_no_more() {
        let room = Room::new(super::Limits { bytes: 10, elements: 1 });
        assert_eq!([6, 4, 1, usize::MAX].map(|bytes| room.take(bytes)), [true, true, false, false]);
    }

    #[test]
    fn a_wrong_mark_costs_the_tool_only_where_headers_are_sent() {
        let listing = r#"[{"name":"a","inputSchema":{"properties":{"n":{"type":"number","x-mcp-header":"N"}}}}]"#;
        assert_eq!(read(Family::Tools, None, listing), (vec![], 1));
        assert_eq!(read(Family::Tools, Some(Era::Lite), listing), (vec!["a".into()], 1));
    }

    #[test]
    fn a_tool_that_runs_only_as_a_task_is_left_out() {
        let listing = r#"[{"name":"a","execution":{"taskSupport":"required"}},{"name":"b","execution":{"taskSupport":"optional"}}]"#;
        assert_eq!(read(Family::Tools, Some(Era::Legacy), listing), (vec!["b".into()], 1));
        // Later revisions have no such word.
        let modern = Era::Modern(crate::mcp::Version::LATEST);
        assert_eq!(read(Family::Tools, Some(modern), listing).1, 0);
    }
}
