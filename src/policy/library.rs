//! Files to policies, reading only what changed.
//!
//! A library remembers what it read of each file and what it made of each scope, so that a change
//! of one tenant's file costs that file and that tenant. What comes out never depends on what is
//! remembered.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{
    Language, Policies, PolicyFile, Scope,
    classes::Classes,
    compile::Compiled,
    document::{Case, Directory, Document, PolicyDocument},
    load::Folder,
    names::Names,
    scope::{RoleBook, ScopeRules},
};
use crate::{
    fault::{Fault, FaultCode, Faults, Severity, Source, Span},
    yaml,
};

/// Threads that read files at once.
const MAX_THREADS: usize = 8;

/// Reads policies again and again.
#[derive(Debug)]
pub struct Library {
    language: Language,
    names: Names,
    pub(super) folder: Folder,
    /// By path.
    files: HashMap<String, Arc<File>>,
    /// The last text of each file that was enforced.
    enforced: HashMap<String, Arc<File>>,
    scopes: HashMap<Scope, Kept>,
    classes: (Key, Arc<HashMap<Arc<str>, Classes>>),
    directory: (Key, Arc<Directory>),
    serial: usize,
}

/// What one file says.
#[derive(Debug)]
struct File {
    /// No two readings have the same.
    serial: usize,
    source: Arc<Source>,
    digest: [u8; 32],
    documents: Vec<Document>,
    faults: Vec<Fault>,
}

/// What is enforced of files.
#[derive(Debug, Clone)]
pub struct Enforced(HashMap<String, Arc<File>>);

/// A file of a library.
#[derive(Debug, Clone, Copy)]
pub struct HeldFile<'a> {
    /// Its path within the folder.
    pub path: &'a str,
    pub text: &'a str,
    /// SHA-256 of the text.
    pub digest: &'a [u8; 32],
}

/// Documents by their file's serial and their place in it.
type Key = Vec<(usize, usize)>;

/// A scope without faults.
#[derive(Debug)]
struct Kept {
    own: Key,
    platform: Key,
    rules: Arc<ScopeRules>,
}

/// Documents of one kind, sorted out.
#[derive(Default)]
struct Sorted<'f> {
    scopes: BTreeMap<&'f Scope, (Key, Vec<&'f PolicyDocument>)>,
    classes: (Key, Vec<&'f Document>),
    directory: (Key, Vec<&'f Document>),
}

// === impl Library ===

impl Default for Library {
    fn default() -> Self {
        Self::new(Language::Present)
    }
}

impl Library {
    pub fn new(language: Language) -> Self {
        Self {
            language,
            names: Names::default(),
            folder: Folder::default(),
            files: HashMap::new(),
            enforced: HashMap::new(),
            scopes: HashMap::new(),
            classes: Default::default(),
            directory: Default::default(),
            serial: 0,
        }
    }

    /// Compiles files. There are policies unless there is an error; warnings come beside them.
    ///
    /// A file in `mode: shadow` is not enforced: what this library last enforced of it stays in
    /// force, and nothing if there was none. The policies know what all files together would say.
    pub fn compile(&mut self, mut sources: Vec<PolicyFile>) -> (Option<Policies>, Vec<Fault>) {
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        let files = self.read(&sources);
        let mut faults = Faults::new();
        for file in &files {
            faults.extend(file.faults.iter().cloned());
        }
        let revision = revision(&sources, &files);
        let shadow = files.iter().any(|file| file.is_shadow());
        let enforced: Vec<_> = sources
            .iter()
            .zip(&files)
            .filter_map(|(source, file)| match file.is_shadow() {
                true => self.enforced.get(&source.path).cloned(),
                false => Some(file.clone()),
            })
            .collect();
        let nothing = |source: &PolicyFile| !self.enforced.contains_key(&source.path);
        for (_, file) in sources.iter().zip(&files).filter(|(source, _)| nothing(source)) {
            if let Some(at) = file.shadow() {
                let message = "nothing of this file is enforced: it is in shadow, and never was in \
                               force";
                faults.add(FaultCode::ShadowOfNothing, at, message);
            }
        }
        let compiled = self.assemble(&enforced, revision.clone(), &mut faults);
        let shadow = shadow.then(|| {
            // What is kept is what is enforced.
            let mut apart = Library { serial: self.serial, ..Library::new(self.language) };
            Arc::new(apart.assemble(&files, revision, &mut faults))
        });
        let cases: Vec<Arc<Case>> = files.iter().flat_map(|file| file.cases()).cloned().collect();
        if faults.has_errors() {
            return (None, faults.into_sorted());
        }
        for (source, file) in sources.iter().zip(&files).filter(|(_, file)| !file.is_shadow()) {
            self.enforced.insert(source.path.clone(), file.clone());
        }
        self.enforced.retain(|path, _| self.files.contains_key(path));
        self.names.tidy();
        let policies = Policies { enforced: Arc::new(compiled), shadow, cases: cases.into() };
        (Some(policies), faults.into_sorted())
    }

    /// Takes over what was enforced before this library was there. A file that is no good, or is
    /// in shadow itself, was not.
    pub fn remember(&mut self, files: Vec<PolicyFile>) {
        for PolicyFile { path, source } in files {
            self.serial += 1;
            let file = File::read(self.serial, &source, self.language, &self.names);
            if !file.is_shadow() && file.faults.iter().all(|f| f.severity() != Severity::Error) {
                self.enforced.insert(path, Arc::new(file));
            }
        }
        self.serial += 1;
    }

    /// What is enforced of each file, also of those that are in shadow by now.
    pub fn enforced(&self) -> Enforced {
        Enforced(self.enforced.clone())
    }

    /// Goes back to what was enforced: what was compiled since did not come into force.
    pub fn back_to(&mut self, enforced: Enforced) {
        self.enforced = enforced.0;
    }

    /// The files as they were read last.
    pub fn files(&self) -> impl Iterator<Item = HeldFile<'_>> {
        self.files.iter().map(held)
    }

    /// Another number whenever a file was read anew, or is gone.
    pub fn reading(&self) -> u64 {
        let mut serials: Vec<_> = self.files.values().map(|file| file.serial).collect();
        serials.sort_unstable();
        let mut hasher = DefaultHasher::new();
        serials.hash(&mut hasher);
        hasher.finish()
    }

    /// Every file as it is, read again only where its text changed.
    fn read(&mut self, sources: &[PolicyFile]) -> Vec<Arc<File>> {
        let known = |source: &PolicyFile| {
            let file = self.files.get(&source.path)?;
            let same = Arc::ptr_eq(&file.source, &source.source) || file.source == source.source;
            same.then(|| file.clone())
        };
        let mut files: Vec<Option<Arc<File>>> = sources.iter().map(known).collect();
        let changed = files.iter().zip(sources).enumerate();
        let changed = changed.filter(|(_, (file, _))| file.is_none());
        let changed: Vec<_> = changed.map(|(index, (_, source))| (index, source)).collect();
        let (serial, language, names) = (self.serial, self.language, &self.names);
        let read = |(index, source): &(usize, &PolicyFile)| {
            Arc::new(File::read(serial + index, &source.source, language, names))
        };
        for (index, file) in in_parallel(&changed, read) {
            if let Some(slot) = files.get_mut(index) {
                *slot = Some(file);
            }
        }
        self.serial += sources.len();
        let files: Vec<_> = files.into_iter().flatten().collect();
        let named = sources.iter().map(|source| source.path.clone());
        self.files = named.zip(files.iter().cloned()).collect();
        files
    }

    /// Puts files together. With an error among the faults the outcome is of no use.
    fn assemble(
        &mut self,
        files: &[Arc<File>],
        revision: Arc<str>,
        faults: &mut Faults,
    ) -> Compiled {
        let sorted = Sorted::new(files);
        let (none, nothing) = (Key::new(), Vec::new());
        let platform = sorted.scopes.get(&Scope::Platform);
        let (platform_key, documents) =
            platform.map_or((&none, &nothing), |(key, documents)| (key, documents));
        let platform = match self.scopes.get(&Scope::Platform) {
            Some(kept) if kept.own == *platform_key => kept.rules.clone(),
            _ => {
                let mut own = Faults::new();
                let rules = Arc::new(ScopeRules::new(documents, &mut own));
                RoleBook { platform: &rules, own: None }.check(&mut own);
                self.keep(Scope::Platform, platform_key, platform_key, &rules, own, faults);
                rules
            }
        };
        let mut tenants = BTreeMap::new();
        for (scope, (key, documents)) in &sorted.scopes {
            let Some(tenant) = scope.tenant() else { continue };
            let kept = self.scopes.get(*scope).filter(|kept| kept.own == *key);
            let rules = match kept {
                Some(kept) if kept.platform == *platform_key => kept.rules.clone(),
                kept => {
                    let mut own = Faults::new();
                    let rules = kept.map(|kept| kept.rules.clone());
                    let rules =
                        rules.unwrap_or_else(|| Arc::new(ScopeRules::new(documents, &mut own)));
                    rules.check_beside(&platform, &mut own);
                    if !rules.roles.is_empty() {
                        RoleBook { platform: &platform, own: Some(&rules) }.check(&mut own);
                    }
                    self.keep((*scope).clone(), key, platform_key, &rules, own, faults);
                    rules
                }
            };
            tenants.insert(tenant.clone(), rules);
        }
        self.scopes.retain(|scope, _| sorted.scopes.contains_key(scope));
        Compiled {
            revision,
            platform,
            tenants,
            upstreams: self.classes(sorted.classes, faults),
            directory: self.directory(sorted.directory, faults),
            personal: None,
            operators: Arc::default(),
        }
    }

    fn keep(
        &mut self,
        scope: Scope,
        own: &Key,
        platform: &Key,
        rules: &Arc<ScopeRules>,
        found: Faults,
        faults: &mut Faults,
    ) {
        if found.is_empty() {
            let kept = Kept { own: own.clone(), platform: platform.clone(), rules: rules.clone() };
            self.scopes.insert(scope, kept);
        } else {
            self.scopes.remove(&scope);
            faults.extend(found.into_sorted());
        }
    }

    fn classes(
        &mut self,
        (key, documents): (Key, Vec<&Document>),
        faults: &mut Faults,
    ) -> Arc<HashMap<Arc<str>, Classes>> {
        if self.classes.0 != key {
            let mut own = Faults::new();
            let mut upstreams = HashMap::new();
            for document in documents {
                if let Document::Tools(tools) = document {
                    tools.iter().for_each(|tools| Classes::add(&mut upstreams, tools, &mut own));
                }
            }
            upstreams.values().for_each(|classes| classes.check_whole(&mut own));
            let upstreams = Arc::new(upstreams);
            if !own.is_empty() {
                faults.extend(own.into_sorted());
                return upstreams;
            }
            self.classes = (key, upstreams);
        }
        self.classes.1.clone()
    }

    fn directory(
        &mut self,
        (key, documents): (Key, Vec<&Document>),
        faults: &mut Faults,
    ) -> Arc<Directory> {
        if self.directory.0 != key {
            let mut own = Faults::new();
            let mut directory = Directory::default();
            for document in documents {
                let Document::Directory(employees) = document else { continue };
                for employee in employees {
                    let known = directory.employees.get(&employee.id);
                    if let Some(first) = known {
                        let message = format!("employee `{}` is here twice", employee.id);
                        let fault = own.add(FaultCode::EmployeeTwice, &employee.at, message);
                        fault.relate(&first.at, "here the first time");
                        continue;
                    }
                    directory.employees.insert(employee.id.clone(), employee.clone());
                }
            }
            let directory = Arc::new(directory);
            if !own.is_empty() {
                faults.extend(own.into_sorted());
                return directory;
            }
            self.directory = (key, directory);
        }
        self.directory.1.clone()
    }
}

/// The first 12 hex digits of the digest over paths and texts: the same files, the same revision.
/// Files that only test decide nothing and are left out.
fn revision(sources: &[PolicyFile], files: &[Arc<File>]) -> Arc<str> {
    let mut digest = Sha256::new_with_prefix(b"hangu.policy.v2");
    for (source, file) in sources.iter().zip(files).filter(|(_, file)| !file.only_tests()) {
        digest.update((source.path.len() as u64).to_be_bytes());
        digest.update(&source.path);
        digest.update(file.digest);
    }
    digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Reads each of the files, with as many threads as are of use.
fn in_parallel<T: Sync>(
    work: &[(usize, T)],
    read: impl Fn(&(usize, T)) -> Arc<File> + Sync,
) -> Vec<(usize, Arc<File>)> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // A thread of its own is worth some files.
    let threads = cores.min(MAX_THREADS).min(work.len() / 4);
    if threads < 2 {
        return work.iter().map(|item| (item.0, read(item))).collect();
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(work.len())));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let file = read(item);
                    done.lock().push((item.0, file));
                }
            });
        }
    });
    done.into_inner()
}

// === impl Enforced ===

impl Enforced {
    pub fn files(&self) -> impl Iterator<Item = HeldFile<'_>> {
        self.0.iter().map(held)
    }
}

fn held<'a>((path, file): (&'a String, &'a Arc<File>)) -> HeldFile<'a> {
    HeldFile { path, text: &file.source.text, digest: &file.digest }
}

// === impl File ===

impl File {
    fn read(serial: usize, source: &Arc<Source>, language: Language, names: &Names) -> Self {
        let mut faults = Faults::new();
        let mut documents = Vec::new();
        match yaml::parse(source) {
            Ok(nodes) => {
                let read = nodes.iter().filter_map(|n| Document::read(n, language, &mut faults));
                documents.extend(read);
            }
            Err(fault) => faults.extend([fault]),
        }
        for document in &mut documents {
            let Document::Policy(policy) = document else { continue };
            // Nobody else has them yet.
            policy.rules.iter_mut().filter_map(Arc::get_mut).for_each(|rule| names.share(rule));
            policy.rules.shrink_to_fit();
        }
        let digest = Sha256::digest(&source.text).into();
        Self { serial, source: source.clone(), digest, documents, faults: faults.into_sorted() }
    }

    fn cases(&self) -> impl Iterator<Item = &Arc<Case>> {
        self.documents.iter().flat_map(|document| match document {
            Document::Cases(cases) => cases.as_slice(),
            _ => &[],
        })
    }

    fn only_tests(&self) -> bool {
        let tests = |document: &Document| matches!(document, Document::Cases(_));
        !self.documents.is_empty() && self.documents.iter().all(tests)
    }

    /// A file is looked at or enforced as a whole.
    fn is_shadow(&self) -> bool {
        self.shadow().is_some()
    }

    /// Where it says that it is only to be looked at.
    fn shadow(&self) -> Option<&Span> {
        self.documents.iter().find_map(|document| match document {
            Document::Policy(policy) => policy.shadow.as_ref(),
            _ => None,
        })
    }
}

// === impl Sorted ===

impl<'f> Sorted<'f> {
    fn new(files: &'f [Arc<File>]) -> Self {
        let mut sorted = Self::default();
        for file in files {
            for (index, document) in file.documents.iter().enumerate() {
                let key = (file.serial, index);
                let slot = match document {
                    Document::Policy(policy) => {
                        let (keys, documents) = sorted.scopes.entry(&policy.scope).or_default();
                        keys.push(key);
                        documents.push(policy);
                        continue;
                    }
                    Document::Tools(_) => &mut sorted.classes,
                    Document::Directory(_) => &mut sorted.directory,
                    Document::Cases(_) => continue,
                };
                slot.0.push(key);
                slot.1.push(document);
            }
        }
        sorted
    }
}
