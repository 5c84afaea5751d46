//! Names on the aggregate, where every upstream's things stand side by side.
//!
//! A pure function of what is listed, so that every replica comes to the same names. Nothing is
//! read back out of a name: the catalog looks names up.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::model::{server::UpstreamName, trace::to_hex};

/// The longest name that every client takes.
pub const NAME_MAX: usize = 64;
/// Between an upstream's name and a tool's or prompt's.
pub(super) const SEPARATOR: &str = "__";
/// Between an upstream's name and a URI: legal in a scheme, and in no upstream's name.
const URI_SEPARATOR: char = '+';

/// How tools and prompts are named on the aggregate. Resources always carry their upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// `upstream__name`.
    #[default]
    Always,
    /// The plain name while only one upstream lists it, `upstream__name` for each that shares it.
    Conflict,
    /// The plain name; of upstreams that share one, only the first's is there.
    Never,
}

/// Which names the aggregate gives to the things of one family.
pub(super) struct Namer<'a> {
    names: Names,
    upstreams: Vec<&'a UpstreamName>,
    /// How many upstreams list a name.
    listed_by: HashMap<&'a str, usize>,
}

impl<'a> Namer<'a> {
    pub fn new(names: Names, upstreams: Vec<&'a UpstreamName>) -> Self {
        Self { names, upstreams, listed_by: HashMap::new() }
    }

    /// Notes that an upstream lists a name. An upstream lists each name once.
    pub fn note(&mut self, own: &'a str) {
        if self.names == Names::Conflict {
            *self.listed_by.entry(own).or_default() += 1;
        }
    }

    pub fn alias(&self, upstream: &UpstreamName, own: &str) -> String {
        match self.names {
            Names::Always => prefixed(upstream, own),
            Names::Conflict => {
                let alone = self.listed_by.get(own).is_none_or(|upstreams| *upstreams < 2);
                // What begins as a name with its upstream would keeps that form for itself.
                let taken = self.upstreams.iter().any(|name| {
                    own.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(SEPARATOR))
                });
                if alone && !taken && is_legal(own) { own.into() } else { prefixed(upstream, own) }
            }
            Names::Never => {
                if is_legal(own) && !ends_hashed(own) {
                    own.into()
                } else {
                    hashed(own, own)
                }
            }
        }
    }
}

fn legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

fn is_legal(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(legal)
}

/// `upstream__name`, or where that is no name that every client takes, a name with a stable hash.
///
/// A hash is also given to a name that already ends as such a hash would, so that no two things
/// share one.
fn prefixed(upstream: &UpstreamName, own: &str) -> String {
    let plain = format!("{upstream}{SEPARATOR}{own}");
    if is_legal(&plain) && !own.is_empty() && !ends_hashed(own) {
        return plain;
    }
    hashed(&plain, own)
}

fn hashed(plain: &str, own: &str) -> String {
    let digest = Sha256::digest(own.as_bytes());
    let hash = to_hex(&digest[..4]);
    let mut name: String = plain.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    name.truncate(NAME_MAX - 1 - hash.len());
    format!("{name}_{hash}")
}

/// Whether a name ends as a hashed one does: only then could the two meet.
fn ends_hashed(own: &str) -> bool {
    let Some((_, end)) = own.rsplit_once('_') else { return false };
    end.len() == 8 && end.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
}

// === URIs ===

/// An upstream's name as a URI may begin with it.
pub(super) fn written(upstream: &UpstreamName) -> String {
    // A scheme holds no underscore, and a serverKey does.
    upstream.as_str().replace('_', ".")
}

/// A URI, or a template of one, on the aggregate: its upstream, and all of it as it is. What has
/// no scheme, or is no URI at all, is treated alike: nothing of it has to be understood.
pub(super) fn public_uri(written: &str, own: &str) -> String {
    format!("{written}{URI_SEPARATOR}{own}")
}

/// What stands where an upstream would, and the rest. Whether it is one, a table says.
pub(super) fn parts(uri: &str) -> Option<(&str, &str)> {
    uri.split_once(URI_SEPARATOR)
}
