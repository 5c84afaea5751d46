//! Whom a verb asks, and how it tells the answer.

use std::io::Write;

use super::{ADMIN, AdminAddress, DATA, DataAddress, Gateway, Patience, read, variable};
use crate::cli::tell::{CommandError, Form};

/// Whom a verb asks, at an address of this kind, and how the answer is told.
#[derive(Debug, clap::Args)]
pub struct AskedAt<A: clap::Args> {
    /// How to tell: for people, or the gateway's own answer
    #[arg(long, value_enum, default_value_t = Form::Human)]
    pub format: Form,
    #[command(flatten)]
    pub at: A,
}

/// Whom an employee asks.
pub type Asked = AskedAt<DataAddress>;

/// Whom an operator asks.
pub type AdminAsked = AskedAt<AdminAddress>;

/// Whom an employee or an operator asks.
pub type AskedAsEither = AskedAt<EitherAddress>;

/// Where an employee asks, or an operator where he says so.
#[derive(Debug, clap::Args)]
pub struct EitherAddress {
    /// Ask as whoever looks after the gateway: at its admin listener, with the token of
    /// HANGU_ADMIN_TOKEN
    #[arg(long, help_heading = "The gateway")]
    pub admin: bool,
    /// Where the gateway is, if not in HANGU_URL (with --admin in HANGU_ADMIN_URL) or on this
    /// machine
    #[arg(long, value_name = "URL", help_heading = "The gateway")]
    url: Option<String>,
    #[command(flatten)]
    patience: Patience,
}

impl<A: clap::Args> AskedAt<A> {
    /// Tells a gateway's answer.
    pub fn tell<T: serde::de::DeserializeOwned>(
        &self,
        answer: &[u8],
        out: &mut dyn Write,
        human: impl FnOnce(T, &mut dyn Write) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        if self.format == Form::Json {
            out.write_all(answer)?;
            return Ok(writeln!(out)?);
        }
        human(read(answer)?, out)
    }
}

impl EitherAddress {
    pub fn gateway(&self) -> Result<Gateway, CommandError> {
        let at = |name: &str, otherwise: &str| {
            self.url.clone().or_else(|| variable(name)).unwrap_or_else(|| otherwise.to_owned())
        };
        let patience = self.patience.clone();
        if self.admin {
            return AdminAddress { url: at("HANGU_ADMIN_URL", ADMIN), patience }.gateway();
        }
        DataAddress { url: at("HANGU_URL", DATA), patience }.gateway()
    }
}
