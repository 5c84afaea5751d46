//! `hangu healthcheck`: the probe of containers that have no shell.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use crate::admin;

/// Asks /readyz of the admin listener.
#[derive(Debug, clap::Args)]
pub(super) struct Healthcheck {
    /// The admin listener
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    timeout: u64,
}

impl Healthcheck {
    pub fn run(self) -> ExitCode {
        match admin::healthcheck(self.admin, Duration::from_secs(self.timeout)) {
            Ok((true, _)) => ExitCode::SUCCESS,
            Ok((false, answer)) => {
                eprintln!("hangu: not ready: {answer}");
                ExitCode::from(1)
            }
            Err(error) => super::fail(format!("{} does not answer: {error}", self.admin)),
        }
    }
}
