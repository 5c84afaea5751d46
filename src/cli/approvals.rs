//! `hangu approvals ls|show|approve|refuse`: calls that wait for somebody's yes, at a running
//! gateway, as the employee whom the environment names, or as whoever looks after the gateway.

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    remote::{AskedAsEither, escaped},
    tell::{CommandError, Ending, columns},
};
use crate::{clock::Clock, fault::escape};

/// Examples come first: most who ask for help want one.
const EXAMPLES_FIRST: &str = "{about}\n\n{after-help}\n\n{usage-heading} {usage}\n\n{all-args}";

/// What to do with calls that wait.
#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        HANGU_API_KEY=… HANGU_EMP_ID=E1009 hangu approvals ls --state waiting\n  \
        hangu approvals show 0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10\n  \
        hangu approvals approve 0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10 --comment 'as agreed'\n  \
        HANGU_ADMIN_TOKEN=… hangu approvals ls --admin --tenant acme\n\n\
        The key is read from HANGU_API_KEY, the employee from HANGU_EMP_ID; with --admin the token \
        of the admin listener from HANGU_ADMIN_TOKEN. A token sees every request, without its \
        arguments, and may refuse it; only an employee with one of a rule's roles approves."
)]
pub struct Approvals {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists what you have asked for and what you may decide on, the newest first
    Ls(Ls),
    /// Shows one request, with its arguments
    Show(Show),
    /// Says yes to a request; its call can then be made once
    Approve(Decide),
    /// Says no to a request
    Refuse(Decide),
}

#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        hangu approvals ls\n  \
        hangu approvals ls --state waiting\n  \
        hangu approvals ls --url https://gw.example --format json"
)]
struct Ls {
    /// Only what stands like this
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Only of this tenant
    #[arg(long, value_name = "TENANT", requires = "admin")]
    tenant: Option<String>,
    /// Only what is older than this request
    #[arg(long, value_name = "ID", requires = "admin", value_parser = parse_id)]
    before: Option<String>,
    #[command(flatten)]
    asked: AskedAsEither,
}

#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        hangu approvals show 0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10\n  \
        hangu approvals show 0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10 --format json"
)]
struct Show {
    /// Of the request, as `ls` lists it
    #[arg(value_name = "ID", value_parser = parse_id)]
    id: String,
    #[command(flatten)]
    asked: AskedAsEither,
}

#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        hangu approvals approve 0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10\n  \
        hangu approvals refuse 0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10 --comment 'not before Monday'"
)]
struct Decide {
    /// Of the request, as `ls` lists it
    #[arg(value_name = "ID", value_parser = parse_id)]
    id: String,
    /// Why; whoever sees the request reads it
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    #[command(flatten)]
    asked: AskedAsEither,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    Waiting,
    Approved,
    Refused,
    Used,
    Expired,
}

/// Does it, and writes what the gateway says.
pub fn run(args: &Approvals, out: &mut dyn Write) -> Result<Ending, CommandError> {
    match &args.command {
        Command::Ls(ls) => ls.run(out)?,
        Command::Show(show) => show.run(out)?,
        Command::Approve(decide) => decide.run(true, out)?,
        Command::Refuse(decide) => decide.run(false, out)?,
    }
    Ok(Ending::Well)
}

impl Ls {
    fn run(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        let state = self.state.and_then(|state| state.to_possible_value());
        let wanted = [
            ("state", state.as_ref().map(|state| state.get_name())),
            ("tenant", self.tenant.as_deref()),
            ("before", self.before.as_deref()),
        ];
        let wanted = wanted
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}={}", escaped(value))));
        let query = wanted.collect::<Vec<_>>().join("&");
        let mark = if query.is_empty() { "" } else { "?" };
        let path = format!("{}{mark}{query}", base(&self.asked));
        let answer = self.asked.at.gateway()?.get(&path)?;
        self.asked.tell(&answer, out, |listed: Listed, out| {
            if listed.approvals.is_empty() && self.asked.at.admin {
                writeln!(out, "No such request is kept.")?;
            } else {
                table(&listed.approvals, now(), out)?;
            }
            match &listed.next {
                Some(next) => {
                    Ok(writeln!(out, "There may be older ones: --before {}", escape(next))?)
                }
                None => Ok(()),
            }
        })
    }
}

impl Show {
    fn run(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        let path = format!("{}/{}", base(&self.asked), self.id);
        let answer = self.asked.at.gateway()?.get(&path)?;
        self.asked.tell(&answer, out, |told: Request, out| page(&told, now(), out))
    }
}

impl Decide {
    fn run(&self, yes: bool, out: &mut dyn Write) -> Result<(), CommandError> {
        if yes && self.asked.at.admin {
            let message = "a token approves nothing: an employee with one of the rule's roles \
                           does, with HANGU_API_KEY and HANGU_EMP_ID, without --admin";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let verb = if yes { "approve" } else { "refuse" };
        let body = match &self.comment {
            Some(comment) => json!({ "comment": comment }),
            None => json!({}),
        };
        let path = format!("{}/{}/{verb}", base(&self.asked), self.id);
        let answer = self.asked.at.gateway()?.post(&path, &body)?;
        self.asked.tell(&answer, out, |told: Request, out| {
            let (tool, whom) = (escape(&told.tool), told.whom());
            if told.state == "waiting" {
                let missing = told.rules.iter().filter(|rule| rule.missing > 0);
                let missing = missing
                    .map(|Rule { rule, missing, .. }| format!("{rule} wants {missing} more"));
                let missing = escape(&missing.collect::<Vec<_>>().join(", "));
                writeln!(out, "noted: {tool} for {whom} still waits: {missing}")?;
            } else {
                writeln!(out, "{}: {tool} for {whom}", escape(&told.state))?;
            }
            Ok(())
        })
    }
}

/// Where requests are, for whoever asks.
fn base(asked: &AskedAsEither) -> &'static str {
    if asked.at.admin { "/admin/api/approvals" } else { "/v1/approvals" }
}

// === What the gateway tells ===

#[derive(Debug, Deserialize)]
struct Listed {
    approvals: Vec<Request>,
    /// There may be older ones.
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    id: String,
    state: String,
    /// Told to whoever looks after the gateway.
    tenant: Option<String>,
    tool: String,
    risk: String,
    caller: String,
    requester: Option<String>,
    args_hash: String,
    asked_at: String,
    expires_at: String,
    rules: Vec<Rule>,
    decisions: Vec<Decision>,
    #[serde(default)]
    may_decide: bool,
    arguments_kept: Option<bool>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    rule: String,
    roles: Vec<String>,
    count: u32,
    missing: u32,
}

#[derive(Debug, Deserialize)]
struct Decision {
    by: String,
    decision: String,
    comment: Option<String>,
    at: String,
}

impl Request {
    fn whom(&self) -> String {
        let whom = escape(self.requester.as_ref().unwrap_or(&self.caller));
        match &self.tenant {
            Some(tenant) => format!("{whom} of {}", escape(tenant)),
            None => whom,
        }
    }

    /// When it expires, as seen from now.
    fn expires(&self, now: Timestamp) -> String {
        let Ok(at) = self.expires_at.parse::<Timestamp>() else { return escape(&self.expires_at) };
        let left = at.duration_since(now);
        match self.state.as_str() {
            "waiting" | "approved" if left > SignedDuration::ZERO => format!("in {}", about(left)),
            _ => "-".to_owned(),
        }
    }
}

fn about(left: SignedDuration) -> String {
    match left.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7_200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn table(requests: &[Request], now: Timestamp, out: &mut dyn Write) -> Result<(), CommandError> {
    if requests.is_empty() {
        writeln!(out, "Nothing here that you asked for or may decide on.")?;
        return Ok(());
    }
    const HEAD: [&str; 7] = ["ID", "STATE", "RISK", "TOOL", "FOR", "EXPIRES", ""];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(requests.iter().map(|request| {
        let yours = if request.may_decide { "you may decide" } else { "" };
        [
            escape(&request.id),
            escape(&request.state),
            escape(&request.risk),
            escape(&request.tool),
            request.whom(),
            request.expires(now),
            yours.to_owned(),
        ]
    }));
    Ok(columns(&rows, out)?)
}

fn page(request: &Request, now: Timestamp, out: &mut dyn Write) -> Result<(), CommandError> {
    let mut line = |name: &str, value: &str| writeln!(out, "{name:<10} {}", escape(value));
    line("id", &request.id)?;
    line("state", &request.state)?;
    if let Some(tenant) = &request.tenant {
        line("tenant", tenant)?;
    }
    line("tool", &format!("{} ({})", request.tool, request.risk))?;
    let by = match &request.requester {
        Some(requester) => format!("{requester}, through {}", request.caller),
        None => request.caller.clone(),
    };
    line("for", &by)?;
    line("asked", &request.asked_at)?;
    line("expires", &format!("{} ({})", request.expires_at, request.expires(now)))?;
    for rule in &request.rules {
        let (roles, count, missing) = (rule.roles.join(" or "), rule.count, rule.missing);
        let wanted = format!("{}: {count} of {roles}, {missing} missing", rule.rule);
        line("rule", &wanted)?;
    }
    for decision in &request.decisions {
        let comment =
            decision.comment.as_ref().map_or_else(String::new, |said| format!(": {said}"));
        let Decision { by, decision, at, .. } = decision;
        line("decision", &format!("{decision} by {by}, {at}{comment}"))?;
    }
    line("argsHash", &request.args_hash)?;
    match (&request.arguments, request.arguments_kept) {
        (Some(arguments), _) => {
            writeln!(out, "arguments")?;
            let value: serde_json::Value =
                serde_json::from_str(arguments.get()).map_err(strange)?;
            let text = serde_json::to_string_pretty(&value).map_err(strange)?;
            text.lines().try_for_each(|line| writeln!(out, "  {}", escape(line)))?;
        }
        (None, Some(_)) => line("arguments", "not kept: too large, expired, or under another key")?,
        (None, None) => {}
    }
    if request.may_decide {
        writeln!(
            out,
            "\nhangu approvals approve {0}\nhangu approvals refuse {0}",
            escape(&request.id)
        )?;
    }
    Ok(())
}

// === Small parts ===

fn strange(error: serde_json::Error) -> CommandError {
    CommandError::Environment(format!("the gateway's answer cannot be read: {error}"))
}

/// An id goes into a path as it is.
fn parse_id(text: &str) -> Result<String, String> {
    match crate::approval::ApprovalId::parse(text) {
        Some(id) => Ok(id.to_string()),
        None => {
            Err("such an id is 36 characters long, as `hangu approvals ls` lists it".to_owned())
        }
    }
}

fn now() -> Timestamp {
    let now_ms = i64::try_from(Clock::system().now_ms()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::MAX)
}
