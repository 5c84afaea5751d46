//! Definitions of tools and their approvals, as statements for both databases.
//!
//! Whoever writes takes one lock first: the numbers of approvals are given in the order in which
//! they become visible, so that whoever asks for those above the last one misses none.

mod sql;

use std::{collections::HashSet, sync::Arc};

pub(super) use self::sql::PinSql;
use super::{Handle, lane::Backend};
use crate::registry::store::{
    Approved, Bounds, Digests, HandedOn, History, How, Kept, PinStore, Scope, Seen, Then, Version,
    Wish,
};

/// The place of this work among what shares a transaction, and the lane that does it.
const PLACE: [u8; 32] = [0; 32];

/// What is known of the tools of one request while it is carried out.
struct Work<'a> {
    scope: &'a Scope,
    bounds: Bounds,
    at_ms: u64,
    /// Of the tools that are named, and perhaps of some between them by the alphabet.
    versions: Vec<sql::VersionRow>,
    /// The approvals in force.
    approved: Vec<sql::ApprovalRow>,
    /// How many tools more there is room for; asked once, when it is needed.
    room: Option<usize>,
}

async fn keep<C: PinSql>(
    conn: &mut C,
    scope: &Scope,
    seen: &[Seen],
    bounds: Bounds,
    at_ms: u64,
) -> Result<Vec<Kept>, sqlx::Error> {
    conn.lock_pins().await?;
    let mut work = Work::on(conn, scope, seen, bounds, at_ms).await?;
    let mut all = Vec::with_capacity(seen.len());
    for seen in seen {
        all.push(work.keep(conn, seen).await?);
    }
    Ok(all)
}

async fn look<C: PinSql>(
    conn: &mut C,
    scope: &Scope,
    seen: &[Seen],
) -> Result<Vec<Kept>, sqlx::Error> {
    let nothing = Bounds { versions: 0, tools: 0 };
    let work = Work::on(conn, scope, seen, nothing, 0).await?;
    let mut all = Vec::with_capacity(seen.len());
    for seen in seen {
        all.extend(work.look(conn, seen).await?);
    }
    Ok(all)
}

impl<'a> Work<'a> {
    async fn on<C: PinSql>(
        conn: &mut C,
        scope: &'a Scope,
        seen: &[Seen],
        bounds: Bounds,
        at_ms: u64,
    ) -> Result<Self, sqlx::Error> {
        let names = || seen.iter().map(|seen| &*seen.tool);
        let (versions, approved) = match names().min().zip(names().max()) {
            Some((first, last)) => (
                conn.pin_versions_between(scope, first, last).await?,
                conn.pin_approvals_between(scope, first, last).await?,
            ),
            None => (Vec::new(), Vec::new()),
        };
        Ok(Self { scope, bounds, at_ms, versions, approved, room: None })
    }
}

impl Work<'_> {
    async fn keep<C: PinSql>(&mut self, conn: &mut C, seen: &Seen) -> Result<Kept, sqlx::Error> {
        let mut kept = Kept {
            tool: seen.tool.clone(),
            digest: seen.digest,
            version: None,
            is_new: false,
            first_ms: self.at_ms,
            approved: None,
            by_first_use: false,
            is_other: false,
        };
        let own: Vec<_> = self.versions.iter().filter(|row| *row.tool == *seen.tool).collect();
        let known = own.iter().find(|row| row.digest == seen.digest);
        let version = match known {
            Some(row) => {
                kept.first_ms = row.first_ms;
                let (scope, tool) = (self.scope, &*seen.tool);
                conn.touch_pin(scope, tool, &seen.digest, self.at_ms).await?;
                row.version
            }
            None => {
                let last = own.iter().map(|row| row.version).max();
                if last.is_none() && !self.has_room(conn).await? {
                    return Ok(kept);
                }
                kept.is_new = true;
                let version = last.unwrap_or(0) + 1;
                self.add(conn, seen, version).await?;
                let (tool, digest, first_ms) = (seen.tool.clone(), seen.digest, self.at_ms);
                let vouched = false;
                self.versions.push(sql::VersionRow { tool, version, digest, first_ms, vouched });
                version
            }
        };
        kept.version = Some(version);
        kept.is_other = self.is_other(seen);
        kept.approved = match self.in_force(conn, seen, version).await? {
            Some(approved) => Some(approved),
            None if seen.first_use && !kept.is_other => {
                kept.by_first_use = true;
                let row = sql::ApprovalRow {
                    tool: seen.tool.clone(),
                    number: conn.last_pin_approval().await? + 1,
                    version,
                    how: How::FirstUse,
                    by: "".into(),
                    at_ms: self.at_ms,
                };
                conn.insert_pin_approval(self.scope, &row).await?;
                self.approved.push(row.clone());
                Some(row.approved(self.scope, seen.digest, seen.definition.clone()))
            }
            None => None,
        };
        Ok(kept)
    }

    /// Whether nothing is approved of the tool here, and another definition where its history
    /// comes from.
    fn is_other(&self, seen: &Seen) -> bool {
        let mut own = self.versions.iter().filter(|row| *row.tool == *seen.tool && row.vouched);
        let (mut any, mut same) = (false, false);
        own.by_ref().for_each(|row| (any, same) = (true, same || row.digest == seen.digest));
        any && !same && self.approved.iter().all(|row| *row.tool != *seen.tool)
    }

    /// What is approved of a tool whose definition has this number.
    async fn in_force<C: PinSql>(
        &self,
        conn: &mut C,
        seen: &Seen,
        version: u64,
    ) -> Result<Option<Approved>, sqlx::Error> {
        let row = self.approved.iter().find(|row| *row.tool == *seen.tool);
        let Some(row) = row.cloned() else { return Ok(None) };
        let other = match row.version == version {
            true => None,
            false => conn.pin_version(self.scope, &seen.tool, row.version).await?,
        };
        let (digest, definition) = match other {
            Some(other) => (other.digest, other.definition),
            None => (seen.digest, seen.definition.clone()),
        };
        Ok(Some(row.approved(self.scope, digest, definition)))
    }

    /// What is kept already of one.
    async fn look<C: PinSql>(
        &self,
        conn: &mut C,
        seen: &Seen,
    ) -> Result<Option<Kept>, sqlx::Error> {
        let mut own = self.versions.iter().filter(|row| *row.tool == *seen.tool);
        let Some(row) = own.find(|row| row.digest == seen.digest) else { return Ok(None) };
        Ok(Some(Kept {
            tool: seen.tool.clone(),
            digest: seen.digest,
            version: Some(row.version),
            is_new: false,
            first_ms: row.first_ms,
            approved: self.in_force(conn, seen, row.version).await?,
            by_first_use: false,
            is_other: self.is_other(seen),
        }))
    }

    async fn has_room<C: PinSql>(&mut self, conn: &mut C) -> Result<bool, sqlx::Error> {
        let room = match self.room {
            Some(room) => room,
            None => self.bounds.tools.saturating_sub(conn.pinned_tools(self.scope).await?),
        };
        self.room = Some(room.saturating_sub(1));
        Ok(room > 0)
    }

    /// Another version; one that nobody approved makes room for it, the longest unseen first.
    async fn add<C: PinSql>(
        &mut self,
        conn: &mut C,
        seen: &Seen,
        version: u64,
    ) -> Result<(), sqlx::Error> {
        if version > 1 {
            let most = self.bounds.versions.max(1) - 1;
            conn.prune_pins(self.scope, &seen.tool, most).await?;
        }
        let row = Version {
            version,
            digest: seen.digest,
            definition: seen.definition.clone(),
            first_ms: self.at_ms,
            last_ms: self.at_ms,
            vouched: false,
        };
        conn.insert_pin_version(self.scope, &seen.tool, &row).await
    }
}

async fn history<C: PinSql>(
    conn: &mut C,
    scope: &Scope,
    tool: &str,
) -> Result<History, sqlx::Error> {
    let versions = conn.pin_versions(scope, tool).await?;
    let rows = conn.pin_approvals(scope, tool).await?;
    let approvals = rows.into_iter().filter_map(|row| {
        let version = versions.iter().find(|version| version.version == row.version)?;
        Some(row.approved(scope, version.digest, version.definition.clone()))
    });
    Ok(History { approvals: approvals.collect(), versions })
}

async fn all_of<C: PinSql>(
    conn: &mut C,
    scope: &Scope,
) -> Result<Vec<(Arc<str>, History)>, sqlx::Error> {
    let mut all = Vec::new();
    for tool in conn.pinned_tool_names(scope).await? {
        let history = history(conn, scope, &tool).await?;
        all.push((tool, history));
    }
    Ok(all)
}

async fn take_over<C: PinSql>(
    conn: &mut C,
    scope: &Scope,
    tools: Vec<HandedOn>,
    bounds: Bounds,
    at_ms: u64,
) -> Result<(), sqlx::Error> {
    conn.lock_pins().await?;
    let mut known: HashSet<Arc<str>> = conn.pinned_tool_names(scope).await?.into_iter().collect();
    for handed in tools {
        let tool = handed.tool.clone();
        if known.len() >= bounds.tools || !known.insert(tool.clone()) {
            continue;
        }
        for version in handed.within(bounds.versions, at_ms) {
            conn.insert_pin_version(scope, &tool, &version).await?;
        }
    }
    Ok(())
}

async fn approve<C: PinSql>(conn: &mut C, wish: &Wish) -> Result<Option<Approved>, sqlx::Error> {
    conn.lock_pins().await?;
    let history = history(conn, &wish.scope, &wish.tool).await?;
    let Some(found) = history.find(wish.which) else { return Ok(None) };
    let row = sql::ApprovalRow {
        tool: wish.tool.clone(),
        number: conn.last_pin_approval().await? + 1,
        version: found.version,
        how: wish.how,
        by: wish.by.clone(),
        at_ms: wish.at_ms,
    };
    conn.insert_pin_approval(&wish.scope, &row).await?;
    Ok(Some(row.approved(&wish.scope, found.digest, found.definition.clone())))
}

impl<B> PinStore for Handle<B>
where
    B: Backend,
    B::Conn: PinSql,
{
    fn keep(
        &self,
        scope: Scope,
        seen: Vec<Seen>,
        bounds: Bounds,
        at_ms: u64,
        then: Then<Vec<Kept>>,
    ) {
        let work = async move |conn: &mut B::Conn| {
            let kept = keep(conn, &scope, &seen, bounds, at_ms).await?;
            Ok((kept, true))
        };
        self.submit(&PLACE, work, then);
    }

    fn look(&self, scope: Scope, seen: Vec<Seen>, then: Then<Vec<Kept>>) {
        let work = async move |conn: &mut B::Conn| Ok((look(conn, &scope, &seen).await?, false));
        self.submit(&PLACE, work, then);
    }

    fn still(&self, scope: Scope, tools: Digests, at_ms: u64, then: Then<()>) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_pins().await?;
            for (tool, digest) in &tools {
                conn.touch_pin(&scope, tool, digest, at_ms).await?;
            }
            Ok(((), true))
        };
        self.submit(&PLACE, work, then);
    }

    fn approve(&self, wish: Wish, then: Then<Option<Approved>>) {
        let work = async move |conn: &mut B::Conn| {
            let approved = approve(conn, &wish).await?;
            let changed = approved.is_some();
            Ok((approved, changed))
        };
        self.submit(&PLACE, work, then);
    }

    fn since(&self, number: u64, then: Then<Vec<Approved>>) {
        let work =
            async move |conn: &mut B::Conn| Ok((conn.pin_approvals_since(number).await?, false));
        self.submit(&PLACE, work, then);
    }

    fn history(&self, scope: Scope, tool: Arc<str>, then: Then<History>) {
        let work = async move |conn: &mut B::Conn| Ok((history(conn, &scope, &tool).await?, false));
        self.submit(&PLACE, work, then);
    }

    fn all_of(&self, scope: Scope, then: Then<Vec<(Arc<str>, History)>>) {
        let work = async move |conn: &mut B::Conn| Ok((all_of(conn, &scope).await?, false));
        self.submit(&PLACE, work, then);
    }

    fn take_over(
        &self,
        scope: Scope,
        tools: Vec<HandedOn>,
        bounds: Bounds,
        at_ms: u64,
        then: Then<()>,
    ) {
        let work = async move |conn: &mut B::Conn| {
            take_over(conn, &scope, tools.clone(), bounds, at_ms).await?;
            Ok(((), true))
        };
        self.submit(&PLACE, work, then);
    }

    fn sweep(&self, before_ms: u64, then: Then<()>) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_pins().await?;
            conn.forget_pins(before_ms).await?;
            Ok(((), true))
        };
        self.submit(&PLACE, work, then);
    }
}

/// Makes digests that are in another form than today's again, from the definitions; what cannot
/// be read any more keeps the one that it has, and is nobody's.
pub(super) async fn upgrade<C: PinSql>(conn: &mut C) -> Result<(), sqlx::Error> {
    for (scope, tool, version, definition) in conn.pins_of_other_forms().await? {
        if let Some(read) = crate::registry::read_kept(definition) {
            conn.renew_pin(&scope, &tool, version, &read.digest).await?;
        }
    }
    Ok(())
}
