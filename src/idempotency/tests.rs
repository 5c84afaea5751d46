//! The life of a key: one run, then the same answer, whoever comes when.
