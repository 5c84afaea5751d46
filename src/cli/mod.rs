//! The command line: commands, flags, exit codes.
//!
//! Exit codes: 0 done, 1 findings, 2 wrong usage, 4 the environment does not allow it, 70 a bug.

pub mod check;
mod demo;
mod healthcheck;
pub mod init;
mod serve;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::fault::Format;

/// An enterprise gateway for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(
    name = "hangu",
    version,
    about,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
                  hangu demo                       everything in one process, on loopback\n  \
                  hangu init my-gateway            a commented starting point\n  \
                  hangu check --config hangu.yaml  every fault at once, nothing is started"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs gateway, test platform and order server in one process, on loopback
    Demo(demo::Demo),
    /// Runs the gateway from a file
    Serve(serve::Serve),
    /// Reports every fault of a configuration and its policies, without touching the network
    Check(CheckFlags),
    /// Writes a commented starting point that passes `check`
    Init {
        /// The folder to write into; existing files are never overwritten
        #[arg(value_name = "DIR", default_value = ".")]
        folder: PathBuf,
    },
    /// Asks a running gateway whether it is ready; for container health checks
    Healthcheck(healthcheck::Healthcheck),
}

/// Where the configuration is.
#[derive(Debug, clap::Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(long, short, value_name = "FILE", default_value = "hangu.yaml", env = "HANGU_CONFIG")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
struct CheckFlags {
    /// A configuration file, or a policy folder to look at alone
    #[arg(value_name = "FILE|DIR")]
    target: Option<PathBuf>,
    #[command(flatten)]
    file: ConfigFile,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = check::parse_format)]
    format: Format,
}

/// What was looked at has faults.
const FINDINGS: u8 = 1;
/// The environment does not allow what was asked: a port is taken, a file cannot be written.
const ENVIRONMENT: u8 = 4;

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Serve(serve) => serve.run(),
        Command::Check(flags) => {
            let target = flags.target.unwrap_or(flags.file.config);
            let args = check::Args { target, format: flags.format };
            match check::run(&args, &mut std::io::stdout().lock()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(FINDINGS),
                Err(error) => fail(error),
            }
        }
        Command::Init { folder } => {
            match init::run(&init::Args { folder }, &mut std::io::stdout().lock()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(error),
            }
        }
        Command::Healthcheck(healthcheck) => healthcheck.run(),
    }
}

/// Says what went wrong and how the process ends.
fn fail(message: impl std::fmt::Display) -> ExitCode {
    eprintln!("hangu: {message}");
    ExitCode::from(ENVIRONMENT)
}
