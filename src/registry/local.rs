//! Definitions and their approvals in memory: they end with the process.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

use super::store::{
    Approved, Bounds, Digests, HandedOn, History, How, Kept, PinStore, SOME, Scope, Seen, Then,
    Version, Which, Wish,
};

/// A store without a disk.
#[derive(Debug, Default)]
pub struct Local(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    /// By scope and tool.
    tools: BTreeMap<(Scope, Arc<str>), History>,
    /// The last number that was given to an approval.
    number: u64,
}

impl All {
    fn keep(&mut self, scope: &Scope, seen: Seen, bounds: Bounds, at_ms: u64) -> Kept {
        let key = (scope.clone(), seen.tool.clone());
        let mut kept = Kept {
            tool: seen.tool,
            digest: seen.digest,
            version: None,
            is_new: false,
            first_ms: at_ms,
            approved: None,
            by_first_use: false,
            is_other: false,
        };
        if !self.tools.contains_key(&key) {
            let all = self.tools.range((scope.clone(), "".into())..);
            if all.take_while(|((of, _), _)| of == scope).count() >= bounds.tools {
                return kept;
            }
        }
        let history = self.tools.entry(key).or_default();
        let known = history.versions.iter_mut().find(|known| known.digest == seen.digest);
        let version = match known {
            Some(known) => {
                known.last_ms = at_ms;
                kept.first_ms = known.first_ms;
                known.version
            }
            None => {
                kept.is_new = true;
                history.add(seen.digest, seen.definition, at_ms, bounds.versions)
            }
        };
        kept.version = Some(version);
        kept.is_other = history.approved().is_none() && history.is_other(seen.digest);
        if history.approved().is_none() && seen.first_use && !kept.is_other {
            self.number += 1;
            let wish = Wish {
                scope: scope.clone(),
                tool: kept.tool.clone(),
                which: Which::Version(version),
                how: How::FirstUse,
                by: "".into(),
                at_ms,
            };
            kept.by_first_use = history.approve(&wish, self.number).is_some();
        }
        kept.approved = history.approved().cloned();
        kept
    }

    fn approve(&mut self, wish: &Wish) -> Option<Approved> {
        let history = self.tools.get_mut(&(wish.scope.clone(), wish.tool.clone()))?;
        let approved = history.approve(wish, self.number + 1)?;
        self.number = approved.number;
        Some(approved)
    }
}

impl History {
    /// Another version; one that nobody approved makes room for it, the longest unseen first.
    fn add(&mut self, digest: [u8; 32], definition: bytes::Bytes, at_ms: u64, most: usize) -> u64 {
        let approved: HashSet<u64> = self.approvals.iter().map(|it| it.version).collect();
        let spare = |known: &Version| !known.vouched && !approved.contains(&known.version);
        while self.versions.iter().filter(|known| spare(known)).count() >= most.max(1) {
            let spares = self.versions.iter().filter(|known| spare(known));
            let oldest = spares.min_by_key(|known| (known.last_ms, known.version));
            let Some(oldest) = oldest.map(|known| known.version) else { break };
            self.versions.retain(|known| known.version != oldest);
        }
        let version = self.versions.last().map_or(1, |last| last.version + 1);
        let (first_ms, last_ms) = (at_ms, at_ms);
        let vouched = false;
        self.versions.push(Version { version, digest, definition, first_ms, last_ms, vouched });
        version
    }

    fn approve(&mut self, wish: &Wish, number: u64) -> Option<Approved> {
        let known = self.find(wish.which)?;
        let approved = Approved {
            scope: wish.scope.clone(),
            tool: wish.tool.clone(),
            number,
            version: known.version,
            digest: known.digest,
            definition: known.definition.clone(),
            how: wish.how,
            by: wish.by.clone(),
            at_ms: wish.at_ms,
        };
        self.approvals.push(approved.clone());
        Some(approved)
    }
}

impl PinStore for Local {
    fn keep(
        &self,
        scope: Scope,
        seen: Vec<Seen>,
        bounds: Bounds,
        at_ms: u64,
        then: Then<Vec<Kept>>,
    ) {
        let mut all = self.0.lock();
        let kept = seen.into_iter().map(|seen| all.keep(&scope, seen, bounds, at_ms)).collect();
        drop(all);
        then(Ok(kept));
    }

    fn look(&self, scope: Scope, seen: Vec<Seen>, then: Then<Vec<Kept>>) {
        let all = self.0.lock();
        let known = seen.into_iter().filter_map(|seen| {
            let history = all.tools.get(&(scope.clone(), seen.tool.clone()))?;
            let known = history.find(Which::Digest(seen.digest))?;
            Some(Kept {
                tool: seen.tool,
                digest: seen.digest,
                version: Some(known.version),
                is_new: false,
                first_ms: known.first_ms,
                approved: history.approved().cloned(),
                by_first_use: false,
                is_other: history.approved().is_none() && history.is_other(seen.digest),
            })
        });
        let known = known.collect();
        drop(all);
        then(Ok(known));
    }

    fn still(&self, scope: Scope, tools: Digests, at_ms: u64, then: Then<()>) {
        let mut all = self.0.lock();
        for (tool, digest) in tools {
            let Some(history) = all.tools.get_mut(&(scope.clone(), tool)) else { continue };
            if let Some(version) = history.versions.iter_mut().find(|it| it.digest == digest) {
                version.last_ms = at_ms;
            }
        }
        drop(all);
        then(Ok(()));
    }

    fn approve(&self, wish: Wish, then: Then<Option<Approved>>) {
        let approved = self.0.lock().approve(&wish);
        then(Ok(approved));
    }

    fn since(&self, number: u64, then: Then<Vec<Approved>>) {
        let all = self.0.lock();
        let approvals = all.tools.values().flat_map(|history| &history.approvals);
        let mut news: Vec<_> = approvals.filter(|it| it.number > number).cloned().collect();
        drop(all);
        news.sort_by_key(|approved| approved.number);
        news.truncate(SOME);
        then(Ok(news));
    }

    fn history(&self, scope: Scope, tool: Arc<str>, then: Then<History>) {
        let history = self.0.lock().tools.get(&(scope, tool)).cloned();
        then(Ok(history.unwrap_or_default()));
    }

    fn all_of(&self, scope: Scope, then: Then<Vec<(Arc<str>, History)>>) {
        let all = self.0.lock();
        let own = all.tools.range((scope.clone(), "".into())..);
        let own = own.take_while(|((of, _), _)| *of == scope);
        let own = own.map(|((_, tool), history)| (tool.clone(), history.clone())).collect();
        drop(all);
        then(Ok(own));
    }

    fn take_over(
        &self,
        scope: Scope,
        tools: Vec<HandedOn>,
        bounds: Bounds,
        at_ms: u64,
        then: Then<()>,
    ) {
        let mut all = self.0.lock();
        for handed in tools {
            let key = (scope.clone(), handed.tool.clone());
            let own = all.tools.range((scope.clone(), "".into())..);
            let count = own.take_while(|((of, _), _)| *of == scope).count();
            if count < bounds.tools && !all.tools.contains_key(&key) {
                let versions = handed.within(bounds.versions, at_ms).collect();
                all.tools.insert(key, History { versions, approvals: Vec::new() });
            }
        }
        drop(all);
        then(Ok(()));
    }

    fn sweep(&self, before_ms: u64, then: Then<()>) {
        self.0.lock().tools.retain(|_, history| {
            history.versions.iter().any(|version| version.last_ms >= before_ms)
                || history.approvals.iter().any(|approved| approved.how.is_somebodys())
        });
        then(Ok(()));
    }
}
