//! `hangu policy diff`: who gains and who loses what between two policy folders, or revisions that
//! a gateway keeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    load,
    revision::{Shelf, is_revision},
};
use crate::{
    cli::{
        catalog::Catalog,
        tell::{self, CommandError, Ending, count},
    },
    fault::{Format, Paint, WIDTH, escape, wrap},
    policy::{About, Difference, DifferenceKind, Policies, Seer, diff},
};

/// Which folders.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Limits are not compared, only who may use what, and how much of a quota may be \
    spent with it.\n\n\
    Examples:\n  \
    hangu policy diff ../main/policies policies\n  \
    hangu policy diff 3f9a1c20b7d4 policies --config hangu.yaml\n  \
    hangu policy diff ../main/policies policies --allow-widening --format json"
)]
pub struct Diff {
    /// The policies as they are: a folder, or a kept revision
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The policies as they are to be: a folder, or a kept revision
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    shelf: Shelf,
    /// End well even if somebody may do more than before
    #[arg(long)]
    allow_widening: bool,
    /// What upstreams offer, as a JSON file; without it, what the files name is all there is
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// How to tell: human, plain or json
    #[arg(long, default_value = "human", value_parser = tell::parse_format)]
    format: Format,
}

/// Writes the differences. Exit code 3 if access is wider, unless that is allowed.
pub fn run(args: &Diff, out: &mut dyn Write) -> Result<Ending, CommandError> {
    let (old, new) = (load(&args.old, &args.shelf)?, load(&args.new, &args.shelf)?);
    let catalog = Catalog::read(args.catalog.as_deref())?;
    let differences = diff(&old, &new, catalog.names());
    let widened = differences.iter().any(|difference| difference.kind.widens());
    let groups = groups(&differences);
    match args.format {
        Format::Human { colour } => human(&groups, Paint::new(colour), out)?,
        Format::Plain | Format::Sarif => plain(&groups, out)?,
        Format::Json => {
            let told: Vec<_> = groups.iter().map(Group::as_json).collect();
            writeln!(out, "{}", json!({ "widened": widened, "differences": told }))?;
        }
    }
    if widened && !args.allow_widening {
        if args.format != Format::Json {
            writeln!(out, "exit 3: access widened (use --allow-widening after review)")?;
        }
        return Ok(Ending::Widened);
    }
    Ok(Ending::Well)
}

/// A folder, or what is called like a revision and is no folder.
fn load(named: &Path, shelf: &Shelf) -> Result<Policies, CommandError> {
    match named.to_str().filter(|text| is_revision(text) && !named.exists()) {
        Some(revision) => shelf.load(revision),
        None => load::load(named),
    }
}

/// Items for which the same is said of the same people.
struct Group<'d> {
    kind: DifferenceKind,
    tenants: Vec<String>,
    who: &'d Seer,
    about: About,
    only: Option<&'d str>,
    when: Option<&'d str>,
    items: Vec<&'d str>,
}

fn groups(differences: &BTreeSet<Difference>) -> Vec<Group<'_>> {
    type Key<'d> =
        (DifferenceKind, Option<String>, &'d Seer, About, Option<&'d str>, Option<&'d str>);
    let mut by: BTreeMap<Key<'_>, Vec<&str>> = BTreeMap::new();
    for difference in differences {
        let tenant = difference.tenant.as_ref().map(ToString::to_string);
        let only = difference.only.as_deref();
        let when = difference.when.as_deref();
        let key = (difference.kind, tenant, &difference.who, difference.about, only, when);
        by.entry(key).or_default().push(&difference.item);
    }
    // What is the same in several tenants is told once.
    let mut groups: Vec<Group<'_>> = Vec::new();
    for ((kind, tenant, who, about, only, when), items) in by {
        let tenant = tenant.unwrap_or_else(|| "(others)".to_owned());
        let same = groups.iter_mut().find(|group| {
            group.kind == kind
                && group.who == who
                && group.about == about
                && group.only == only
                && group.when == when
                && group.items == items
        });
        match same {
            Some(group) => group.tenants.push(tenant),
            None => {
                let tenants = vec![tenant];
                groups.push(Group { kind, tenants, who, about, only, when, items });
            }
        }
    }
    groups
}

fn human(groups: &[Group<'_>], paint: Paint, out: &mut dyn Write) -> Result<(), CommandError> {
    if groups.is_empty() {
        writeln!(out, "Nobody gains or loses anything.")?;
        return Ok(());
    }
    let column = |text: &dyn Fn(&Group<'_>) -> String| {
        groups.iter().map(|group| text(group).chars().count()).max().unwrap_or(0)
    };
    let kinds = column(&|group| kind_word(group.kind).to_owned());
    let tenants = column(&|group| group.tenants()).min(30);
    let people = column(&|group| who_text(group.who)).min(40);
    let amounts = column(&|group| group.amount());
    for group in groups {
        let (tint, reset) = match group.kind.widens() {
            true => (paint.red(), paint.reset()),
            false => (paint.green(), paint.reset()),
        };
        let head = format!(
            "{:<tenants$}  {:<people$}  {:<amounts$}   ",
            group.tenants(),
            who_text(group.who),
            group.amount()
        );
        let word = kind_word(group.kind);
        let begin = kinds + 2 + head.chars().count();
        let (text, indent) = (group.text(), begin.min(WIDTH / 2));
        let text = if begin > WIDTH / 2 {
            format!("\n{}{}", " ".repeat(indent), wrap(&text, indent, WIDTH))
        } else {
            wrap(&text, indent, WIDTH)
        };
        writeln!(out, "{tint}{word:<kinds$}{reset}  {head}{text}")?;
    }
    Ok(())
}

fn plain(groups: &[Group<'_>], out: &mut dyn Write) -> Result<(), CommandError> {
    for group in groups {
        let (word, tenants) = (kind_word(group.kind).to_lowercase(), group.tenants());
        writeln!(out, "{word}: {tenants}: {}: {}", who_text(group.who), group.text())?;
    }
    Ok(())
}

impl Group<'_> {
    fn tenants(&self) -> String {
        self.tenants.join(", ")
    }

    fn amount(&self) -> String {
        let sign = match self.kind {
            DifferenceKind::Widened => "+",
            DifferenceKind::Narrowed => "-",
            _ => "",
        };
        match self.about {
            About::Item(family) => format!("{sign}{}", count(self.items.len(), family.one())),
            About::Hosts => format!("{sign}{}", count(self.items.len(), "host")),
            About::Sharing | About::Number | About::Approving => sign.to_owned(),
        }
    }

    fn text(&self) -> String {
        let items = escape(&self.items.join(", "));
        let items = match self.about {
            About::Item(_) => items,
            About::Hosts => format!("register servers at {items}"),
            About::Sharing => format!("share {items}"),
            About::Number => format!("have {items}"),
            About::Approving => format!("use the tools of their own servers {items}"),
        };
        let only = self.only.map_or(String::new(), |only| format!(" where {}", escape(only)));
        let when = self.when.map_or(String::new(), |when| format!(" when {}", escape(when)));
        format!("{items}{only}{when}")
    }

    fn as_json(&self) -> serde_json::Value {
        json!({
            "kind": kind_word(self.kind).to_lowercase().replace(' ', "_"),
            "widens": self.kind.widens(),
            "tenants": self.tenants,
            "roles": self.who.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>(),
            "caller": self.who.caller.as_ref().map(|caller| caller.as_str()),
            "keyAlone": self.who.key,
            "employee": self.who.employee.as_ref().map(|employee| employee.as_str()),
            "about": about_word(self.about),
            "family": match self.about {
                About::Item(family) => Some(family.key()),
                _ => None,
            },
            "items": self.items,
            "where": self.only,
            "when": self.when,
        })
    }
}

fn about_word(about: About) -> &'static str {
    match about {
        About::Item(_) => "item",
        About::Hosts => "self_service.hosts",
        About::Sharing => "self_service.share",
        About::Number => "self_service.max_each",
        About::Approving => "self_service.default.pin",
    }
}

fn kind_word(kind: DifferenceKind) -> &'static str {
    match kind {
        DifferenceKind::Widened => "WIDENED",
        DifferenceKind::Narrowed => "NARROWED",
        DifferenceKind::ApprovalAdded => "APPROVAL ADDED",
        DifferenceKind::ApprovalRemoved => "APPROVAL REMOVED",
        DifferenceKind::ApprovalChanged => "APPROVAL CHANGED",
    }
}

fn who_text(who: &Seer) -> String {
    if let Some(employee) = &who.employee {
        return format!("employee {employee}");
    }
    let roles: Vec<_> = who.roles.iter().map(|role| role.as_str()).collect();
    let people = match (roles.as_slice(), who.key) {
        (_, true) => "the key alone".to_owned(),
        ([], false) => "everybody".to_owned(),
        (roles, false) => roles.join("+"),
    };
    match &who.caller {
        Some(caller) => format!("{people} by {caller}"),
        None => people,
    }
}
