//! Whom a verb asks, and how it tells the answer.

use std::io::Write;

use super::{ADMIN, AdminAddress, DATA, DataAddress, Gateway, Patience, read, variable};
use crate::cli::tell::{CommandError, Form};

/// Whom an employee asks, and how it is told.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// How to tell: for people, or the gateway's own answer
    #[arg(long, value_enum, default_value_t = Form::Human)]
    pub format: Form,
    #[command(flatten)]
    pub at: DataAddress,
}

/// Whom an operator asks, and how it is told.
#[derive(Debug, clap::Args)]
pub struct AdminAsked {
    /// How to tell: for people, or the gateway's own answer
    #[arg(long, value_enum, default_value_t = Form::Human)]
    pub format: Form,
    #[command(flatten)]
    pub at: AdminAddress,
}

/// Whom an employee or an operator asks, and how it is told.
#[derive(Debug, clap::Args)]
pub struct AskedAsEither {
    /// How to tell: for people, or the gateway's own answer
    #[arg(long, value_enum, default_value_t = Form::Human)]
    pub format: Form,
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

impl Asked {
    /// Tells a gateway's answer.
    pub fn tell<T: serde::de::DeserializeOwned>(
        &self,
        answer: &[u8],
        out: &mut dyn Write,
        human: impl FnOnce(T, &mut dyn Write) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        tell(self.format, answer, out, human)
    }
}

impl AdminAsked {
    /// Tells a gateway's answer.
    pub fn tell<T: serde::de::DeserializeOwned>(
        &self,
        answer: &[u8],
        out: &mut dyn Write,
        human: impl FnOnce(T, &mut dyn Write) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        tell(self.format, answer, out, human)
    }
}

impl AskedAsEither {
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

    /// Tells a gateway's answer.
    pub fn tell<T: serde::de::DeserializeOwned>(
        &self,
        answer: &[u8],
        out: &mut dyn Write,
        human: impl FnOnce(T, &mut dyn Write) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        tell(self.format, answer, out, human)
    }
}

fn tell<T: serde::de::DeserializeOwned>(
    format: Form,
    answer: &[u8],
    out: &mut dyn Write,
    human: impl FnOnce(T, &mut dyn Write) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    if format == Form::Json {
        out.write_all(answer)?;
        return Ok(writeln!(out)?);
    }
    human(read(answer)?, out)
}
