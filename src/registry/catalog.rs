//! The catalog: everything every upstream lists, as it may be published, immutable and swapped
//! whole.
//!
//! It resolves names by table and never by splitting them. It knows nothing of who may see what.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::{
    definition::{Definition, Entry},
    face::{FaceFault, Faced},
    item::{Item, Placed, Tool},
    names::{self, Namer, Names, SEPARATOR},
    pin::Held,
};
use crate::{
    mcp::{Family, Served},
    model::{call::Surface, server::UpstreamName},
};

/// How far the gateway got with an upstream's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// The first attempt is still under way.
    Pending,
    /// It has been listed at least once; the last good listing is what the catalog holds.
    Listed,
    /// No listing has ever succeeded; the text is for callers and names no address.
    Never(Arc<str>),
}

/// What is known of one upstream, to build a catalog of.
#[derive(Debug, Clone)]
pub struct Known {
    pub name: UpstreamName,
    /// What it declared that it serves; `None` until it was asked.
    pub served: Option<Served>,
    /// What it tells those who use it.
    pub instructions: Option<Arc<str>>,
    /// In the order of [`Family::ALL`].
    pub listings: [Listing; 4],
    pub tools: Vec<KnownTool>,
    pub prompts: Vec<Arc<Entry>>,
    pub resources: Vec<Arc<Entry>>,
    pub templates: Vec<Arc<Entry>>,
}

/// A tool in the form in which it is published.
#[derive(Debug, Clone)]
pub struct KnownTool {
    pub definition: Arc<Definition>,
    /// Why it may not be called.
    pub held: Option<Held>,
    /// Digest of the definition that is listed now.
    pub seen: [u8; 32],
    /// What is to be published of it instead, put on or not to be put on.
    pub face: Option<Result<Arc<Faced>, FaceFault>>,
}

impl KnownTool {
    /// One that is published as it is listed.
    pub fn new(definition: Arc<Definition>) -> Self {
        Self { seen: definition.digest, definition, held: None, face: None }
    }
}

#[derive(Debug)]
struct Section {
    name: UpstreamName,
    /// The name as URIs of the aggregate begin with it.
    written: Box<str>,
    served: Option<Served>,
    instructions: Option<Arc<str>>,
    listings: [Listing; 4],
    /// Indices by family and the name on the upstream's own path, which is its own but where a
    /// tool's face has another.
    own: [HashMap<Arc<str>, usize, RandomState>; 4],
    /// Indices of tools whose face has another name, by their own.
    renamed: HashMap<Arc<str>, usize>,
}

/// A tool that cannot be published as it is meant to be, and so is not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    pub upstream: UpstreamName,
    pub tool: Arc<str>,
    pub fault: FaceFault,
}

/// A tool that is published, with its name on its upstream's own path.
struct Shown<'a> {
    tool: &'a KnownTool,
    face: Option<&'a Arc<Faced>>,
    name: &'a Arc<str>,
}

/// Everything published, in the order of the upstreams in the configuration and theirs within.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    /// Prompts, resources and templates; their indices follow on those of the tools.
    items: Vec<Arc<Item>>,
    /// Indices by family and name on the aggregate.
    aliases: [HashMap<Arc<str>, usize, RandomState>; 4],
    sections: Vec<Section>,
    left_out: Vec<String>,
    unfit: Vec<Unfit>,
}

impl Catalog {
    /// Builds the catalog from what is known of each upstream, in configuration order.
    pub fn build(names: Names, upstreams: &[Known]) -> Self {
        let mut catalog = Catalog::default();
        for upstream in upstreams {
            catalog.sections.push(Section {
                name: upstream.name.clone(),
                written: names::written(&upstream.name).into(),
                served: upstream.served,
                instructions: upstream.instructions.clone(),
                listings: upstream.listings.clone(),
                own: Default::default(),
                renamed: HashMap::new(),
            });
        }
        catalog.add_tools(names, upstreams);
        for family in [Family::Prompts, Family::Resources, Family::Templates] {
            catalog.add_items(names, family, upstreams);
        }
        catalog
    }

    fn add_tools(&mut self, names: Names, upstreams: &[Known]) {
        let mut namer = Namer::new(names, upstreams.iter().map(|known| &known.name).collect());
        let shown: Vec<_> = upstreams.iter().map(|known| known.shown(&mut self.unfit)).collect();
        for Shown { name, .. } in shown.iter().flatten() {
            namer.note(name);
        }
        for ((number, known), shown) in upstreams.iter().enumerate().zip(&shown) {
            for Shown { tool, face, name } in shown {
                let alias = namer.alias(&known.name, name).into();
                let index = self.tools.len();
                let at = self.place(Family::Tools, index, number, known, alias, name);
                self.tools.push(Arc::new(at.tool(tool, face.cloned())));
                let own = &tool.definition.name;
                if let Some(section) = self.sections.get_mut(number)
                    && name != &own
                {
                    section.renamed.insert(own.clone(), index);
                }
            }
        }
    }

    fn add_items(&mut self, names: Names, family: Family, upstreams: &[Known]) {
        let mut namer = Namer::new(names, upstreams.iter().map(|known| &known.name).collect());
        if family == Family::Prompts {
            for entry in upstreams.iter().flat_map(|known| &known.prompts) {
                namer.note(&entry.own);
            }
        }
        for (number, known) in upstreams.iter().enumerate() {
            for entry in known.entries(family) {
                let alias = match self.sections.get(number) {
                    Some(section) if family != Family::Prompts => {
                        names::public_uri(&section.written, &entry.own)
                    }
                    _ => namer.alias(&known.name, &entry.own),
                };
                let index = self.tools.len() + self.items.len();
                let at = self.place(family, index, number, known, alias.into(), &entry.own);
                self.items.push(Arc::new(at.item(entry)));
            }
        }
    }

    /// Enters a name into the tables. A name that another has on the aggregate stays that one's.
    fn place<'a>(
        &mut self,
        family: Family,
        index: usize,
        upstream_index: usize,
        known: &'a Known,
        alias: Arc<str>,
        own: &Arc<str>,
    ) -> Placed<'a> {
        let place = family as usize;
        let on_aggregate = !self.aliases[place].contains_key(&alias);
        if on_aggregate {
            self.aliases[place].insert(alias.clone(), index);
        } else {
            let upstream = &known.name;
            self.left_out.push(format!("`{own}` of `{upstream}`: `{alias}` is taken already"));
        }
        if let Some(section) = self.sections.get_mut(upstream_index) {
            section.own[place].insert(own.clone(), index);
        }
        Placed { index, upstream: &known.name, upstream_index, alias, on_aggregate }
    }

    /// Every tool. A tool's place here is its index.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Every prompt, resource and template; the first one's index is the number of tools.
    pub fn items(&self) -> &[Arc<Item>] {
        &self.items
    }

    /// What the aggregate leaves out, and why.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// The tools that are not published, because they cannot be as they are meant to be.
    pub fn unfit(&self) -> &[Unfit] {
        &self.unfit
    }

    /// A published tool by its upstream's own name for it.
    pub fn tool(&self, upstream: &UpstreamName, own: &str) -> Option<&Arc<Tool>> {
        let section = self.section(upstream)?;
        let own_path = || section.own[Family::Tools as usize].get(own);
        let tool = self.tools.get(*section.renamed.get(own).or_else(own_path)?)?;
        (**tool.name() == *own).then_some(tool)
    }

    /// The tools of a surface, in catalog order.
    pub fn on<'a>(&'a self, surface: &'a Surface) -> impl Iterator<Item = &'a Arc<Tool>> {
        self.tools.iter().filter(move |tool| match surface {
            Surface::Aggregate => tool.on_aggregate,
            Surface::Upstream(name) => tool.upstream == *name,
        })
    }

    /// The things of one family but tools on a surface, in catalog order.
    pub fn items_on<'a>(
        &'a self,
        surface: &'a Surface,
        family: Family,
    ) -> impl Iterator<Item = &'a Arc<Item>> {
        self.items.iter().filter(move |item| {
            item.family == family
                && match surface {
                    Surface::Aggregate => item.on_aggregate,
                    Surface::Upstream(name) => item.upstream == *name,
                }
        })
    }

    /// The tool that a surface publishes under a name.
    pub fn resolve(&self, surface: &Surface, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(self.index_of(surface, Family::Tools, name)?)
    }

    /// The prompt, resource or template that a surface publishes under a name, URI or template.
    pub fn item(&self, surface: &Surface, family: Family, name: &str) -> Option<&Arc<Item>> {
        let index = self.index_of(surface, family, name)?;
        self.items.get(index.checked_sub(self.tools.len())?)
    }

    fn index_of(&self, surface: &Surface, family: Family, name: &str) -> Option<usize> {
        let table = match surface {
            Surface::Aggregate => &self.aliases,
            Surface::Upstream(upstream) => &self.section(upstream)?.own,
        };
        table[family as usize].get(name).copied()
    }

    /// Whose resource a URI names on a surface, listed or not, as a template's expansion is not:
    /// the upstream's place in the configuration, the URI as that one has it, and what is listed
    /// under it.
    pub fn resource(
        &self,
        surface: &Surface,
        uri: &str,
    ) -> Option<(usize, String, Option<&Arc<Item>>)> {
        let (upstream_index, own) = match surface {
            Surface::Aggregate => {
                let (written, own) = names::parts(uri)?;
                (self.sections.iter().position(|section| *section.written == *written)?, own)
            }
            Surface::Upstream(name) => {
                (self.sections.iter().position(|section| section.name == *name)?, uri)
            }
        };
        let own = Some(own).filter(|own| !own.is_empty())?;
        let section = self.sections.get(upstream_index)?;
        let item = section.own[Family::Resources as usize].get(own);
        let item = item.and_then(|index| self.items.get(index.checked_sub(self.tools.len())?));
        Some((upstream_index, own.to_owned(), item))
    }

    /// A URI of an upstream as a surface has it.
    pub fn public_uri<'a>(
        &self,
        surface: &Surface,
        upstream_index: usize,
        own: &'a str,
    ) -> Cow<'a, str> {
        match (surface, self.sections.get(upstream_index)) {
            (Surface::Aggregate, Some(section)) => names::public_uri(&section.written, own).into(),
            _ => own.into(),
        }
    }

    /// What the upstreams of a surface declared that they serve. The aggregate always has tools,
    /// and so has an upstream that nobody has heard yet.
    pub fn served(&self, surface: &Surface) -> Served {
        let unheard = match surface {
            Surface::Aggregate => Served::TOOLS,
            Surface::Upstream(_) => Served::NONE,
        };
        self.sections_of(surface)
            .fold(unheard, |served, section| served | section.served.unwrap_or(Served::TOOLS))
    }

    /// The upstreams of a surface whose first listing of a family has not ended. Without a family
    /// those of which a surface cannot yet say what they are: one of its own has to be listed
    /// for it, one of many only to be heard.
    pub fn pending<'a>(
        &'a self,
        surface: &'a Surface,
        family: Option<Family>,
    ) -> impl Iterator<Item = &'a UpstreamName> {
        let is = move |section: &Section| match family {
            Some(family) => *section.listing(family) == Listing::Pending,
            None => {
                *section.overall() == Listing::Pending
                    && (*surface != Surface::Aggregate || section.served.is_none())
            }
        };
        self.sections_of(surface).filter(move |section| is(section)).map(|section| &section.name)
    }

    /// What a surface's one upstream tells those who use it; the aggregate has nothing to say.
    pub fn instructions(&self, surface: &Surface) -> Option<&Arc<str>> {
        match surface {
            Surface::Aggregate => None,
            Surface::Upstream(name) => self.section(name)?.instructions.as_ref(),
        }
    }

    /// Whether there is such an upstream.
    pub fn knows(&self, upstream: &UpstreamName) -> bool {
        self.section(upstream).is_some()
    }

    /// How far the gateway got with an upstream: listed, where at least one family is.
    pub fn listing(&self, upstream: &UpstreamName) -> Option<&Listing> {
        self.section(upstream).map(Section::overall)
    }

    /// How far the gateway got with one family of an upstream.
    pub fn listing_of(&self, upstream: &UpstreamName, family: Family) -> Option<&Listing> {
        self.section(upstream).map(|section| section.listing(family))
    }

    /// The upstreams of a surface and how far the gateway got with each.
    pub fn listings<'a>(
        &'a self,
        surface: &'a Surface,
    ) -> impl Iterator<Item = (&'a UpstreamName, &'a Listing)> {
        self.sections_of(surface).map(|section| (&section.name, section.overall()))
    }

    /// The same of one family.
    pub fn listings_of<'a>(
        &'a self,
        surface: &'a Surface,
        family: Family,
    ) -> impl Iterator<Item = (&'a UpstreamName, &'a Listing)> {
        self.sections_of(surface).map(move |section| (&section.name, section.listing(family)))
    }

    /// The upstream that a name on the aggregate would belong to, were its tools known. Only for
    /// telling that an upstream has never been listed: a listed tool is found by table.
    pub fn prefix_owner(&self, alias: &str) -> Option<(&UpstreamName, &Listing)> {
        self.sections
            .iter()
            .filter(|section| {
                alias
                    .strip_prefix(section.name.as_str())
                    .is_some_and(|rest| rest.starts_with(SEPARATOR))
            })
            .max_by_key(|section| section.name.as_str().len())
            .map(|section| (&section.name, &section.listings[Family::Tools as usize]))
    }

    fn sections_of<'a>(&'a self, surface: &'a Surface) -> impl Iterator<Item = &'a Section> {
        self.sections.iter().filter(move |section| match surface {
            Surface::Aggregate => true,
            Surface::Upstream(name) => section.name == *name,
        })
    }

    fn section(&self, upstream: &UpstreamName) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == *upstream)
    }
}

// === impl Section ===

impl Section {
    /// Whether the upstream has the family, as far as anybody knows.
    fn declares(&self, family: Family) -> bool {
        self.served.is_none_or(|served| served.contains(family.capability()))
    }

    /// What is not declared is listed: there is nothing to wait for.
    fn listing(&self, family: Family) -> &Listing {
        static LISTED: Listing = Listing::Listed;
        if self.declares(family) { &self.listings[family as usize] } else { &LISTED }
    }

    /// Of all families together that the upstream declares.
    fn overall(&self) -> &Listing {
        let [tools, ..] = &self.listings;
        let declared =
            |family: &Family| self.served.is_none_or(|served| served.contains(family.capability()));
        let of = |family: Family| &self.listings[family as usize];
        let mut listings = Family::ALL.into_iter().filter(declared).map(of);
        let mut again = listings.clone();
        let pending = listings.find(|listing| **listing == Listing::Pending);
        pending.or_else(|| again.find(|listing| **listing == Listing::Listed)).unwrap_or(tools)
    }
}

// === impl Known ===

impl Known {
    /// An upstream of which nothing is known yet.
    pub fn new(name: UpstreamName) -> Self {
        Self {
            name,
            served: None,
            instructions: None,
            listings: [const { Listing::Pending }; 4],
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
        }
    }

    /// The tools that are published. A name that was given by a face is no other tool's, also
    /// where its server begins to list one that is called so.
    fn shown(&self, unfit: &mut Vec<Unfit>) -> Vec<Shown<'_>> {
        let mut leave_out = |tool: &KnownTool, fault: FaceFault| {
            let (upstream, tool) = (self.name.clone(), tool.definition.name.clone());
            unfit.push(Unfit { upstream, tool, fault });
        };
        let given_by = |tool: &'_ KnownTool| match &tool.face {
            Some(Ok(face)) if face.name != tool.definition.name => Some(face.name.clone()),
            _ => None,
        };
        let mut given = HashSet::new();
        let mut taken = HashSet::new();
        for tool in &self.tools {
            if let Some(name) = given_by(tool)
                && !given.insert(name)
            {
                taken.insert(&tool.definition.name);
            }
        }
        let mut shown = Vec::with_capacity(self.tools.len());
        for tool in &self.tools {
            let own = &tool.definition.name;
            let (face, name) = match &tool.face {
                Some(Err(fault)) => {
                    leave_out(tool, fault.clone());
                    continue;
                }
                Some(Ok(face)) => (Some(face), &face.name),
                None => (None, own),
            };
            if taken.contains(own) || (name == own && given.contains(name)) {
                leave_out(tool, FaceFault::NameTaken(name.clone()));
            } else {
                shown.push(Shown { tool, face, name });
            }
        }
        shown
    }

    /// What it lists of a family but tools.
    pub(super) fn entries(&self, family: Family) -> &[Arc<Entry>] {
        match family {
            Family::Tools => &[],
            Family::Prompts => &self.prompts,
            Family::Resources => &self.resources,
            Family::Templates => &self.templates,
        }
    }
}
