//! `hangu init`: a commented configuration and policies to start from.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// What is written: path and text. `hangu check` passes on it (a test says so).
const FILES: [(&str, &str); 13] = [
    ("hangu.yaml", include_str!("templates/hangu.yaml")),
    (".env.example", include_str!("templates/env.example")),
    // What ships with the gateway, as it is.
    ("policies/platform.yaml", include_str!("../../policies/platform.yaml")),
    ("policies/approvals.yaml", include_str!("../../policies/approvals.yaml")),
    ("policies/limits.yaml", include_str!("templates/policies/limits.yaml")),
    ("policies/tools.yaml", include_str!("templates/policies/tools.yaml")),
    ("policies/directory.yaml", include_str!("templates/policies/directory.yaml")),
    ("policies/tenants/main.yaml", include_str!("templates/policies/tenants/main.yaml")),
    ("policies/tests/main.test.yaml", include_str!("templates/policies/tests/main.test.yaml")),
    // For editors.
    ("policies/schemas/policy.v1.json", include_str!("../../policies/schemas/policy.v1.json")),
    ("policies/schemas/tools.v1.json", include_str!("../../policies/schemas/tools.v1.json")),
    (
        "policies/schemas/directory.v1.json",
        include_str!("../../policies/schemas/directory.v1.json"),
    ),
    (
        "policies/schemas/policytest.v1.json",
        include_str!("../../policies/schemas/policytest.v1.json"),
    ),
];

/// Where to write.
#[derive(Debug, Clone)]
pub struct Args {
    pub folder: PathBuf,
}

/// Why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("nothing was written, because these files are there already: {}", list(.0))]
    Exists(Vec<PathBuf>),
    #[error("cannot write `{}`: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Writes the files and says what to do next.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), InitError> {
    let written = init(&args.folder)?;
    // Whoever closed the output does not want to read it.
    let _ = tell(&args.folder, &written, out);
    Ok(())
}

/// Writes every file, or none if one of them is there already.
pub fn init(folder: &Path) -> Result<Vec<PathBuf>, InitError> {
    let paths: Vec<PathBuf> = FILES.iter().map(|(path, _)| folder.join(path)).collect();
    // A dangling link is something that is there, too.
    let taken: Vec<PathBuf> =
        paths.iter().filter(|path| path.symlink_metadata().is_ok()).cloned().collect();
    if !taken.is_empty() {
        return Err(InitError::Exists(taken));
    }
    for (path, (_, text)) in paths.iter().zip(FILES) {
        write_new(path, text).map_err(|source| InitError::Write { path: path.clone(), source })?;
    }
    Ok(paths)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Never over a file that came into being meanwhile.
    fs::File::create_new(path)?.write_all(text.as_bytes())
}

fn tell(folder: &Path, written: &[PathBuf], out: &mut dyn Write) -> io::Result<()> {
    for path in written {
        writeln!(out, "wrote {}", path.display())?;
    }
    writeln!(out, "\nNext:")?;
    if !folder.as_os_str().is_empty() && folder != Path::new(".") {
        writeln!(out, "  cd {}", folder.display())?;
    }
    writeln!(out, "  cp .env.example .env      # and put your own keys into it")?;
    writeln!(out, "  set -a; . ./.env; set +a")?;
    writeln!(out, "  hangu check")?;
    writeln!(out, "  hangu policy test --coverage")?;
    writeln!(out, "  hangu serve")
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::check,
        fault::Format,
        policy::{CaseOutcome, Policies},
    };

    /// The values of `.env.example`.
    fn env(name: &str) -> Option<String> {
        let (_, text) = FILES[1];
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    }

    #[test]
    fn what_it_writes_passes_check() {
        let folder = tempfile::tempdir().unwrap();
        let mut said = Vec::new();
        run(&Args { folder: folder.path().join("new") }, &mut said).unwrap();
        let checked = check::check(&folder.path().join("new/hangu.yaml"), &env);
        let told = checked.report.render(Format::Plain);
        assert_eq!((checked.report.errors(), checked.report.files), (0, 8), "{told}");
        // The one thing that is left to do.
        assert_eq!(checked.report.warnings(), 1, "{told}");
        assert!(told.contains("P109"), "{told}");
        assert!(String::from_utf8(said).unwrap().contains("hangu check"));
    }

    #[test]
    fn every_rule_that_it_writes_is_tested_and_passes() {
        let folder = tempfile::tempdir().unwrap();
        init(folder.path()).unwrap();
        let report = Policies::load(&folder.path().join("policies")).unwrap().run_cases([]);
        for result in &report.results {
            assert_eq!(result.outcome, CaseOutcome::Passed, "{}", result.case.name);
        }
        for (rule, cases) in &report.coverage {
            assert!(*cases > 0, "no case is about {}", rule.id);
        }
    }

    #[test]
    fn it_never_writes_over_a_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policies")).unwrap();
        fs::write(folder.path().join("policies/tools.yaml"), "mine").unwrap();
        let error = init(folder.path()).unwrap_err();
        assert!(matches!(&error, InitError::Exists(paths) if paths.len() == 1), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("policies/tools.yaml")).unwrap(), "mine");
        assert!(!folder.path().join("hangu.yaml").exists());
    }
}
