//! `hangu serve`: the gateway from a file.

use std::{io::IsTerminal, process::ExitCode};

use super::{ConfigFile, check};
use crate::{
    app::{App, Options, StartError},
    config::process_env,
    edge::{Drained, HostError},
    fault::Format,
    telemetry::logs,
};

/// Runs the gateway.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    #[command(flatten)]
    file: ConfigFile,
    /// Take the socket over from the running process, which then drains (send it SIGQUIT)
    #[arg(long)]
    upgrade: bool,
}

impl Serve {
    pub fn run(self) -> ExitCode {
        let settings = logs::Settings::from_env();
        if let Err(error) = logs::init(&settings) {
            return super::fail(format!("the log cannot be started: {error}"));
        }
        for note in &settings.notes {
            tracing::warn!("{note}");
        }
        let checked = check::check(&self.file.config, &process_env);
        if !checked.report.faults.is_empty() {
            let colour = std::io::stderr().is_terminal();
            eprint!("{}", checked.report.render(Format::Human { colour }));
        }
        let Some((config, policies)) = checked.accepted else {
            eprintln!("hangu: nothing was started");
            return ExitCode::from(super::FINDINGS);
        };
        if config.keyring.is_none() {
            tracing::warn!(
                "Keys live in memory: sessions, keyed digests and the results kept for \
                 idempotency keys end with this process, and other replicas do not know them; \
                 `keyring: {{ file: keyring.json }}` keeps them (`hangu keys new`)"
            );
        }
        if config.keyring.is_some() {
            // Keys must not reach a core file. Where it cannot be, the service's own limit holds.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        }
        let revision = policies.revision().clone();
        let names: Vec<String> =
            config.upstreams.iter().map(|upstream| upstream.name.to_string()).collect();
        if policies.has_shadow() {
            tracing::warn!(
                "Policy mode shadow: some files are only looked at, and what was last enforced of \
                 them decides"
            );
        }
        let app = match App::new(config, policies, &Options::default()) {
            Ok(app) => app.reloading(checked.source),
            Err(error) => return super::fail(error),
        };
        let upgrade = self.upgrade;
        let drained = app.host(upgrade, move |address, admin| {
            tracing::info!(
                version = env!("CARGO_PKG_VERSION"),
                policy.revision = %revision,
                upstreams = names.join(","),
                %address,
                %admin,
                "Hangu serves"
            );
            if std::io::stdout().is_terminal() {
                println!("hangu: serving on http://{address}/mcp, probes on http://{admin}");
            }
        });
        ended(drained)
    }
}

/// How a hosted gateway ended, as an exit code.
pub(super) fn ended(drained: Result<Drained, HostError<StartError>>) -> ExitCode {
    match drained {
        Ok(Drained::Clean) => {
            tracing::info!("every call has ended");
            ExitCode::SUCCESS
        }
        Ok(Drained::CutShort) => {
            tracing::warn!("the time to drain was over before every call had ended");
            ExitCode::SUCCESS
        }
        Err(error) => super::fail(error),
    }
}
