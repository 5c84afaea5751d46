//! `hangu policy test`: runs the cases of a policy folder.

use std::{fs, io::Write, path::PathBuf};

use serde_json::json;

use super::load::{self, Place};
use crate::{
    cli::{
        catalog::Catalog,
        tell::{self, CommandError, Ending, count},
    },
    fault::{Format, Paint, WIDTH, escape, wrap},
    policy::{Asked, Case, CaseOutcome, CaseResult, Family, SuiteReport},
};

/// Which cases, and how to tell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    hangu policy test\n  \
    hangu policy test policies --coverage\n  \
    hangu policy test policies --junit report.xml")]
pub struct Test {
    /// The policy folder, with its cases anywhere below it
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// What upstreams offer, as a JSON file; without it, what the files name is all there is
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Write the results as JUnit XML too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// List the rules that no case is about
    #[arg(long)]
    coverage: bool,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = tell::parse_format)]
    format: Format,
}

/// Runs the cases. A case that fails is a finding.
pub fn run(args: &Test, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => args.place.folder()?,
    };
    let policies = load::load(&folder)?;
    let catalog = Catalog::read(args.catalog.as_deref())?;
    if policies.cases().is_empty() {
        let message = format!(
            "there is no case in `{}`: a file of `kind: PolicyTest` has them",
            folder.display()
        );
        return Err(CommandError::Environment(message));
    }
    let report = policies.run_cases(catalog.names());
    if let Some(file) = &args.junit {
        let wrong = |error| {
            CommandError::Environment(format!("cannot write `{}`: {error}", file.display()))
        };
        fs::write(file, junit(&report)).map_err(wrong)?;
    }
    let tally = Tally::of(&report);
    match args.format {
        Format::Human { colour } => human(&report, &tally, args, Paint::new(colour), out)?,
        Format::Plain | Format::Sarif => plain(&report, &tally, args, out)?,
        Format::Json => writeln!(out, "{}", as_json(&report, &tally))?,
    }
    Ok(if tally.failed == 0 { Ending::Well } else { Ending::Findings })
}

/// How many of what.
struct Tally {
    passed: usize,
    failed: usize,
    not_run: usize,
    covered: usize,
    rules: usize,
}

impl Tally {
    fn of(report: &SuiteReport) -> Self {
        let of = |wanted: fn(&CaseOutcome) -> bool| {
            report.results.iter().filter(|result| wanted(&result.outcome)).count()
        };
        Self {
            passed: of(|outcome| matches!(outcome, CaseOutcome::Passed)),
            failed: of(|outcome| matches!(outcome, CaseOutcome::Failed(_))),
            not_run: of(|outcome| matches!(outcome, CaseOutcome::NotRun(_))),
            covered: report.coverage.iter().filter(|(_, cases)| *cases > 0).count(),
            rules: report.coverage.len(),
        }
    }

    fn text(&self) -> String {
        let Self { passed, failed, not_run, covered, rules } = self;
        let not_run = if *not_run > 0 { format!(", {not_run} not run") } else { String::new() };
        let rules = count(*rules, "rule");
        format!("{passed} passed, {failed} failed{not_run}; {covered} of {rules} tested")
    }
}

fn human(
    report: &SuiteReport,
    tally: &Tally,
    args: &Test,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    for CaseResult { case, outcome } in &report.results {
        let (word, tint, reasons) = match outcome {
            CaseOutcome::Passed => continue,
            CaseOutcome::Failed(reasons) => ("FAILED ", paint.red(), reasons.clone()),
            CaseOutcome::NotRun(reason) => ("NOT RUN", paint.yellow(), vec![reason.clone()]),
        };
        let (reset, dim) = (paint.reset(), paint.dim());
        writeln!(out, "{tint}{word}{reset}  {}   {dim}{}{reset}", escape(&case.name), place(case))?;
        for reason in &reasons {
            writeln!(out, "         {}", wrap(&escape(reason), 9, WIDTH))?;
        }
        if let (CaseOutcome::Failed(_), Some(command)) = (outcome, explain_command(case)) {
            writeln!(out, "         {dim}{}{reset}", wrap(&command, 11, WIDTH))?;
        }
    }
    if args.coverage {
        for (rule, _) in report.coverage.iter().filter(|(_, cases)| *cases == 0) {
            let (tint, reset) = (paint.yellow(), paint.reset());
            let at = format!("{}:{}", rule.at.source.name, rule.at.line);
            writeln!(out, "{tint}UNTESTED{reset} {} {}   {at}", rule.effect.as_str(), rule.id)?;
        }
    }
    writeln!(out, "{}", tally.text())?;
    Ok(())
}

fn plain(
    report: &SuiteReport,
    tally: &Tally,
    args: &Test,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    for CaseResult { case, outcome } in &report.results {
        let (word, reasons) = match outcome {
            CaseOutcome::Passed => ("passed", Vec::new()),
            CaseOutcome::Failed(reasons) => ("failed", reasons.clone()),
            CaseOutcome::NotRun(reason) => ("not run", vec![reason.clone()]),
        };
        let reasons: String =
            reasons.iter().map(|reason| format!("; {}", escape(reason))).collect();
        writeln!(out, "{}: {word}: {}{reasons}", place(case), escape(&case.name))?;
    }
    if args.coverage {
        for (rule, cases) in &report.coverage {
            let at = format!("{}:{}", rule.at.source.name, rule.at.line);
            writeln!(out, "{at}: {} in {}", rule.id, count(*cases, "case"))?;
        }
    }
    writeln!(out, "{}", tally.text())?;
    Ok(())
}

fn as_json(report: &SuiteReport, tally: &Tally) -> serde_json::Value {
    let cases = report.results.iter().map(|CaseResult { case, outcome }| {
        let (outcome, reasons) = match outcome {
            CaseOutcome::Passed => ("passed", Vec::new()),
            CaseOutcome::Failed(reasons) => ("failed", reasons.clone()),
            CaseOutcome::NotRun(reason) => ("not_run", vec![reason.clone()]),
        };
        json!({
            "name": &*case.name,
            "file": case.at.source.name,
            "line": case.at.line,
            "outcome": outcome,
            "reasons": reasons,
        })
    });
    let rules = report.coverage.iter().map(|(rule, cases)| {
        json!({
            "id": &*rule.id,
            "scope": rule.scope.tenant().map_or("platform", |tenant| tenant.as_str()),
            "file": rule.at.source.name,
            "line": rule.at.line,
            "cases": cases,
        })
    });
    json!({
        "passed": tally.passed,
        "failed": tally.failed,
        "notRun": tally.not_run,
        "cases": cases.collect::<Vec<_>>(),
        "rules": rules.collect::<Vec<_>>(),
    })
}

fn place(case: &Case) -> String {
    format!("{}:{}", case.at.source.name, case.at.line)
}

/// The command that tells more about a failed call.
fn explain_command(case: &Case) -> Option<String> {
    let Asked::Call { item, arguments, .. } = &case.asks else { return None };
    if case.foreign.is_some() {
        return None;
    }
    let mut command = format!("hangu policy explain --tenant {}", case.tenant);
    if let Some(roles) = &case.roles {
        let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
        command += &format!(" --roles {}", roles.join(","));
    }
    if let Some(employee) = &case.employee {
        command += &format!(" --employee {employee}");
    }
    if let Some(caller) = &case.caller {
        command += &format!(" --caller {caller}");
    }
    let what = match item.family {
        Family::Tools => "tool",
        Family::Prompts => "prompt",
        Family::Resources => "resource",
    };
    command += &format!(" --{what} {}", quoted(&item.full()));
    if let Some(arguments) = arguments {
        command += &format!(" --args {}", quoted(&String::from_utf8_lossy(arguments)));
    }
    Some(escape(&command))
}

/// A word as a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// JUnit XML: a suite for each file.
fn junit(report: &SuiteReport) -> String {
    let mut files: Vec<&str> =
        report.results.iter().map(|result| result.case.at.source.name.as_str()).collect();
    files.dedup();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for file in files {
        let own: Vec<_> =
            report.results.iter().filter(|result| result.case.at.source.name == file).collect();
        let of = |wanted: fn(&CaseOutcome) -> bool| {
            own.iter().filter(|result| wanted(&result.outcome)).count()
        };
        let failures = of(|outcome| matches!(outcome, CaseOutcome::Failed(_)));
        let skipped = of(|outcome| matches!(outcome, CaseOutcome::NotRun(_)));
        let name = xml(file);
        out += &format!(
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\" \
             skipped=\"{skipped}\">\n",
            own.len()
        );
        for CaseResult { case, outcome } in own {
            let head = format!(
                "    <testcase name=\"{}\" classname=\"{name}\" file=\"{name}\" line=\"{}\"",
                xml(&case.name),
                case.at.line
            );
            out += &match outcome {
                CaseOutcome::Passed => format!("{head}/>\n"),
                CaseOutcome::Failed(reasons) => format!(
                    "{head}><failure message=\"{}\"/></testcase>\n",
                    xml(&reasons.join("; "))
                ),
                CaseOutcome::NotRun(reason) => {
                    format!("{head}><skipped message=\"{}\"/></testcase>\n", xml(reason))
                }
            };
        }
        out += "  </testsuite>\n";
    }
    out + "</testsuites>\n"
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            // XML 1.0 has no way to write these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
