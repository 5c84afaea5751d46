//! The real command, with nothing else of the environment.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use super::gateway::KEY;

/// Runs a verb with this on its standard input. A variable that is empty is not set.
pub fn hangu(verb: &str, args: &[&str], variables: &[(&str, &str)], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hangu"));
    command.arg(verb).args(args).env_clear();
    command.envs(variables.iter().filter(|(_, value)| !value.is_empty()).copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that reads nothing may be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What it wrote, to its output and to its error output, where it ended with this code.
#[track_caller]
pub fn ended(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{error}");
    assert!(!format!("{out}{error}").contains(KEY), "the key is told: {out}{error}");
    (out, error)
}
