//! The gateway from outside: one binary, a file per behaviour.

mod tidy;
