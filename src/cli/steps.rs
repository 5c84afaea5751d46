//! `hangu steps compile|run`: declarative steps, at a running gateway, as the employee whom the
//! environment names.
//!
//! Files go to the gateway as they are and its answers come out as they are, so that one command
//! reads what the other writes.

use std::{
    fs,
    io::{Read, Write},
};

use bytes::Bytes;
use clap::Subcommand;
use serde::Deserialize;

use super::{
    remote::DataAddress,
    tell::{CommandError, Ending, Form},
};
use crate::{
    fault::escape,
    json::{Doc, Duplicates, Kind, Limits},
};

/// Examples come first: most who ask for help want one.
const EXAMPLES_FIRST: &str = "{about}\n\n{after-help}\n\n{usage-heading} {usage}\n\n{all-args}";

/// What is read is checked to be JSON, and by the gateway to be anything else.
const LIMITS: Limits = Limits { depth: 128, duplicates: Duplicates::Refuse, outline: 1 };

/// What to do with steps.
#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        HANGU_API_KEY=… HANGU_EMP_ID=E1001 hangu steps compile steps.json > compiled.json\n  \
        hangu steps run compiled.json --context '{\"url\": \"https://shop.example/?orderId=O-1001\"}'\n\n\
        The key is read from HANGU_API_KEY, the employee from HANGU_EMP_ID."
)]
pub struct Steps {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks steps against the tools that they call, and writes the form that can be run
    Compile(Compile),
    /// Runs what was compiled
    Run(Run),
}

#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        hangu steps compile steps.json > compiled.json\n  \
        hangu steps compile - < step.json"
)]
struct Compile {
    /// A list of steps, one step, or an object with `steps`; `-` is the standard input
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    at: DataAddress,
}

#[derive(Debug, clap::Args)]
#[command(
    help_template = EXAMPLES_FIRST,
    after_help = "Examples:\n  \
        hangu steps run compiled.json --context '{\"url\": \"https://shop.example/?orderId=O-1001\"}'\n  \
        hangu steps run compiled.json --step-index 3 --context @page.json --variables @before.json",
    // A run has five minutes where nobody says otherwise (`steps.max_time`): whoever leaves before
    // ends it, and never hears of its id.
    mut_arg("timeout", |timeout| timeout.default_value("330"))
)]
struct Run {
    /// What `compile` wrote; `-` is the standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// What is known of the page: JSON, or `@` and a file
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// What was saved before: JSON, or `@` and a file
    #[arg(long, value_name = "JSON")]
    variables: Option<String>,
    /// Only this step
    #[arg(long, value_name = "N")]
    step_index: Option<u64>,
    /// Of an earlier answer, to go on with its run
    #[arg(long, value_name = "UUID")]
    run_id: Option<String>,
    /// How to tell: for people, or the gateway's own answer
    #[arg(long, value_enum, default_value_t = Form::Human)]
    format: Form,
    #[command(flatten)]
    at: DataAddress,
}

/// Does it, and writes what the gateway says.
pub fn run(args: &Steps, out: &mut dyn Write) -> Result<Ending, CommandError> {
    match &args.command {
        Command::Compile(compile) => compile.run(out),
        Command::Run(run) => run.run(out),
    }
}

impl Compile {
    fn run(&self, out: &mut dyn Write) -> Result<Ending, CommandError> {
        let doc = parsed(&self.file, read(&self.file)?)?;
        let root = doc.root();
        let body = match root.kind() {
            Kind::Array => object(&[("steps", root.raw())]),
            Kind::Object if root.get("steps").is_some() => root.raw().to_vec(),
            _ => object(&[("steps", &[b"[", root.raw(), b"]"].concat())]),
        };
        let answer = self.at.gateway()?.post_json("/v1/steps/compile", body.into())?;
        raw(&answer, out)?;
        Ok(Ending::Well)
    }
}

impl Run {
    fn run(&self, out: &mut dyn Write) -> Result<Ending, CommandError> {
        let doc = parsed(&self.file, read(&self.file)?)?;
        let root = doc.root();
        let compiled = root.get("compiled").unwrap_or(root);
        let context = self.context.as_deref().map(|given| value("--context", given)).transpose()?;
        let variables =
            self.variables.as_deref().map(|given| value("--variables", given)).transpose()?;
        let index = self.step_index.map(|index| index.to_string());
        let run_id = self.run_id.as_ref().map(|id| serde_json::Value::from(&**id).to_string());
        let mut members = vec![("compiled", compiled.raw())];
        members.extend(context.as_ref().map(|doc| ("context", doc.root().raw())));
        members.extend(variables.as_ref().map(|doc| ("variables", doc.root().raw())));
        members.extend(index.as_ref().map(|text| ("stepIndex", text.as_bytes())));
        members.extend(run_id.as_ref().map(|text| ("runId", text.as_bytes())));
        let answer = self.at.gateway()?.post_json("/v1/steps/run", object(&members).into())?;
        let told: Told = serde_json::from_slice(&answer).map_err(|error| {
            CommandError::Environment(format!("the gateway's answer cannot be read: {error}"))
        })?;
        match self.format {
            Form::Json => raw(&answer, out)?,
            Form::Human => told.write(&answer, out)?,
        }
        Ok(if told.state == "completed" { Ending::Well } else { Ending::Findings })
    }
}

// === What the gateway tells ===

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    run_id: String,
    state: String,
    steps: Vec<ToldStep>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToldStep {
    step_index: Option<u64>,
    r#type: String,
    state: String,
    tool_name: Option<String>,
    tool_call_id: Option<String>,
    latency_ms: Option<f64>,
    definition_changed: Option<bool>,
    error: Option<ToldError>,
}

#[derive(Debug, Deserialize)]
struct ToldError {
    code: String,
    message: String,
}

impl Told {
    fn write(&self, answer: &Bytes, out: &mut dyn Write) -> Result<(), CommandError> {
        writeln!(out, "run {}: {}", escape(&self.run_id), escape(&self.state))?;
        for step in &self.steps {
            let index = step.step_index.map_or_else(|| "-".to_owned(), |index| index.to_string());
            let what = step.tool_name.as_ref().unwrap_or(&step.r#type);
            write!(out, "  {index:>4}  {:<12} {}", escape(&step.state), escape(what))?;
            if let Some(latency) = step.latency_ms {
                write!(out, "  {latency:.1} ms")?;
            }
            if let Some(id) = &step.tool_call_id {
                write!(out, "  {}", escape(id))?;
            }
            writeln!(out)?;
            if step.definition_changed == Some(true) {
                writeln!(out, "        the tool's definition has changed since the compilation")?;
            }
            if let Some(ToldError { code, message }) = &step.error {
                writeln!(out, "        {}: {}", escape(code), escape(message))?;
            }
        }
        let Ok(doc) = Doc::parse(answer.clone(), &LIMITS) else { return Ok(()) };
        let variables = doc.root().get("variables");
        for (name, value) in variables.into_iter().flat_map(|variables| variables.members()) {
            let text = String::from_utf8_lossy(value.raw()).into_owned();
            writeln!(out, "{} = {}", escape(&name.unescaped()), escape(&text))?;
        }
        Ok(())
    }
}

// === Small parts ===

/// A file, or the standard input.
fn read(name: &str) -> Result<Bytes, CommandError> {
    let mut text = Vec::new();
    let read = match name {
        "-" => std::io::stdin().lock().read_to_end(&mut text).map(|_| text),
        path => fs::read(path),
    };
    read.map(Bytes::from).map_err(|error| CommandError::Usage(format!("{name}: {error}")))
}

fn parsed(name: &str, text: Bytes) -> Result<Doc, CommandError> {
    Doc::parse(text, &LIMITS)
        .map_err(|fault| CommandError::Usage(format!("{name} is not JSON: {fault}")))
}

/// A value of a flag: JSON, or the file that holds it.
fn value(flag: &str, given: &str) -> Result<Doc, CommandError> {
    match given.strip_prefix('@') {
        Some(path) => parsed(path, read(path)?),
        None => parsed(flag, Bytes::copy_from_slice(given.as_bytes())),
    }
}

/// An object of members whose values are written already.
fn object(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (place, (name, value)) in members.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        crate::json::write_str(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    out
}

fn raw(answer: &[u8], out: &mut dyn Write) -> Result<(), CommandError> {
    out.write_all(answer)?;
    Ok(writeln!(out)?)
}
