//! What a dry run gathers on its way, for `dry_run` to tell.

/// What a dry run has found out so far.
#[derive(Debug, Default)]
pub struct Trial {
    /// `new` or `replayed`, of a call with an idempotency key.
    pub idempotency: Option<&'static str>,
    pub approval: Option<TrialApproval>,
}

/// How a call stands that a rule asks about.
#[derive(Debug)]
pub struct TrialApproval {
    /// `needed`, `waiting`, `approved` or `refused` by others; `confirmation` where only the
    /// client is asked.
    pub state: &'static str,
    /// Of the request, if there is one.
    pub id: Option<Box<str>>,
    /// The client is asked, too.
    pub confirm: bool,
}
