//! Who may bring and share which servers, by the policies that are in force by now.

use std::sync::Arc;

use url::Url;

use super::Servers;
use crate::{
    api::Person,
    error::{Code, Error},
    policy::{NotAllowed, SelfService},
};

/// Why policy says no.
const REASON: &str = "self_service";

impl Servers {
    /// How many servers somebody may have who may bring this one.
    pub(super) fn may_bring(&self, person: &Person, url: &Url) -> Result<u32, Error> {
        let service = self.service(person)?;
        let host = url.host_str().unwrap_or_default();
        // Only addresses of HTTP are read.
        let port = url.port_or_known_default().unwrap_or_default();
        service.may_register(&person.roles, host, port).map_err(not_allowed)?;
        Ok(service.max_each())
    }

    /// Whether somebody may bring any server at all, asked before what he posts is read.
    pub(super) fn may_bring_any(&self, person: &Person) -> Result<(), Error> {
        self.service(person)?.may_register_any(&person.roles).map_err(not_allowed)
    }

    pub(super) fn may_share(&self, person: &Person) -> Result<(), Error> {
        self.service(person)?.may_share(&person.roles).map_err(not_allowed)
    }

    /// Teams whose members' servers the employee sees: none where nobody may share any.
    pub(super) fn teams_that_share(&self, person: &Person) -> Vec<Arc<str>> {
        match (self.parts.self_service)(&person.tenant) {
            Some(service) if service.allows_sharing() => person.teams.clone(),
            _ => Vec::new(),
        }
    }

    fn service(&self, person: &Person) -> Result<SelfService, Error> {
        (self.parts.self_service)(&person.tenant).ok_or_else(|| {
            let message = "nobody brings servers of his own here: no policy of your company says \
                           who may (`self_service`)";
            Error::new(Code::PermissionDenied, message).with_reason(REASON)
        })
    }
}

/// Where the rule stands is for operators: it goes into the log.
fn not_allowed(fault: NotAllowed) -> Error {
    Error::new(Code::PermissionDenied, fault.to_string()).with_reason(REASON).with_cause(fault)
}
