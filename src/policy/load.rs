//! The policy folder: every `*.yaml` below it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Policies, PolicyFile};
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
        let mut faults = Faults::new();
        let mut paths = Vec::new();
        walk(folder, 0, &mut paths, &mut faults);
        paths.sort();
        let files: Vec<PolicyFile> =
            paths.iter().filter_map(|path| read(folder, path, &mut faults)).collect();
        let count = files.len();
        let (policies, found) = Policies::compile(files);
        faults.extend(found);
        let policies = policies.filter(|_| !faults.has_errors());
        Loaded { policies, faults: faults.into_sorted(), files: count }
    }
}

fn walk(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>, faults: &mut Faults) {
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
            Ok(_) if name.ends_with(".yaml") => paths.push(path),
            Ok(_) if name.ends_with(".yml") => {
                let message = "this file is not read: policy files end in `.yaml`";
                faults.add(FaultCode::IgnoredFile, &at(&path), message);
            }
            Ok(_) => {}
            Err(error) => unreadable(&path, &error, faults),
        }
    }
}

fn read(folder: &Path, path: &Path, faults: &mut Faults) -> Option<PolicyFile> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let inside = path.strip_prefix(folder).unwrap_or(path);
            let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
            let source = Arc::new(Source { name: path.display().to_string(), text });
            Some(PolicyFile { path: parts.join("/"), source })
        }
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
