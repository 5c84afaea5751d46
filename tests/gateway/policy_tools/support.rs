//! Runs the binary in a folder of its own and keeps what it said.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// What a command said, and how it ended.
pub struct Ran {
    command: String,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// As somebody at a terminal saw it.
    #[track_caller]
    pub fn told(&self) -> String {
        for line in self.stdout.lines().chain(self.stderr.lines()) {
            // What is for programs and screen readers is not broken.
            let whole = line.starts_with('{') || self.command.contains("--format plain");
            assert!(whole || line.chars().count() <= 120, "too wide: {line}");
            assert!(!line.contains('\x1b'), "coloured, and nobody looks: {line}");
        }
        let code = if self.code == 0 { String::new() } else { format!("[exit {}]\n", self.code) };
        format!("$ {}\n{}{}{code}", self.command, self.stdout, self.stderr)
    }
}

/// Runs it wherever the tests run.
pub fn ran(args: &[&str]) -> Ran {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), args)
}

fn run_in(folder: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hangu"));
    command.current_dir(folder).env_remove("HANGU_CONFIG").args(args);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let word = |arg: &&str| match arg.contains([' ', '{', '*']) {
        true => format!("'{arg}'"),
        false => (*arg).to_owned(),
    };
    let words: Vec<_> = args.iter().map(word).collect();
    Ran {
        command: format!("hangu {}", words.join(" ")),
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A folder with files in it.
pub struct Folder(TempDir);

impl Folder {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            folder.write(path, text);
        }
        folder
    }

    /// The files of the format's draft, in `policies/`.
    pub fn drafts() -> Self {
        let folder = Self::new(&[]);
        folder.copy(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/policies"),
            "policies",
        );
        folder
    }

    pub fn copy(&self, from: &Path, to: &str) {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = format!("{to}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.copy(&path, &to);
            } else {
                self.write(&to, &fs::read_to_string(&path).unwrap());
            }
        }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Puts one text in the place of another, which must be there.
    #[track_caller]
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{text}");
        self.write(path, &text.replacen(from, to, 1));
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        run_in(self.0.path(), args)
    }
}
