//! `hangu policy schema`: the files' JSON Schema, for editors.

use std::io::Write;

use crate::{
    cli::tell::{CommandError, Ending},
    policy::schemas,
};

/// Of which kind.
#[derive(Debug, clap::Args)]
pub struct Schema {
    /// The kind of document
    #[arg(value_name = "KIND", value_parser = ["policy", "tools", "directory", "policytest"])]
    kind: String,
}

/// Writes the schema.
pub fn run(args: &Schema, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let wanted = format!("{}.v1.json", args.kind);
    for (_, text) in schemas().iter().filter(|(name, _)| *name == wanted) {
        out.write_all(text.as_bytes())?;
    }
    Ok(Ending::Well)
}
