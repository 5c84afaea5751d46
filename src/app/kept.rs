//! What was enforced of policies, kept on disk beside the audit file.
//!
//! A file in `mode: shadow` is decided by its last enforced text, also after a restart, so that
//! text has to outlive the process. The files of the last revisions are kept with it, exactly as
//! they were. Texts are kept once, by their digest; whoever changes one by hand makes it useless.
//! What is kept is not policy: only the policy folder says which files there are.

use std::{
    collections::HashSet,
    fmt::Write as _,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use crate::{
    fault::Source,
    model::trace::to_hex,
    policy::{HeldFile, PolicyFile},
};

/// Revisions whose files are kept.
const REVISIONS: usize = 20;

/// The folder where it is kept: `enforced` and `revisions/` name texts in `texts/`.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    /// Texts that are there.
    texts: HashSet<String>,
}

// === impl Kept ===

impl Kept {
    /// The folder of this audit file: its name and `.policies`.
    pub fn beside(audit: &Path) -> Self {
        let mut name = audit.as_os_str().to_owned();
        name.push(".policies");
        Self { folder: name.into(), texts: HashSet::new() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was last enforced of each file; nothing, where nothing was ever kept.
    ///
    /// # Errors
    /// It is there and cannot be read, or is not as it was written.
    pub fn enforced(&self) -> io::Result<Vec<PolicyFile>> {
        let files = self.listed("enforced", |path| format!("{path} (as last enforced)"))?;
        Ok(files.unwrap_or_default())
    }

    /// The revisions that are kept, oldest first, with the time of each in milliseconds.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn revisions(&self) -> io::Result<Vec<(u64, String)>> {
        let names = match names(&self.folder.join("revisions")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        let parted = |name: String| {
            let (ms, revision) = name.split_once('-')?;
            Some((ms.parse().ok()?, revision.to_owned()))
        };
        Ok(names.into_iter().filter_map(parted).collect())
    }

    /// The files of a kept revision, by path; of several times the last. `None`: it is not kept.
    ///
    /// # Errors
    /// It is there and cannot be read, or is not as it was written.
    pub fn revision(&self, revision: &str) -> io::Result<Option<Vec<PolicyFile>>> {
        let kept = self.revisions()?;
        let Some((ms, _)) = kept.iter().rev().find(|(_, kept)| kept == revision) else {
            return Ok(None);
        };
        self.listed(&format!("revisions/{ms:014}-{revision}"), str::to_owned)
    }

    /// The files that a list names; `None` where there is no such list.
    fn listed(
        &self,
        list: &str,
        name: impl Fn(&str) -> String,
    ) -> io::Result<Option<Vec<PolicyFile>>> {
        let lines = match fs::read_to_string(self.folder.join(list)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lines => lines?,
        };
        let read = |line: &str| {
            let (digest, path) = line.split_once(' ').ok_or_else(|| broken(list))?;
            let text = fs::read_to_string(self.folder.join("texts").join(digest))?;
            if to_hex(&Sha256::digest(&text)) != digest {
                return Err(broken(digest));
            }
            let source = Source { name: name(path), text };
            Ok(PolicyFile { path: path.to_owned(), source: Arc::new(source) })
        };
        lines.lines().map(read).collect::<io::Result<Vec<_>>>().map(Some)
    }

    /// Keeps a revision that was applied, and what is enforced by it.
    ///
    /// # Errors
    /// Something could not be written; what was kept before is as it was.
    pub fn keep<'a>(
        &mut self,
        now_ms: u64,
        revision: &str,
        files: impl Iterator<Item = HeldFile<'a>>,
        enforced: impl Iterator<Item = HeldFile<'a>>,
    ) -> io::Result<()> {
        for folder in ["texts", "revisions"] {
            create(&self.folder.join(folder))?;
        }
        let files = self.list(files)?;
        let enforced = self.list(enforced)?;
        self.write("enforced", &enforced)?;
        let mut revisions = names(&self.folder.join("revisions"))?;
        // A restart applies what was applied.
        let named = |name: &String| name.ends_with(&format!("-{revision}"));
        if !revisions.last().is_some_and(named) {
            let name = format!("{now_ms:014}-{revision}");
            self.write(&format!("revisions/{name}"), &files)?;
            revisions.push(name);
            revisions.sort();
        }
        let surplus = revisions.len().saturating_sub(REVISIONS);
        if surplus > 0 {
            for name in revisions.drain(..surplus) {
                fs::remove_file(self.folder.join("revisions").join(name))?;
            }
            self.forget_texts(&revisions)?;
        }
        Ok(())
    }

    /// Writes the texts that are not there yet; gives a list of all, by path.
    fn list<'a>(&mut self, files: impl Iterator<Item = HeldFile<'a>>) -> io::Result<String> {
        let mut files: Vec<_> = files.collect();
        files.sort_by_key(|file| file.path);
        let mut list = String::new();
        for file in files {
            let digest = to_hex(file.digest);
            if !self.texts.contains(&digest) {
                let name = format!("texts/{digest}");
                let there = fs::metadata(self.folder.join(&name));
                if !there.is_ok_and(|there| there.len() == file.text.len() as u64) {
                    self.write(&name, file.text)?;
                }
                self.texts.insert(digest.clone());
            }
            // Into memory: it does not fail.
            let _ = writeln!(list, "{digest} {}", file.path);
        }
        Ok(list)
    }

    /// Removes texts that no list names.
    fn forget_texts(&mut self, revisions: &[String]) -> io::Result<()> {
        let mut named = HashSet::new();
        let lists = revisions.iter().map(|name| format!("revisions/{name}"));
        for list in lists.chain(["enforced".to_owned()]) {
            let list = fs::read_to_string(self.folder.join(list))?;
            let digests = list.lines().filter_map(|line| line.split_once(' '));
            named.extend(digests.map(|(digest, _)| digest.to_owned()));
        }
        for name in names(&self.folder.join("texts"))? {
            if !named.contains(&name) {
                fs::remove_file(self.folder.join("texts").join(&name))?;
                self.texts.remove(&name);
            }
        }
        Ok(())
    }

    /// Writes a file whole, or not at all.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        // While one process takes over from another, both write here.
        let beside = self.folder.join(format!("unfinished-{}", std::process::id()));
        let mut file = fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(beside, self.folder.join(name))
    }
}

/// Employees stand in these files: nobody else need read them.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let name =
        |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names = fs::read_dir(folder)?.map(name).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn broken(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("`{name}` is not as it was written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(path: &'a str, text: &'a str, digest: &'a [u8; 32]) -> HeldFile<'a> {
        HeldFile { path, text, digest }
    }

    #[test]
    fn what_was_enforced_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let audit = folder.path().join("audit.jsonl");
        assert!(Kept::beside(&audit).enforced().unwrap().is_empty());
        let digest: [u8; 32] = Sha256::digest("one").into();
        let one = || std::iter::once(file("tenants/a b.yaml", "one", &digest));
        Kept::beside(&audit).keep(1, "abc", one(), one()).unwrap();
        let read = Kept::beside(&audit).enforced().unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!((&*read[0].path, &*read[0].source.text), ("tenants/a b.yaml", "one"));
        // Whoever changes it by hand has not enforced it.
        let kept = Kept::beside(&audit);
        fs::write(kept.folder().join("texts").join(to_hex(&digest)), "two").unwrap();
        assert_eq!(kept.enforced().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_last_revisions_are_kept_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::beside(&folder.path().join("audit.jsonl"));
        for round in 0..30_u64 {
            let text = format!("text {round}");
            let digest: [u8; 32] = Sha256::digest(&text).into();
            let one = || std::iter::once(file("a.yaml", &text, &digest));
            // Each twice, as after a restart.
            kept.keep(round, &format!("r{round}"), one(), one()).unwrap();
            kept.keep(round, &format!("r{round}"), one(), one()).unwrap();
        }
        let last = kept.revision("r29").unwrap().unwrap();
        assert_eq!((&*last[0].path, &*last[0].source.text), ("a.yaml", "text 29"));
        assert!(kept.revision("r9").unwrap().is_none() && kept.revision("../x").unwrap().is_none());
        assert_eq!(kept.revisions().unwrap().last().unwrap(), &(29, "r29".to_owned()));
        let revisions = names(&kept.folder().join("revisions")).unwrap();
        assert_eq!(revisions.len(), REVISIONS);
        assert!(revisions[0].ends_with("-r10") && revisions[19].ends_with("-r29"));
        assert_eq!(names(&kept.folder().join("texts")).unwrap().len(), REVISIONS);
    }
}
