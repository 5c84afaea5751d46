//! What a view shows of a surface, as one digest for each family.
//!
//! Equal digests mean equal listings. Only this process compares them, under a key of its own.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

use super::super::stage::{Beside, World, publishes_key};
use crate::{
    mcp::Family,
    model::call::Surface,
    policy::{ItemIndex, View},
};

/// Digests of the three lists that have notices of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    pub tools: u64,
    pub prompts: u64,
    /// Resources and their templates.
    pub resources: u64,
}

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Seen {
    /// Of a surface, and of what an employee has of his own on it.
    pub fn of(world: &World, view: &View, beside: Option<&Beside>, surface: &Surface) -> Self {
        let seen = Self::alone(world, view, surface);
        match beside {
            None => seen,
            Some(own) => seen.and(Self::alone(&own.world, &own.view, surface)),
        }
    }

    fn alone(world: &World, view: &View, surface: &Surface) -> Self {
        Self {
            tools: tools(world, view, surface),
            prompts: items(world, view, surface, &[Family::Prompts]),
            resources: items(world, view, surface, &[Family::Resources, Family::Templates]),
        }
    }

    fn and(self, other: Self) -> Self {
        let both = |one: u64, other: u64| KEY.hash_one((one, other));
        Self {
            tools: both(self.tools, other.tools),
            prompts: both(self.prompts, other.prompts),
            resources: both(self.resources, other.resources),
        }
    }
}

fn tools(world: &World, view: &View, surface: &Surface) -> u64 {
    let visible = view.visible();
    let mut hasher = KEY.build_hasher();
    for tool in world.catalog.on(surface).filter(|tool| visible.contains(tool.index)) {
        hasher.write(tool.name_on(surface).as_bytes());
        hasher.write(&tool.definition.digest);
        if let Some(face) = &tool.face {
            hasher.write_usize(face.raw.len());
            hasher.write(&face.raw);
        }
        let policy = view.item(ItemIndex::new(tool.index));
        // The gateway adds an argument to what it publishes.
        hasher.write_u8(u8::from(policy.is_some_and(|policy| publishes_key(tool, policy))));
    }
    hasher.finish()
}

fn items(world: &World, view: &View, surface: &Surface, families: &[Family]) -> u64 {
    let visible = view.visible();
    let mut hasher = KEY.build_hasher();
    for family in families {
        for item in world.catalog.items_on(surface, *family) {
            if visible.contains(item.index) {
                let published = item.published(surface);
                hasher.write_usize(published.len());
                hasher.write(published);
            }
        }
        hasher.write_u8(0xff);
    }
    hasher.finish()
}
