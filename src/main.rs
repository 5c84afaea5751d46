//! The `hangu` command: exit codes, nothing else.

fn main() {}
