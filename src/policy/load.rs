//! The policy folder: every `*.yaml` below it.

use std::{
    collections::HashMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Library, Policies, PolicyFile};
use crate::fault::{Fault, FaultCode, Faults, Severity, Source, Span};

/// How deep folders are looked into. A link that leads back up ends here.
const MAX_DEPTH: usize = 8;

/// What a look at a policy folder found.
#[derive(Debug)]
pub struct Loaded {
    /// `None` if there was an error.
    pub policies: Option<Policies>,
    pub faults: Vec<Fault>,
    pub files: usize,
}

impl Policies {
    /// Loads a folder, or tells every fault in it. Warnings do not stop it, and are not told.
    pub fn load(folder: &Path) -> Result<Policies, Vec<Fault>> {
        let loaded = Self::look(folder);
        loaded.policies.ok_or_else(|| {
            let errors = loaded.faults.into_iter();
            errors.filter(|fault| fault.severity() == Severity::Error).collect()
        })
    }

    /// Loads a folder and tells everything about it.
    pub fn look(folder: &Path) -> Loaded {
        Library::default().look(folder)
    }
}

impl Library {
    /// Loads a folder and tells everything about it. A file that has not changed since the last
    /// time is not read again.
    pub fn look(&mut self, folder: &Path) -> Loaded {
        let mut faults = Faults::new();
        let files = self.folder.read(folder, &mut faults);
        let count = files.len();
        let (policies, found) = self.compile(files);
        faults.extend(found);
        let policies = policies.filter(|_| !faults.has_errors());
        Loaded { policies, faults: faults.into_sorted(), files: count }
    }
}

/// Every policy file of a folder, by path, or why they cannot be told.
pub fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, Vec<Fault>> {
    let (mut paths, mut faults) = (Vec::new(), Faults::new());
    walk(folder, 0, &mut paths, &mut faults);
    if faults.has_errors() {
        return Err(faults.into_sorted());
    }
    let mut paths: Vec<PathBuf> = paths.into_iter().map(|(path, _)| path).collect();
    paths.sort();
    Ok(paths)
}

/// What a folder looks like, without reading its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// Changes with any file, as far as the file system tells.
    pub files: u64,
    /// Changes where a folder was put in the place of another.
    pub folders: u64,
}

impl Glance {
    pub fn at(folder: &Path) -> Self {
        let (mut paths, mut faults) = (Vec::new(), Faults::new());
        walk(folder, 0, &mut paths, &mut faults);
        paths.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (mut files, mut folders) = (DefaultHasher::new(), DefaultHasher::new());
        let place = |folder: &Path| fs::metadata(folder).ok().map(|meta| Stamp::of(&meta).place);
        place(folder).hash(&mut folders);
        let mut last = folder;
        for (path, stamp) in &paths {
            (path, stamp).hash(&mut files);
            let parent = path.parent().unwrap_or(folder);
            if parent != last {
                (parent, place(parent)).hash(&mut folders);
                last = parent;
            }
        }
        for fault in faults.iter() {
            fault.message.hash(&mut files);
        }
        Self { files: files.finish(), folders: folders.finish() }
    }
}

// === impl Folder ===

/// What was read of a folder.
#[derive(Debug, Default)]
pub(super) struct Folder {
    known: HashMap<PathBuf, (Stamp, Arc<Source>)>,
    /// When the youngest of the files was changed, as the file system tells time.
    youngest: Option<SystemTime>,
}

/// By what a change of a file shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stamp {
    changed: Option<SystemTime>,
    modified: Option<SystemTime>,
    length: u64,
    place: (u64, u64),
}

/// A file system's time may stand still for so long: a file that was changed as late as the
/// youngest could have been changed again since it was read, and show the same stamp.
const TICK: Duration = Duration::from_secs(2);

impl Folder {
    fn read(&mut self, folder: &Path, faults: &mut Faults) -> Vec<PolicyFile> {
        let mut paths = Vec::new();
        walk(folder, 0, &mut paths, faults);
        paths.sort_by(|(a, _), (b, _)| a.cmp(b));
        let settled = |stamp: &Stamp| {
            let until = stamp.changed.and_then(|changed| changed.checked_add(TICK));
            until.zip(self.youngest).is_some_and(|(until, youngest)| until < youngest)
        };
        let mut known = HashMap::with_capacity(paths.len());
        let mut files = Vec::with_capacity(paths.len());
        for (path, stamp) in paths {
            let source = match self.known.get(&path) {
                Some((before, source)) if *before == stamp && settled(&stamp) => source.clone(),
                _ => match read(&path, faults) {
                    Some(source) => source,
                    None => continue,
                },
            };
            let inside = path.strip_prefix(folder).unwrap_or(&path);
            let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
            files.push(PolicyFile { path: parts.join("/"), source: source.clone() });
            known.insert(path, (stamp, source));
        }
        self.youngest = known.values().filter_map(|(stamp, _)| stamp.changed).max();
        self.known = known;
        files
    }
}

impl Stamp {
    #[cfg(unix)]
    fn of(meta: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let seconds = u64::try_from(meta.ctime()).ok();
        let nanos = u32::try_from(meta.ctime_nsec()).unwrap_or(0);
        let changed =
            seconds.and_then(|s| SystemTime::UNIX_EPOCH.checked_add(Duration::new(s, nanos)));
        let modified = meta.modified().ok();
        Self { changed, modified, length: meta.len(), place: (meta.dev(), meta.ino()) }
    }

    #[cfg(not(unix))]
    fn of(meta: &fs::Metadata) -> Self {
        let modified = meta.modified().ok();
        Self { changed: modified, modified, length: meta.len(), place: (0, 0) }
    }
}

fn walk(folder: &Path, depth: usize, paths: &mut Vec<(PathBuf, Stamp)>, faults: &mut Faults) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return unreadable(folder, &error, faults),
    };
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => return unreadable(folder, &error, faults),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Also what Kubernetes keeps beside the links that it swaps.
        if name.starts_with('.') {
            continue;
        }
        // Follows links: there, every file is one.
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() && depth < MAX_DEPTH => walk(&path, depth + 1, paths, faults),
            Ok(meta) if meta.is_dir() => {
                let message = format!("folders below {MAX_DEPTH} levels are not looked into");
                faults.add(FaultCode::Unreadable, &at(&path), message);
            }
            Ok(meta) if name.ends_with(".yaml") => paths.push((path, Stamp::of(&meta))),
            Ok(_) if name.ends_with(".yml") => {
                let message = "this file is not read: policy files end in `.yaml`";
                faults.add(FaultCode::IgnoredFile, &at(&path), message);
            }
            Ok(_) => {}
            Err(error) => unreadable(&path, &error, faults),
        }
    }
}

fn read(path: &Path, faults: &mut Faults) -> Option<Arc<Source>> {
    match fs::read_to_string(path) {
        Ok(text) => Some(Arc::new(Source { name: path.display().to_string(), text })),
        Err(error) => {
            unreadable(path, &error, faults);
            None
        }
    }
}

fn unreadable(path: &Path, error: &io::Error, faults: &mut Faults) {
    faults.add(FaultCode::Unreadable, &at(path), format!("cannot be read: {error}"));
}

fn at(path: &Path) -> Span {
    Span::file(path.display().to_string())
}
