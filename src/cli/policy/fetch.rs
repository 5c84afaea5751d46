//! `hangu policy fetch`: the exact files of a revision that a gateway keeps.

use std::{
    fs,
    io::Write,
    path::{Component, Path, PathBuf},
};

use super::revision::Shelf;
use crate::{
    cli::tell::{CommandError, Ending, count},
    fault::escape,
    policy::PolicyFile,
};

/// Which revision, and where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without DIR the files are printed, each below a line with its path.\n\n\
    Examples:\n  \
    hangu policy fetch 3f9a1c20b7d4 old-policies\n  \
    hangu policy fetch 3f9a1c20b7d4 --config hangu.yaml\n  \
    hangu policy diff 3f9a1c20b7d4 policies")]
pub struct Fetch {
    /// The revision, as records and `/readyz` name it
    #[arg(value_name = "REVISION")]
    revision: String,
    /// A folder to write the files to; it must be new or empty
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    shelf: Shelf,
}

/// Prints the files, or writes them.
pub fn run(args: &Fetch, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let files = args.shelf.files(&args.revision)?;
    let Some(folder) = &args.folder else {
        for file in &files {
            writeln!(out, "# === {}", escape(&file.path))?;
            out.write_all(file.source.text.as_bytes())?;
            if !file.source.text.ends_with('\n') {
                writeln!(out)?;
            }
        }
        return Ok(Ending::Well);
    };
    write(folder, &files)?;
    writeln!(out, "{} of {} in {}", count(files.len(), "file"), args.revision, folder.display())?;
    Ok(Ending::Well)
}

fn write(folder: &Path, files: &[PolicyFile]) -> Result<(), CommandError> {
    let cannot = |path: &Path, error: std::io::Error| {
        CommandError::Environment(format!("`{}` cannot be written: {error}", path.display()))
    };
    let empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(cannot(folder, error)),
    };
    if !empty {
        let message = format!("`{}` is not empty: nothing is written over", folder.display());
        return Err(CommandError::Usage(message));
    }
    // All of them, before any is written.
    for file in files {
        let mut parts = Path::new(&file.path).components();
        if file.path.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            let message = format!("`{}` is no path below a folder", escape(&file.path));
            return Err(CommandError::Environment(message));
        }
    }
    for file in files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| cannot(parent, error))?;
        fs::write(&path, &file.source.text).map_err(|error| cannot(&path, error))?;
    }
    Ok(())
}
