//! Tools, prompts and resources by their names alone, for whoever decides without a catalog.

use std::{collections::BTreeSet, sync::Arc};

use super::{Family, Policies, Subject, document};

/// Something by its upstream and the upstream's own name of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Named {
    pub family: Family,
    pub upstream: Arc<str>,
    pub name: Arc<str>,
}

// === impl Named ===

impl Named {
    /// Reads `upstream/name`; the error goes on after "`text` ".
    pub fn parse(family: Family, text: &str) -> Result<Self, String> {
        document::parse_item(family, text)
    }

    pub fn subject(&self) -> Subject<'_> {
        Subject { family: self.family, upstream: &self.upstream, name: &self.name }
    }

    /// `upstream/name`.
    pub fn full(&self) -> String {
        self.subject().full()
    }
}

// === impl Policies ===

impl Policies {
    /// What the files name in `kind: Tools` documents, and what their cases ask for.
    pub fn named(&self) -> BTreeSet<Named> {
        let mut named = BTreeSet::new();
        for (upstream, classes) in self.enforced.upstreams.iter() {
            for family in Family::ALL {
                let names = classes.of(family).keys();
                named.extend(names.map(|name| Named {
                    family,
                    upstream: upstream.clone(),
                    name: name.clone(),
                }));
            }
        }
        for case in self.cases() {
            match &case.asks {
                document::Asked::Call { item, .. } => {
                    named.insert(item.clone());
                }
                document::Asked::List { visible, hidden, .. } => {
                    let exact = visible.iter().chain(hidden).filter(|glob| glob.is_exact());
                    named.extend(
                        exact.filter_map(|glob| Named::parse(Family::Tools, glob.as_str()).ok()),
                    );
                }
            }
        }
        named
    }
}
