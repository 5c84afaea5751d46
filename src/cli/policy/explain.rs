//! `hangu policy explain`: a decision, told rule by rule, and the smallest change that turns it.

use std::{io::Write, path::PathBuf};

use bytes::Bytes;

use super::load::{self, Place};
use crate::{
    cli::{
        catalog::Catalog,
        tell::{self, CommandError, Ending, count},
    },
    fault::{Format, Paint, WIDTH, escape, wrap},
    model::{
        caller::{CallerId, EmployeeId, Role, Roles, TenantId},
        exchange::DecisionKind,
        quota::Budget,
    },
    policy::{
        Answered, Asker, Bench, Effect, Explanation, Family, Flip, ItemIndex, ItemPolicy, Named,
        Policies, QuotaRule, Rule, Told, Verdict, View,
        words::{self, change_text, place, reason_text},
    },
    yaml::check_name,
};

/// Who asks for what.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true),
    after_help = "Examples:\n  \
        hangu policy explain --tenant acme --roles member --tool crm/contacts.purge\n  \
        hangu policy explain --tenant acme --employee E1002 --tool crm/contacts.search \\\n      \
        --args '{\"region\": \"us\"}'\n  \
        hangu policy explain --tenant acme --caller night-job --resource 'crm/file:///notes.txt'"
)]
pub struct Explain {
    /// The tenant
    #[arg(long, value_parser = tenant)]
    tenant: TenantId,
    /// The roles, separated by commas; without them, those the directory gives the employee
    #[arg(long, value_delimiter = ',', value_parser = role)]
    roles: Option<Vec<Role>>,
    /// The employee
    #[arg(long, value_parser = employee)]
    employee: Option<EmployeeId>,
    /// The caller; without one, a caller that no rule names
    #[arg(long, value_parser = caller)]
    caller: Option<CallerId>,
    /// A tool, as UPSTREAM/TOOL
    #[arg(long, group = "what")]
    tool: Option<String>,
    /// A prompt, as UPSTREAM/PROMPT
    #[arg(long, group = "what")]
    prompt: Option<String>,
    /// A resource, as UPSTREAM/URI
    #[arg(long, group = "what")]
    resource: Option<String>,
    /// The arguments of a call, as JSON; without them, the list is explained
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    #[command(flatten)]
    place: Place,
    /// What upstreams offer, as a JSON file; without it, what the files name is all there is
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = tell::parse_format)]
    format: Format,
}

fn named<T>(text: &str, new: fn(String) -> T) -> Result<T, String> {
    check_name(text).map(|()| new(text.to_owned()))
}

pub(super) fn tenant(text: &str) -> Result<TenantId, String> {
    named(text, TenantId::new)
}

pub(super) fn role(text: &str) -> Result<Role, String> {
    named(text, Role::new)
}

fn caller(text: &str) -> Result<CallerId, String> {
    named(text, CallerId::new)
}

fn employee(text: &str) -> Result<EmployeeId, String> {
    EmployeeId::parse(text).ok_or_else(|| "is 1 to 64 of `A-Z a-z 0-9 . _ @ -`".to_owned())
}

/// What is told.
struct Answer<'a, 'v> {
    revision: &'a str,
    item: Named,
    explanation: &'a Explanation<'v>,
    cost: u32,
    flip: Flip,
    family: Family,
    args: &'a Explain,
    view: &'a View,
    policy: ItemPolicy,
    /// The quotas that it is paid from.
    quotas: Vec<(&'a QuotaRule, Budget)>,
    /// What else there is to say of the item.
    note: Option<String>,
}

/// Writes the explanation. It is no finding that somebody may not do something.
pub fn run(args: &Explain, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let policies = load::load(&args.place.folder()?)?;
    let catalog = Catalog::read(args.catalog.as_deref())?;
    let arguments = read_arguments(args)?;
    let known: Vec<Named> = policies.named().into_iter().chain(catalog.names()).collect();
    let asked = wanted(args)?;
    // Policy has the upstream's own names; who asks may only know what is published.
    let own = if known.contains(&asked) { None } else { published_as(&policies, &asked) };
    let item = own.unwrap_or(asked);
    let note = match known.contains(&item) {
        true => None,
        false => Some(check_known(&policies, &known, &item)?),
    };
    let bench = Bench::new(&policies, known.into_iter().chain([item.clone()]));
    let asker = Asker {
        tenant: args.tenant.clone(),
        caller: args.caller.clone(),
        employee: args.employee.clone(),
        roles: args.roles.clone().map(Roles::new),
    };
    let view = bench.view(&asker);
    let index = bench.find(&item).unwrap_or(ItemIndex::new(usize::MAX));
    let Some(explanation) = view.explain(index, arguments.as_ref()) else {
        return Err(CommandError::Usage(format!("`{}` is in no catalog", item.full())));
    };
    let policy = view.item(index);
    let is_about = |quota: &QuotaRule| policy.is_some_and(|policy| quota.is_about(&item, policy));
    let quotas = bench.set.quotas_of(&args.tenant).filter(|quota| is_about(quota));
    let answer = Answer {
        quotas: quotas.map(|quota| (&**quota, bench.set.priced(&quota.budget))).collect(),
        policy: view.item(index).cloned().unwrap_or_else(|| policies.item(item.subject())),
        revision: policies.revision(),
        cost: view.item(index).map_or(1, |policy| policy.cost),
        flip: bench.smallest_change(&asker, index, arguments.as_ref()),
        family: item.family,
        item,
        explanation: &explanation,
        args,
        view: &view,
        note,
    };
    match args.format {
        Format::Human { colour } => answer.human(Paint::new(colour), out)?,
        Format::Plain | Format::Sarif => answer.plain(out)?,
        Format::Json => writeln!(out, "{}", answer.as_json())?,
    }
    Ok(Ending::Well)
}

fn wanted(args: &Explain) -> Result<Named, CommandError> {
    let given = [
        (Family::Tools, &args.tool),
        (Family::Prompts, &args.prompt),
        (Family::Resources, &args.resource),
    ];
    let given = given.into_iter().find_map(|(family, text)| Some((family, text.as_ref()?)));
    let (family, text) = given
        .ok_or_else(|| CommandError::Usage("say which tool: `--tool UPSTREAM/TOOL`".into()))?;
    Named::parse(family, text)
        .map_err(|why| CommandError::Usage(format!("`{}` {why}", escape(text))))
}

/// The tool that is published under a name, by its upstream's own name.
fn published_as(policies: &Policies, asked: &Named) -> Option<Named> {
    let is_it = |own: &Named| {
        let policy = policies.item(own.subject());
        let name = policy.published.as_ref().and_then(|published| published.name.as_ref());
        own.upstream == asked.upstream && name.is_some_and(|name| *name.value == *asked.name)
    };
    let mut tools = policies.named().into_iter().filter(|own| own.family == Family::Tools);
    tools.find(is_it).filter(|_| asked.family == Family::Tools)
}

/// What no file names is explained if its upstream classifies what it does not name, and
/// otherwise is most likely misspelt.
fn check_known(policies: &Policies, known: &[Named], item: &Named) -> Result<String, CommandError> {
    let full = item.full();
    let names: Vec<String> =
        known.iter().filter(|known| known.family == item.family).map(Named::full).collect();
    let mut near: Vec<&String> = names.iter().collect();
    near.sort_by_key(|name| strsim::damerau_levenshtein(name, &full));
    let near: Vec<_> = near.into_iter().take(3).map(|name| format!("`{name}`")).collect();
    let one = item.family.one();
    let mut message = format!("no file names the {one} `{}`", escape(&full));
    if !near.is_empty() {
        message += &format!(". The nearest: {}", near.join(", "));
    }
    if policies.item(item.subject()).classified {
        let upstream = &item.upstream;
        return Ok(format!(" But {message}: the `default` of {upstream} is taken for it."));
    }
    Err(CommandError::Usage(message))
}

fn read_arguments(args: &Explain) -> Result<Option<Bytes>, CommandError> {
    let Some(text) = &args.args else { return Ok(None) };
    let wrong = |why: String| CommandError::Usage(format!("`--args` {why}"));
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
    if !value.is_object() {
        return Err(wrong("is no JSON object, as in '{\"region\": \"eu\"}'".to_owned()));
    }
    Ok(Some(text.clone().into()))
}

// === impl Answer ===

impl<'v> Answer<'_, 'v> {
    fn rules_of(&self, effect: Effect) -> Vec<&Told<'v>> {
        self.explanation.rules.iter().filter(|told| told.rule.effect == effect).collect()
    }

    fn human(&self, paint: Paint, out: &mut dyn Write) -> Result<(), CommandError> {
        let (word, tint) = decision_word(self.explanation.decision.kind, paint);
        let risk = match self.explanation.classified {
            true => format!("risk {}, cost {}", self.explanation.risk.as_str(), self.cost),
            false => "not classified".to_owned(),
        };
        let item = escape(&self.item.full());
        writeln!(
            out,
            "{tint}{word}{}  {item}   {risk}   revision {}",
            paint.reset(),
            self.revision
        )?;
        for effect in [Effect::Deny, Effect::Allow, Effect::RequireApproval] {
            let rules = self.rules_of(effect);
            if rules.is_empty() {
                continue;
            }
            let surely = rules.iter().filter(|told| matches!(told.verdict, Verdict::Applies));
            let of = surely.count();
            let may = rules.iter().filter(|told| told.has_say()).count() - of;
            let may = if may > 0 { format!(", {may} may") } else { String::new() };
            let name = match effect {
                Effect::Allow => "allow",
                Effect::Deny => "deny",
                Effect::RequireApproval => "ask",
            };
            let verb = if of == 1 { "matches" } else { "match" };
            let all = count(rules.len(), "rule");
            writeln!(out, "  {name:<6}  {of} of {all} {verb}{may}")?;
            self.table(&rules, paint, out)?;
        }
        for (quota, budget) in self.answered().quotas() {
            let place = format!("{}:{}", quota.at.source.name, quota.at.line);
            let head = format!("  quota   {}  {place}   ", quota.id);
            let text = words::quota_text(budget, self.cost);
            writeln!(out, "{head}{}", wrap(&text, head.chars().count(), WIDTH))?;
        }
        let text = format!("so {}", self.conclusion());
        writeln!(out, "  {}", wrap(&text, 2, WIDTH))?;
        Ok(())
    }

    fn table(
        &self,
        rules: &[&Told<'_>],
        paint: Paint,
        out: &mut dyn Write,
    ) -> Result<(), CommandError> {
        let width = |text: &dyn Fn(&Rule) -> usize| {
            rules.iter().map(|told| text(told.rule)).max().unwrap_or(0).min(48)
        };
        let ids = width(&|rule| rule.id.len());
        let places = width(&|rule| place(rule).chars().count());
        for told in rules {
            let place = place(told.rule);
            let reason = self.reason(told);
            let (dim, reset) = match told.has_say() {
                true => ("", ""),
                false => (paint.dim(), paint.reset()),
            };
            let head = format!("    {:<ids$}  {place:<places$}   ", told.rule.id);
            let column = head.chars().count();
            let reason = if column + 30 > WIDTH {
                format!("\n        {}", wrap(&reason, 8, WIDTH))
            } else {
                wrap(&reason, column, WIDTH)
            };
            writeln!(out, "{dim}{head}{reason}{reset}")?;
        }
        Ok(())
    }

    fn plain(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        let (word, _) = decision_word(self.explanation.decision.kind, Paint::new(false));
        let reason = self.explanation.decision.reason.as_str();
        let item = escape(&self.item.full());
        writeln!(out, "{item}: {} ({reason}), revision {}", word.to_lowercase(), self.revision)?;
        for told in &self.explanation.rules {
            let (effect, id) = (told.rule.effect.as_str(), &told.rule.id);
            writeln!(out, "{}: {effect} {id}: {}", place(told.rule), self.reason(told))?;
        }
        for (quota, budget) in self.answered().quotas() {
            let place = format!("{}:{}", quota.at.source.name, quota.at.line);
            writeln!(out, "{place}: quota {}: {}", quota.id, words::quota_text(budget, self.cost))?;
        }
        writeln!(out, "{}", self.conclusion())?;
        Ok(())
    }

    fn reason(&self, told: &Told<'_>) -> String {
        let employee = self.args.employee.as_ref();
        reason_text(told, self.explanation.risk, self.family, employee)
    }

    /// What it comes to, in sentences.
    fn conclusion(&self) -> String {
        let decision = &self.explanation.decision;
        let by = match decision.rule {
            Some(rule) if decision.kind != DecisionKind::RequireApproval => {
                format!("{} by {}", decision.reason.as_str(), rule.id)
            }
            _ => decision.reason.as_str().to_owned(),
        };
        let verdict = match decision.kind {
            DecisionKind::Hide if !self.explanation.classified => {
                "hidden: nobody has said what it may do.".to_owned()
            }
            DecisionKind::Hide | DecisionKind::Deny if decision.rule.is_none() => {
                "default deny.".to_owned()
            }
            DecisionKind::Hide | DecisionKind::Deny => format!("denied: {by}."),
            DecisionKind::Allow => format!("allowed: {by}."),
            DecisionKind::RequireApproval => {
                let asks: Vec<_> = decision.asks.iter().map(|rule| words::ask_text(rule)).collect();
                format!("it waits for approval: {}.", asks.join("; "))
            }
        };
        let depends = self.args.args.is_none() && self.depends();
        let depends = if depends {
            " What a call may do depends on its arguments: add `--args`."
        } else {
            ""
        };
        let change = change_text(&self.flip, decision.kind, &self.item.full());
        let note = self.note.as_deref().unwrap_or_default();
        let face = words::face_text(&self.policy);
        let quality = words::quality_text(&self.policy);
        format!("{verdict} {change}{depends}{note}{face}{quality}")
    }

    fn depends(&self) -> bool {
        self.explanation.rules.iter().any(|told| matches!(told.verdict, Verdict::Depends(_)))
            && self.view.visible().iter().next().is_some()
    }

    fn as_json(&self) -> serde_json::Value {
        self.answered().as_json()
    }

    fn answered(&self) -> Answered<'_, 'v> {
        Answered {
            explanation: self.explanation,
            item: &self.item,
            cost: self.cost,
            revision: self.revision,
            flip: &self.flip,
            employee: self.args.employee.as_ref(),
            policy: &self.policy,
            quotas: &self.quotas,
        }
    }
}

/// The decision as the first word, and its colour.
fn decision_word(kind: DecisionKind, paint: Paint) -> (&'static str, &'static str) {
    match kind {
        DecisionKind::Allow => ("ALLOWED", paint.green()),
        DecisionKind::Hide => ("HIDDEN", paint.red()),
        DecisionKind::Deny => ("DENIED", paint.red()),
        DecisionKind::RequireApproval => ("APPROVAL", paint.yellow()),
    }
}
