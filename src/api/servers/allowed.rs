//! placeholder
use super::Servers;
use crate::{api::Person, error::Error};
use std::sync::Arc;
use url::Url;
impl Servers {
    pub(super) fn may_bring(&self, _person: &Person, _url: &Url) -> Result<u32, Error> {
        Ok(20)
    }
    pub(super) fn may_share(&self, _person: &Person) -> Result<(), Error> {
        Ok(())
    }
    pub(super) fn teams_that_share(&self, person: &Person) -> Vec<Arc<str>> {
        person.teams.clone()
    }
}
