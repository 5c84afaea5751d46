//! Names and globs that many files say alike, kept once.

use std::sync::Arc;

use dashmap::DashSet;

use super::{Globs, ItemGlob, Rule, glob::Glob};
use crate::{
    model::caller::{CallerId, Role},
    yaml::Spanned,
};

/// What is shared between files, however many threads read them.
#[derive(Debug, Default)]
pub struct Names {
    texts: DashSet<Arc<str>>,
    globs: DashSet<Arc<Glob>>,
}

impl Names {
    /// Lets a rule that nobody else holds yet share what others say too.
    pub fn share(&self, rule: &mut Rule) {
        rule.id = self.text(&rule.id);
        if let Some(say) = &rule.say {
            rule.say = Some(self.text(say));
        }
        for role in spanned(&mut rule.roles) {
            role.value = Role::new(self.text(role.value.as_str()));
        }
        for caller in spanned(&mut rule.callers) {
            caller.value = CallerId::new(self.text(caller.value.as_str()));
        }
        let Globs { tools, prompts, resources } = &mut rule.globs;
        for glob in [tools, prompts, resources].into_iter().flatten().flatten() {
            self.glob(glob);
        }
    }

    fn text(&self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    fn glob(&self, glob: &mut ItemGlob) {
        if let Some(known) = self.globs.get(&glob.glob) {
            glob.glob = known.clone();
            return;
        }
        self.globs.insert(glob.glob.clone());
    }

    /// Forgets what nobody says any more.
    pub fn tidy(&self) {
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.globs.retain(|glob| Arc::strong_count(glob) > 1);
    }
}

fn spanned<T>(list: &mut Option<Box<[Spanned<T>]>>) -> impl Iterator<Item = &mut Spanned<T>> {
    list.iter_mut().flat_map(|list| list.iter_mut())
}
