//! `hangu policy replay`: which calls of an audit file other policies would decide otherwise.
//!
//! A record has no arguments. Where a rule looks at some, its `argFacts` are asked, and what they
//! do not tell is counted and not guessed.

mod arguments;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::json;

use super::load;
use crate::{
    cli::{
        catalog::Catalog,
        tell::{self, CommandError, Ending, count},
    },
    fault::{Format, Paint, WIDTH, escape, wrap},
    model::caller::{CallerId, EmployeeId, Role, Roles, TenantId},
    policy::{Asker, Bench, Family, ItemIndex, Named},
};

/// Which records, and which policies.
#[derive(Debug, clap::Args)]
#[command(after_help = "Ends with exit code 1 if a call would have been decided otherwise.\n\n\
    Examples:\n  \
    hangu policy replay --records audit/hangu.jsonl policies\n  \
    hangu policy replay --records audit/hangu.jsonl ../next/policies --format json")]
pub struct Replay {
    /// An audit file, one record a line
    #[arg(long, value_name = "FILE")]
    records: PathBuf,
    /// The policies to decide by
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// What upstreams offer, as a JSON file
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = tell::parse_format)]
    format: Format,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    event: String,
    method: Option<String>,
    tenant: Option<String>,
    #[serde(default)]
    principal: PrincipalLine,
    tool: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    trace_id: Option<String>,
    arg_facts: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrincipalLine {
    emp_id: Option<String>,
    #[serde(default)]
    roles: Vec<String>,
    caller: Option<String>,
    auth: Option<String>,
}

/// A record that can be decided again.
struct Call {
    asker: Asker,
    /// The roles come from the directory, which the new policies may have changed.
    listed: bool,
    item: Named,
    was: String,
    reason: String,
    trace: String,
    facts: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What is told.
#[derive(Default)]
struct Tally {
    decided: usize,
    /// Records of nothing that is decided by rules on an item.
    other: usize,
    /// Lines that are no records.
    unreadable: usize,
    /// Whose arguments nobody wrote down.
    unknown: usize,
    changes: BTreeMap<Change, Sample>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    was: String,
    is: &'static str,
    tenant: String,
    item: String,
    rule: Option<String>,
}

#[derive(Default)]
struct Sample {
    calls: usize,
    people: BTreeSet<String>,
    traces: Vec<String>,
}

/// Trace ids told of each change.
const TRACES: usize = 3;

/// Decides every record again.
pub fn run(args: &Replay, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let policies = load::load(&args.new)?;
    let catalog = Catalog::read(args.catalog.as_deref())?;
    let mut tally = Tally::default();
    let calls = read(&args.records, &mut tally)?;
    let names = policies.named().into_iter().chain(catalog.names());
    let bench = Bench::new(&policies, names.chain(calls.iter().map(|call| call.item.clone())));
    for call in &calls {
        tally.decide(&bench, call);
    }
    match args.format {
        Format::Human { colour } => tally.human(Paint::new(colour), out)?,
        Format::Plain | Format::Sarif => tally.plain(out)?,
        Format::Json => writeln!(out, "{}", tally.as_json())?,
    }
    Ok(if tally.changes.is_empty() { Ending::Well } else { Ending::Findings })
}

fn read(file: &Path, tally: &mut Tally) -> Result<Vec<Call>, CommandError> {
    let wrong = |error: std::io::Error| {
        CommandError::Environment(format!("`{}` cannot be read: {error}", file.display()))
    };
    let mut calls = Vec::new();
    for line in BufReader::new(File::open(file).map_err(wrong)?).split(b'\n') {
        let line = line.map_err(wrong)?;
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Line>(&line) {
            Ok(line) => match line.into_call() {
                Some(call) => calls.push(call),
                None => tally.other += 1,
            },
            Err(_) => tally.unreadable += 1,
        }
    }
    Ok(calls)
}

impl Line {
    fn into_call(self) -> Option<Call> {
        let family = match self.method.as_deref()? {
            "tools/call" => Family::Tools,
            "prompts/get" => Family::Prompts,
            "resources/read" => Family::Resources,
            _ => return None,
        };
        if self.event != "call" {
            return None;
        }
        let employee = self.principal.emp_id.and_then(|id| EmployeeId::parse(&id));
        let is_key = self.principal.auth.as_deref() == Some("key");
        let listed = self.principal.auth.as_deref() == Some("header") && employee.is_some();
        let roles = Roles::new(self.principal.roles.into_iter().map(Role::new));
        Some(Call {
            asker: Asker {
                tenant: TenantId::new(self.tenant?),
                caller: self.principal.caller.map(CallerId::new),
                employee,
                roles: (!is_key).then_some(roles),
            },
            listed,
            // What no such tool was called may be anything, and was refused as it would be again.
            item: Named::parse(family, &self.tool?).ok()?,
            was: self.decision?,
            reason: self.reason.unwrap_or_default(),
            trace: self.trace_id.unwrap_or_default(),
            facts: self.arg_facts,
        })
    }
}

impl Tally {
    fn decide(&mut self, bench: &Bench, call: &Call) {
        let mut asker = call.asker.clone();
        if call.listed {
            asker.roles = None;
        }
        let view = bench.view(&asker);
        let item = bench.find(&call.item).unwrap_or(ItemIndex::new(usize::MAX));
        let Some(arguments) = arguments::rebuilt(&view, item, call.facts.as_ref()) else {
            self.unknown += 1;
            return;
        };
        self.decided += 1;
        let decision = view.decide_call(item, arguments.as_ref());
        if decision.kind.as_str() == call.was {
            return;
        }
        let change = Change {
            was: format!("{} ({})", call.was, call.reason),
            is: decision.kind.as_str(),
            tenant: asker.tenant.to_string(),
            item: call.item.full(),
            rule: decision
                .rule
                .map(|rule| format!("{} ({})", rule.id, crate::policy::words::place(rule))),
        };
        let sample = self.changes.entry(change).or_default();
        sample.calls += 1;
        let who = asker.employee.as_ref().map(ToString::to_string);
        sample.people.extend(who.or_else(|| asker.caller.as_ref().map(ToString::to_string)));
        if sample.traces.len() < TRACES {
            sample.traces.push(call.trace.clone());
        }
    }

    fn summary(&self) -> String {
        let changed: usize = self.changes.values().map(|sample| sample.calls).sum();
        let mut text =
            format!("{changed} of {} would be decided otherwise", count(self.decided, "call"));
        if self.unknown > 0 {
            let calls = count(self.unknown, "call");
            text += &format!("; {calls} not decided, for want of the arguments that rules look at");
        }
        if self.unreadable > 0 {
            text += &format!("; {} not read, being no record", count(self.unreadable, "line"));
        }
        text
    }

    fn human(&self, paint: Paint, out: &mut dyn Write) -> Result<(), CommandError> {
        for (change, sample) in &self.changes {
            let opens = matches!(change.is, "allow");
            let tint = if opens { paint.red() } else { paint.yellow() };
            let (reset, dim) = (paint.reset(), paint.dim());
            let by = change.rule.as_ref().map_or(String::new(), |rule| format!(" by {rule}"));
            let item = escape(&change.item);
            let calls = count(sample.calls, "call");
            let head = format!("{}  {item}  {calls}", escape(&change.tenant));
            writeln!(out, "{tint}{} -> {}{reset}  {head}", escape(&change.was), change.is)?;
            let people: Vec<_> = sample.people.iter().take(5).map(|who| escape(who)).collect();
            let more = sample.people.len().saturating_sub(5);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let text = format!("{}{more}{by}", people.join(", "));
            writeln!(out, "  {}", wrap(&text, 2, WIDTH))?;
            writeln!(out, "  {dim}trace {}{reset}", escape(&sample.traces.join(" ")))?;
        }
        writeln!(out, "{}", wrap(&self.summary(), 0, WIDTH))?;
        Ok(())
    }

    fn plain(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        for (change, sample) in &self.changes {
            let (was, is, tenant) = (escape(&change.was), change.is, escape(&change.tenant));
            let traces = escape(&sample.traces.join(" "));
            let (item, calls) = (escape(&change.item), count(sample.calls, "call"));
            writeln!(out, "{tenant}: {item}: {was} -> {is}: {calls}: {traces}")?;
        }
        writeln!(out, "{}", self.summary())?;
        Ok(())
    }

    fn as_json(&self) -> serde_json::Value {
        let changes = self.changes.iter().map(|(change, sample)| {
            json!({
                "was": change.was,
                "is": change.is,
                "tenant": change.tenant,
                "item": change.item,
                "rule": change.rule,
                "calls": sample.calls,
                "people": sample.people,
                "traces": sample.traces,
            })
        });
        json!({
            "decided": self.decided,
            "notDecided": self.unknown,
            "unreadable": self.unreadable,
            "other": self.other,
            "changes": changes.collect::<Vec<_>>(),
        })
    }
}
