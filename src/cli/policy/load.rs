//! Policies for commands that only read them. What this version does not carry out yet is read
//! too; `check` is the one to tell of it.

use std::path::{Path, PathBuf};

use crate::{
    cli::tell::CommandError,
    config::{self, Config},
    fault::{Report, Severity},
    policy::{Language, Library, Policies},
};

/// Where the policies are.
#[derive(Debug, Clone, clap::Args)]
pub struct Place {
    /// The policy folder; without it, the one that the configuration names
    #[arg(long, value_name = "DIR")]
    pub policies: Option<PathBuf>,
    /// The configuration file
    #[arg(long, short, value_name = "FILE", default_value = "hangu.yaml", env = "HANGU_CONFIG")]
    pub config: PathBuf,
}

impl Place {
    /// The folder: named, or the configuration's, or `policies/` where there is no configuration.
    pub fn folder(&self) -> Result<PathBuf, CommandError> {
        if let Some(folder) = &self.policies {
            return Ok(folder.clone());
        }
        let beside = Path::new("policies");
        if !self.config.exists() && beside.is_dir() {
            return Ok(beside.to_owned());
        }
        // Its other faults, such as a secret that is not at hand, do not matter here.
        let loaded = Config::look(&self.config, &config::process_env);
        loaded.policies.ok_or_else(|| {
            let config = self.config.display();
            let advice = "name a folder with `--policies DIR`";
            CommandError::Environment(format!("`{config}` names no policy folder: {advice}"))
        })
    }
}

/// Loads a folder as it is written, shadow files too, or tells every error in it.
pub fn load(folder: &Path) -> Result<Policies, CommandError> {
    if !folder.is_dir() {
        let message = format!("`{}` is not a folder", folder.display());
        return Err(CommandError::Environment(message));
    }
    let looked = Library::new(Language::Whole).look(folder);
    let files = looked.files;
    looked.policies.map(|policies| policies.as_written()).ok_or_else(|| {
        let errors = looked.faults.into_iter().filter(|fault| fault.severity() == Severity::Error);
        CommandError::Faults(Report { faults: errors.collect(), files })
    })
}
