//! `hangu policy fmt`: policy files written evenly. A file that would say something else
//! afterwards is left alone.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::load::Place;
use crate::{
    cli::tell::{CommandError, Ending, count},
    fault::{Report, Source},
    policy::yaml_files,
    yaml,
};

/// Which files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys keep their order and comments their place.\n\n\
    Examples:\n  \
    hangu policy fmt\n  \
    hangu policy fmt --check policies")]
pub struct Fmt {
    /// Policy folders or files; without any, the folder that the configuration names
    #[arg(value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    /// Change nothing; exit code 1 if a file is not written so
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    place: Place,
}

/// Writes the files, or says which would be written.
pub fn run(args: &Fmt, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let paths = if args.paths.is_empty() { vec![args.place.folder()?] } else { args.paths.clone() };
    let mut files = Vec::new();
    for path in &paths {
        if path.is_dir() {
            files.extend(
                yaml_files(path)
                    .map_err(|faults| CommandError::Faults(Report { faults, files: 0 }))?,
            );
        } else {
            files.push(path.clone());
        }
    }
    let mut changed = 0;
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| {
            CommandError::Environment(format!("`{}` cannot be read: {error}", file.display()))
        })?;
        let even = formatted(file, &text)?;
        if even == text {
            continue;
        }
        changed += 1;
        if args.check {
            writeln!(out, "{}: not formatted", file.display())?;
        } else {
            write(file, &even)?;
            writeln!(out, "{}: formatted", file.display())?;
        }
    }
    let (all, some) = (count(files.len(), "file"), changed);
    match (args.check, some) {
        (_, 0) => writeln!(out, "{all}, nothing to format")?,
        (true, some) => writeln!(out, "{some} of {all} to format: hangu policy fmt")?,
        (false, some) => writeln!(out, "{some} of {all} formatted")?,
    }
    Ok(if args.check && changed > 0 { Ending::Findings } else { Ending::Well })
}

/// The text, written evenly, if it still says the same.
fn formatted(file: &Path, text: &str) -> Result<String, CommandError> {
    let parse = |text: &str| {
        let source = Arc::new(Source { name: file.display().to_string(), text: text.to_owned() });
        yaml::parse(&source)
    };
    let before = parse(text)
        .map_err(|fault| CommandError::Faults(Report { faults: vec![fault], files: 1 }))?;
    let even = yaml::format(text);
    let same = parse(&even).is_ok_and(|after| {
        before.len() == after.len()
            && before.iter().zip(&after).all(|(before, after)| before.says_the_same(after))
    });
    // Every comment has a sign of its own.
    let signs = |text: &str| text.matches('#').count();
    if same && signs(text) == signs(&even) {
        return Ok(even);
    }
    let message =
        format!("`{}` is written in a way that fmt cannot keep; it is left", file.display());
    Err(CommandError::Environment(message))
}

/// Writes beside it first, so that nobody reads half a file.
fn write(file: &Path, text: &str) -> Result<(), CommandError> {
    let wrong = |error| CommandError::Environment(format!("`{}`: {error}", file.display()));
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    fs::write(&beside, text).map_err(wrong)?;
    if let Ok(meta) = fs::metadata(file) {
        fs::set_permissions(&beside, meta.permissions()).map_err(wrong)?;
    }
    fs::rename(&beside, file).map_err(wrong)
}
