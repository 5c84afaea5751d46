//! One audit record as a line of JSON (`hangu.audit/v1`), written in canonical form (RFC 8785)
//! at once: members sorted, nothing escaped that need not be, no second pass.
//!
//! What only the log's own order decides, `chain` and `seq`, is left out here and put in by the
//! sink, at the places that the layout names.

mod own;
mod v1;

use std::{io::Write, net::IpAddr, sync::Arc, time::Duration};

use super::{
    Config, EmployeeForm,
    forms::{misleads, push_fact, push_string, push_time},
    keys::Keys,
};
use crate::{
    mcp::Method,
    model::{
        argument_facts::ArgumentFacts,
        call_source::CallSource,
        change::ChangeClasses,
        exchange::{ApprovalFact, Facts, KeyedDigest, QuotaUse},
        ids::{self, hex},
    },
};

/// The longest text of a caller that a record repeats, in bytes.
const CALLER_TEXT: usize = 256;

/// What a record tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An exchange has ended, whatever became of it.
    Call,
    /// A write is about to leave.
    Intent,
    /// A call is the first to ask for an approval.
    ApprovalRequest,
    /// The gateway has started; a chain begins.
    Start,
    /// The gateway stops; a chain ends.
    Stop,
    /// Records before this one are missing or torn.
    Gap,
    /// Other policies are in force from here on.
    PolicyApplied,
    /// Policy files changed and have faults: what was in force stays.
    PolicyRejected,
    /// Somebody has said yes or no to a request for approval, or was not let.
    ApprovalAnswer,
    /// Somebody has changed a server of his own, or his credential for one, or was not let.
    ServerChange,
    /// The keyring in use is another one from here on.
    KeyRotation,
    /// An operator did something, or was not let.
    AdminAction,
    /// A tool's definition is another, or another one is approved.
    PinChange,
}

/// A record to be made from what is known of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    event: Event,
    facts: &'a Facts,
    started_ms: u64,
    took: Duration,
}

/// What an operator did.
#[derive(Debug, Clone, Copy)]
pub struct AdminAction<'a> {
    /// The token's name; nothing where it was none.
    pub who: Option<&'a str>,
    pub what: &'static str,
    /// What was done it to, or with.
    pub target: Option<&'a str>,
    /// The HTTP status of the answer.
    pub status: u16,
    pub address: IpAddr,
}

/// What became of a tool's definition.
#[derive(Debug, Clone, Copy)]
pub struct PinChange<'a> {
    pub what: &'static str,
    pub upstream: &'a str,
    pub tool: &'a str,
    /// The digest of the definition, where there is one.
    pub pin: Option<[u8; 32]>,
    /// Its number among the tool's.
    pub version: Option<u64>,
    /// Whoever approved it.
    pub by: Option<&'a str>,
    /// How it differs from what is approved.
    pub classes: ChangeClasses,
}

/// What a gap record tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub reason: &'static str,
    /// Records that will never be written.
    pub lost: u64,
    /// Lines above this one that were cut off.
    pub torn: u64,
}

/// Where a line is to be completed: what stands before `chain_at` is followed by the chain, what
/// stands before `seq_at` by the number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    pub chain_at: usize,
    pub seq_at: usize,
}

/// What every record of a process has in common.
pub(super) struct Writer {
    instance: String,
    employee: EmployeeForm,
    keys: Arc<Keys>,
}

// === impl Record ===

impl<'a> Record<'a> {
    /// The record that every exchange ends with.
    pub fn call(facts: &'a Facts, started_ms: u64, took: Duration) -> Self {
        let event = match (&facts.answer, &facts.server_change) {
            (Some(_), _) => Event::ApprovalAnswer,
            (None, Some(_)) => Event::ServerChange,
            (None, None) => Event::Call,
        };
        Self { event, facts, started_ms, took }
    }

    /// The record of a new request for approval.
    pub fn approval_request(facts: &'a Facts, started_ms: u64, elapsed: Duration) -> Self {
        Self { event: Event::ApprovalRequest, facts, started_ms, took: elapsed }
    }

    /// The record that goes before a write.
    pub fn intent(facts: &'a Facts, started_ms: u64, elapsed: Duration) -> Self {
        Self { event: Event::Intent, facts, started_ms, took: elapsed }
    }
}

// === impl Event ===

impl Event {
    pub const fn as_str(self) -> &'static str {
        match self {
            Event::Call => "call",
            Event::Intent => "intent",
            Event::ApprovalRequest => "approval_request",
            Event::Start => "start",
            Event::Stop => "stop",
            Event::Gap => "gap",
            Event::PolicyApplied => "policy_applied",
            Event::PolicyRejected => "policy_rejected",
            Event::ApprovalAnswer => "approval_answer",
            Event::ServerChange => "server_change",
            Event::KeyRotation => "key_rotation",
            Event::AdminAction => "admin_action",
            Event::PinChange => "pin_change",
        }
    }
}

// === impl Writer ===

impl Writer {
    pub fn new(config: &Config, keys: Arc<Keys>) -> Self {
        Self { instance: config.instance.clone(), employee: config.employee, keys }
    }

    /// Appends the line of an exchange; returns the record's id and where to complete the line.
    pub fn exchange(&self, record: &Record<'_>, out: &mut Vec<u8>) -> (u128, Layout) {
        let Record { event, facts, started_ms, took } = *record;
        let ms = started_ms.saturating_add(millis(took));
        let ended = !matches!(event, Event::Intent | Event::ApprovalRequest);
        let id = ids::uuid_v7(ms);
        let mut object = Object::open(out);
        object.answer(facts);
        if facts.answer.is_none()
            && let Some(ApprovalFact { id, state }) = facts.approval
        {
            object.nested(key!("approval"), |approval| {
                approval.uuid(key!("id"), id);
                approval.text(key!("state"), Some(state));
            });
        }
        if ended {
            object.arguments(key!("argFacts"), &facts.arguments);
        }
        object.digest(key!("argsHash"), facts.args_hash);
        if ended {
            object.number(key!("bytesIn"), facts.bytes_in);
            object.number(key!("bytesOut"), facts.bytes_out);
        }
        object.text(key!("callSource"), facts.call_source().map(CallSource::as_str));
        let chain_at = object.mark();
        object.change(facts);
        object.text(key!("code"), facts.code.map(|code| code.as_str()));
        if let Some(cost) = facts.cost {
            object.number(key!("cost"), cost);
        }
        object.text(key!("decision"), facts.decision.map(|decision| decision.as_str()));
        object.text(key!("degradedTo"), facts.degraded_to.as_deref());
        object.text(key!("dialect"), facts.dialect.map(|dialect| dialect.as_str()));
        if facts.dry_run {
            object.truth(key!("dryRun"));
        }
        if ended {
            object.number(key!("durationUs"), micros(took));
        }
        object.text(key!("event"), Some(event.as_str()));
        object.uuid(key!("id"), Some(id));
        object.text(key!("idempotency"), facts.idempotency);
        object.text(key!("instance"), Some(&self.instance));
        object.texts(key!("limits"), facts.limits.iter().map(|limit| &*limit.id));
        object.method(facts);
        object.text(key!("outcome"), facts.outcome.map(|outcome| outcome.as_str()));
        if ended {
            object.number(key!("overhead_us"), micros(took.saturating_sub(facts.waited)));
        }
        object.pin(facts.pin);
        self.principal(&mut object, facts);
        object.quotas(key!("quota"), &facts.quota);
        object.text(key!("reason"), facts.reason);
        object.digest(key!("resultRef"), facts.result_ref);
        object.text(key!("revision"), facts.policy_revision.as_deref());
        object.text(key!("risk"), facts.risk.map(|risk| risk.as_str()));
        object.texts(key!("rules"), facts.rules.iter().map(|rule| &**rule));
        object.uuid(key!("runId"), facts.run_id);
        let seq_at = object.mark();
        object.text(key!("serverKey"), facts.server_key.as_deref());
        if let Some((decision, reason)) = facts.shadow {
            object.nested(key!("shadow"), |shadow| {
                shadow.text(key!("decision"), Some(decision.as_str()));
                shadow.text(key!("reason"), Some(reason));
            });
        }
        if let Some(address) = facts.address {
            object.nested(key!("source"), |source| source.display(key!("address"), &address));
        }
        object.trace_id::<8, 16>(key!("spanId"), facts.trace.span_id);
        if let Some(status) = facts.status {
            object.number(key!("status"), status.into());
        }
        object.text(key!("tenant"), facts.tenant.as_ref().map(|tenant| tenant.as_str()));
        match (&facts.tool, &facts.tool_asked) {
            // A resource that is in no catalog is named by whoever asks for it.
            (Some(tool), _) if facts.method != Some(Method::CallTool) => {
                object.caller_text(key!("tool"), tool);
            }
            (Some(tool), _) => object.text(key!("tool"), Some(tool)),
            (None, Some(asked)) => object.caller_text(key!("tool"), asked),
            (None, None) => {}
        }
        object.uuid(key!("toolCallId"), facts.call_id);
        object.trace_id::<16, 32>(key!("traceId"), facts.trace.trace_id);
        object.time(key!("ts"), ms);
        object.text(key!("upstream"), facts.upstream.as_deref());
        object.close();
        (id, Layout { chain_at, seq_at })
    }

    fn principal(&self, object: &mut Object<'_>, facts: &Facts) {
        if facts.caller.is_none() && facts.employee.is_none() {
            return;
        }
        object.nested(key!("principal"), |principal| {
            principal.text(key!("auth"), facts.auth.map(|auth| auth.as_str()));
            principal.text(key!("caller"), facts.caller.as_ref().map(|caller| caller.as_str()));
            match (self.employee, &facts.employee, &facts.tenant) {
                (EmployeeForm::Plain, Some(employee), _) => {
                    principal.text(key!("empId"), Some(employee.as_str()));
                }
                (EmployeeForm::Hash, Some(employee), Some(tenant)) => {
                    let known = facts.employee_hash;
                    principal.digest(
                        key!("hash"),
                        Some(known.unwrap_or_else(|| self.keys.principal(tenant, employee))),
                    );
                }
                (EmployeeForm::Hash, Some(_), None) | (_, None, _) => {}
            }
            principal.texts(key!("roles"), facts.roles.iter().map(|role| role.as_str()));
        });
    }
}

/// The text that goes before a member's value: with the comma that the first one leaves out.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
use key;

/// A JSON object being written; its members must be given in order.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// Where the object's first member begins.
    start: usize,
}

// === impl Object ===

impl<'a> Object<'a> {
    fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        let start = out.len();
        Object { out, start }
    }

    /// Ends a record with the members that all of them end with.
    fn close(mut self) {
        self.number(key!("v"), 1);
        self.text(key!("version"), Some(env!("CARGO_PKG_VERSION")));
        self.out.push(b'}');
    }

    /// The place of a member that is put in later.
    fn mark(&self) -> usize {
        self.out.len()
    }

    fn key(&mut self, key: &'static str) {
        let is_first = self.out.len() == self.start;
        self.out.extend_from_slice(key.as_bytes().get(usize::from(is_first)..).unwrap_or_default());
    }

    fn text(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.key(key);
            push_string(self.out, value);
        }
    }

    /// Text that a caller chose: cut to a length, and freed of what may end a line for readers
    /// of the log although JSON leaves it as it is.
    fn caller_text(&mut self, key: &'static str, value: &str) {
        let cut = value.floor_char_boundary(CALLER_TEXT);
        let shown = &value[..cut];
        self.key(key);
        if shown.chars().any(misleads) {
            let plain: String =
                shown.chars().map(|c| if misleads(c) { '\u{fffd}' } else { c }).collect();
            push_string(self.out, &plain);
        } else {
            push_string(self.out, shown);
        }
    }

    fn texts<'t>(&mut self, key: &'static str, values: impl Iterator<Item = &'t str>) {
        let mut some = false;
        for value in values {
            if some {
                self.out.push(b',');
            } else {
                self.key(key);
                self.out.push(b'[');
                some = true;
            }
            push_string(self.out, value);
        }
        if some {
            self.out.push(b']');
        }
    }

    fn quotas(&mut self, key: &'static str, quotas: &[QuotaUse]) {
        for (number, quota) in quotas.iter().enumerate() {
            if number == 0 {
                self.key(key);
            }
            self.out.push(if number == 0 { b'[' } else { b',' });
            let mut member = Object::open(self.out);
            member.number(key!("budget"), quota.budget);
            member.text(key!("id"), Some(&quota.id));
            member.number(key!("used"), quota.used);
            self.out.push(b'}');
        }
        if !quotas.is_empty() {
            self.out.push(b']');
        }
    }

    fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        // Canonical numbers are doubles: what is above 2^53 could not be written exactly.
        let exact = value.min((1 << 53) - 1);
        self.out.extend_from_slice(itoa::Buffer::new().format(exact).as_bytes());
    }

    fn truth(&mut self, key: &'static str) {
        self.key(key);
        self.out.extend_from_slice(b"true");
    }

    /// An id of a trace; one that was never given is all zero.
    fn trace_id<const N: usize, const DIGITS: usize>(&mut self, key: &'static str, id: [u8; N]) {
        if id == [0; N] {
            return;
        }
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(&hex::<N, DIGITS>(id));
        self.out.push(b'"');
    }

    fn digest(&mut self, key: &'static str, digest: Option<KeyedDigest>) {
        if let Some(KeyedDigest { key: id, digest }) = digest {
            self.key(key);
            self.out.extend_from_slice(b"\"hmac-sha256:");
            let id = hex::<4, 8>(id.to_be_bytes());
            let zeros = id.iter().take_while(|digit| **digit == b'0').count().min(7);
            self.out.extend_from_slice(id.get(zeros..).unwrap_or_default());
            self.out.push(b':');
            self.out.extend_from_slice(&hex::<32, 64>(digest));
            self.out.push(b'"');
        }
    }

    fn pin(&mut self, pin: Option<[u8; 32]>) {
        if let Some(pin) = pin {
            self.key(key!("pin"));
            self.out.extend_from_slice(b"\"sha256:");
            self.out.extend_from_slice(&hex::<32, 64>(pin));
            self.out.push(b'"');
        }
    }

    fn uuid(&mut self, key: &'static str, uuid: Option<u128>) {
        if let Some(uuid) = uuid {
            self.key(key);
            self.out.push(b'"');
            ids::push_uuid(self.out, uuid);
            self.out.push(b'"');
        }
    }

    /// A value whose text needs no escaping.
    fn display(&mut self, key: &'static str, value: &dyn std::fmt::Display) {
        self.key(key);
        let _ = write!(self.out, "\"{value}\"");
    }

    fn time(&mut self, key: &'static str, ms: u64) {
        self.key(key);
        self.out.push(b'"');
        push_time(self.out, ms);
        self.out.push(b'"');
    }

    /// Arguments by their pointers, if there are any: plain values as they are, and what canonical
    /// JSON cannot write as it was, or the log should not, as an object that says so.
    fn arguments(&mut self, key: &'static str, arguments: &ArgumentFacts) {
        if arguments.is_empty() {
            return;
        }
        self.key(key);
        let mut mark = b'{';
        for (pointer, fact) in arguments.iter() {
            self.out.push(mark);
            mark = b',';
            push_string(self.out, pointer);
            self.out.push(b':');
            push_fact(self.out, fact);
        }
        self.out.push(b'}');
    }

    fn nested(&mut self, key: &'static str, members: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        let mut inner = Object::open(self.out);
        members(&mut inner);
        self.out.push(b'}');
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
