//! `hangu serve`: the gateway from a file.

use std::{io::IsTerminal, process::ExitCode};

use super::ConfigFile;
use crate::{
    app::{App, Options, StartError},
    config::{Config, process_env},
    edge::{Drained, HostError},
    fault::{Fault, Severity},
    policy::Policies,
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
        let loaded = Config::look(&self.file.config, &process_env);
        tell(&loaded.faults);
        let Some(config) = loaded.config else { return ExitCode::from(1) };
        let policies = match &config.policies {
            None => Policies::none(),
            Some(folder) => {
                let loaded = Policies::look(folder);
                tell(&loaded.faults);
                match loaded.policies {
                    Some(policies) => policies,
                    None => return ExitCode::from(1),
                }
            }
        };
        tracing::warn!(
            "Keys live in memory: sessions and keyed digests end with this process, and other \
             replicas do not know them"
        );
        let revision = policies.revision().clone();
        let names: Vec<String> =
            config.upstreams.iter().map(|upstream| upstream.name.to_string()).collect();
        let app = match App::new(config, policies, &Options::default()) {
            Ok(app) => app,
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

/// Shows faults as `check` does.
fn tell(faults: &[Fault]) {
    if faults.is_empty() {
        return;
    }
    eprint!("{}", crate::fault::render_human(faults));
    let errors = faults.iter().filter(|fault| fault.severity() == Severity::Error).count();
    if errors > 0 {
        eprintln!("hangu: {errors} errors: nothing was started");
    }
}
