//! How commands tell what they found: formats, colour, and the way they end.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::ValueEnum;

use crate::{
    config,
    fault::{Format, Report},
};

/// How a command that looked at something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Well,
    /// Something was found.
    Findings,
    /// Access is wider than before.
    Widened,
}

/// Why a command could not look.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The files have errors.
    #[error("the files have errors")]
    Faults(Report),
    /// What was found forbids it, or a gateway that was asked said no.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Environment(String),
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

/// Runs a command and makes an exit code of its end.
pub fn run(command: impl FnOnce(&mut dyn Write) -> Result<Ending, CommandError>) -> ExitCode {
    match command(&mut io::stdout().lock()) {
        Ok(Ending::Well) => ExitCode::SUCCESS,
        Ok(Ending::Findings) => ExitCode::from(super::FINDINGS),
        Ok(Ending::Widened) => ExitCode::from(super::WIDENED),
        Err(CommandError::Usage(message)) => {
            eprintln!("hangu: {message}");
            ExitCode::from(super::USAGE)
        }
        Err(CommandError::Refused(message)) => {
            eprintln!("hangu: {message}");
            ExitCode::from(super::FINDINGS)
        }
        Err(CommandError::Faults(report)) => {
            let colour = io::stderr().is_terminal() && wants_colour();
            eprint!("{}", report.render(Format::Human { colour }));
            ExitCode::from(super::FINDINGS)
        }
        // Whoever closed the output does not want to read it.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error @ (CommandError::Environment(_) | CommandError::Output(_))) => super::fail(error),
    }
}

/// The value of `--format` where faults are told.
pub fn parse_report_format(text: &str) -> Result<Format, String> {
    match text {
        "sarif" => Ok(Format::Sarif),
        _ => parse_format(text)
            .map_err(|_| "known are `human`, `plain`, `json` and `sarif`".to_owned()),
    }
}

/// The value of `--format`.
pub fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "human" => Ok(Format::Human { colour: io::stdout().is_terminal() && wants_colour() }),
        "plain" => Ok(Format::Plain),
        "json" => Ok(Format::Json),
        _ => Err("known are `human`, `plain` and `json`".to_owned()),
    }
}

/// How what a gateway answers is told: for people, or as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Human,
    Json,
}

/// Rows one below the other, each column as wide as its widest cell.
pub fn columns<const N: usize>(rows: &[[String; N]], out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Whether somebody has said that he wants none (<https://no-color.org>).
fn wants_colour() -> bool {
    config::process_env("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// One thing, or so many.
pub fn count(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}
