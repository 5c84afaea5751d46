//! The file behind the log, and what the end of an earlier log says.
//!
//! Lines are only ever added. Nothing that is in the file is changed or cut off, not even a line
//! that a crash has torn.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use super::chain::Hash;

/// Where lines go; in tests, something that fails on demand.
pub(super) trait Storage: Send {
    /// Adds bytes at the end; may take fewer than it is given.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Waits until all that was written is on disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Opens what bears the name now.
    fn reopen(&mut self) -> io::Result<()>;
}

/// What the last whole line of an earlier log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tail {
    pub hash: Option<Hash>,
    /// The number in the chain's id.
    pub number: Option<u64>,
    /// What stands at the end is no whole line.
    pub torn: bool,
}

/// A file that lines are added to.
pub(super) struct File {
    path: PathBuf,
    file: fs::File,
}

/// More than the longest line.
const TAIL: u64 = 256 << 10;

// === impl File ===

impl File {
    /// Opens the file, creating it and its folder if need be, and reads its end.
    pub fn open(path: &Path) -> io::Result<(Self, Tail)> {
        let file = append(path)?;
        let mut tail = Tail::read(path)?;
        if tail.torn {
            // Another process may be in the middle of a line, when it hands over to this one.
            std::thread::sleep(Duration::from_millis(20));
            tail = Tail::read(path)?;
        }
        Ok((Self { path: path.into(), file }, tail))
    }
}

impl Storage for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.file.sync_data() {
            // A pipe or a device has nothing to sync.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = append(&self.path)?;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    let mut folder = DirBuilder::new();
    folder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        options.mode(0o640);
        folder.mode(0o750);
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.create(parent)?;
    }
    let is_new = !path.exists();
    let file = options.open(path)?;
    if is_new {
        // Else a power failure could take the whole file, however often it was synced.
        sync_folder(path)?;
    }
    Ok(file)
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

// === impl Tail ===

impl Tail {
    fn read(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Ok(Self::default());
        }
        let mut file = fs::File::open(path)?;
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut lines = bytes.rsplit(|byte| *byte == b'\n');
        let torn = lines.next().is_some_and(|rest| !rest.is_empty());
        // A line that an earlier crash has torn says nothing; the one before it does.
        let last = lines.find_map(chain_of);
        Self { hash: last.map(|(hash, _)| hash), number: last.and_then(|(_, n)| n), torn }
    }
}

/// Hash and number of the chain that a line belongs to. Values of the line cannot look like its
/// `chain` member: a quote inside them is escaped.
fn chain_of(line: &[u8]) -> Option<(Hash, Option<u64>)> {
    const BEGIN: &[u8] = b"\"chain\":{\"hash\":\"";
    let (b'{', b'}') = (*line.first()?, *line.last()?) else { return None };
    let at = memchr::memmem::find(line, BEGIN)? + BEGIN.len();
    let (digits, rest) = line.get(at..)?.split_at_checked(64)?;
    let mut hash = [0; 32];
    for (pair, byte) in digits.chunks_exact(2).zip(&mut hash) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    let id = rest.strip_prefix(b"\",\"id\":\"")?.split(|byte| *byte == b'"').next()?;
    let number = str::from_utf8(id).ok()?.rsplit('/').next()?.parse().ok();
    Some((hash, number))
}
