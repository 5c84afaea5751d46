//! Personal servers: what is read, what is refused, and what is kept.
