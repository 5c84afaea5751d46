//! `hangu policy …`: everything about policies; only kept revisions may need a running gateway. A
//! file for each command.

mod diff;
mod explain;
mod fetch;
mod fmt;
mod load;
mod replay;
mod revision;
mod schema;
mod test;

use std::process::ExitCode;

use clap::Subcommand;

use super::tell;

/// What to do with policies.
#[derive(Debug, clap::Args)]
pub struct Policy {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tells why somebody may or may not use a tool, rule by rule, and what would change that
    Explain(explain::Explain),
    /// Tells who gains and loses what between two folders or kept revisions; exit code 3 if access is wider
    Diff(diff::Diff),
    /// Prints the exact files of a revision that a gateway keeps, or writes them to a folder
    Fetch(fetch::Fetch),
    /// Tells which calls of an audit file other policies would decide otherwise
    Replay(replay::Replay),
    /// Writes policy files evenly; with --check, exit code 1 if one is not
    Fmt(fmt::Fmt),
    /// Prints the JSON Schema of a kind of document, for editors
    Schema(schema::Schema),
    /// Runs the cases of `kind: PolicyTest` files; exit code 1 if one fails
    Test(test::Test),
}

impl Policy {
    pub fn run(self) -> ExitCode {
        tell::run(|out| match &self.command {
            Command::Explain(args) => explain::run(args, out),
            Command::Diff(args) => diff::run(args, out),
            Command::Fetch(args) => fetch::run(args, out),
            Command::Fmt(args) => fmt::run(args, out),
            Command::Replay(args) => replay::run(args, out),
            Command::Schema(args) => schema::run(args, out),
            Command::Test(args) => test::run(args, out),
        })
    }
}
