//! The command line: commands, flags, exit codes.
//!
//! Exit codes: 0 done, 1 findings, or a gateway that says no, 2 wrong usage, 3 access is wider than before, 4 the environment
//! does not allow it, 70 a bug.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a command says to its user goes where users look"
)]

pub mod approvals;
pub mod call;
pub mod catalog;
pub mod check;
pub mod credentials;
mod demo;
pub mod explain;
mod healthcheck;
pub mod init;
mod keys;
pub mod pins;
pub mod policy;
pub mod remote;
mod serve;
pub mod servers;
pub mod steps;
pub mod tell;

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
    /// Tells what a fault's code means, with an example and its remedy
    Explain(explain::Explain),
    /// Makes, shows and rotates the keys that everything is sealed under
    Keys(keys::Keys),
    /// Explains, tests, compares and formats policies, without a gateway
    Policy(policy::Policy),
    /// Lists, compares and approves definitions of tools, and goes back to them, at a running gateway
    Pins(pins::Pins),
    /// Calls one tool, at a running gateway
    Call(call::Call),
    /// Lists, shows and decides on calls that wait for somebody's yes, at a running gateway
    Approvals(approvals::Approvals),
    /// Lists who has a credential for which server, and takes it away, at a running gateway
    Credentials(credentials::Credentials),
    /// Compiles and runs declarative steps, at a running gateway
    Steps(steps::Steps),
    /// Registers, lists, shares and deletes your own servers, at a running gateway
    Servers(servers::Servers),
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
    /// How to tell: human, plain, json or sarif
    #[arg(long, default_value = "human", value_parser = tell::parse_report_format)]
    format: Format,
    /// What upstreams offer, as a JSON file: checks the arguments of conditions too
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
}

/// What was looked at has faults, or the gateway that was asked says no.
const FINDINGS: u8 = 1;
/// What was asked makes no sense.
const USAGE: u8 = 2;
/// Access is wider than before.
const WIDENED: u8 = 3;
/// The environment does not allow what was asked: a port is taken, a file cannot be written.
const ENVIRONMENT: u8 = 4;

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Serve(serve) => serve.run(),
        Command::Check(flags) => {
            let target = flags.target.unwrap_or(flags.file.config);
            let args = check::Args { target, format: flags.format, catalog: flags.catalog };
            tell::run(|out| check::run(&args, out))
        }
        Command::Explain(args) => tell::run(|out| explain::run(&args, out)),
        Command::Keys(keys) => keys.run(),
        Command::Policy(policy) => policy.run(),
        Command::Pins(pins) => tell::run(|out| pins::run(&pins, out)),
        Command::Call(call) => tell::run(|out| call::run(&call, out)),
        Command::Approvals(approvals) => tell::run(|out| approvals::run(&approvals, out)),
        Command::Credentials(args) => tell::run(|out| credentials::run(&args, out)),
        Command::Steps(steps) => tell::run(|out| steps::run(&steps, out)),
        Command::Servers(servers) => tell::run(|out| servers::run(&servers, out)),
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
