//! What records say of requests under `/v1`.

use super::{Object, key};
use crate::model::exchange::Facts;

impl Object<'_> {
    /// The method of MCP; under `/v1` that of HTTP, and the path's template.
    pub(super) fn method(&mut self, facts: &Facts) {
        if let Some(method) = facts.method {
            self.text(key!("method"), Some(method.as_str()));
        } else if let Some(http) = facts.api_route() {
            self.text(key!("method"), Some(&format!("{} {}", http.method, http.route)));
        }
    }

    /// What somebody said to a request for approval.
    pub(super) fn answer(&mut self, facts: &Facts) {
        if let Some(answer) = &facts.answer {
            self.nested(key!("approval"), |approval| {
                approval.text(key!("answer"), Some(if answer.yes { "yes" } else { "no" }));
                approval.uuid(key!("id"), Some(answer.id));
                approval.text(key!("state"), answer.state);
            });
        }
    }

    /// What somebody did to a server of his own.
    pub(super) fn change(&mut self, facts: &Facts) {
        if let Some(change) = &facts.server_change {
            self.nested(key!("change"), |object| {
                if let Some(issuer) = &change.issuer {
                    object.caller_text(key!("issuer"), issuer);
                }
                object.text(key!("team"), change.team.as_deref());
                object.text(key!("what"), Some(change.what));
            });
        }
    }
}
