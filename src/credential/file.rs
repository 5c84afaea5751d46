//! The file of a keyring: JSON, this user's alone, written whole and moved into place.
//!
//! Who changes it holds a lock on a file beside it, so that of two at once the second sees what
//! the first did. Readers need no lock: they find one whole file or the other.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, ExposeSecretMut, SecretBox};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Key, KeyId, KeyState, Keyring, RingFault, Wrapped, ring::Material};

/// The layout of the file.
const VERSION: u32 = 1;
/// The largest file that is taken for a keyring, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// How long one waits for another who changes the file.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Where a keyring is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyringFile {
    path: PathBuf,
    /// Whose modes are somebody else's business: systemd guards the files in it.
    credentials: Option<PathBuf>,
}

/// Why a keyring cannot be read or written. No message has anything of a key.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    #[error("`{}` is not there: `hangu keys new` makes one", .0.display())]
    Missing(PathBuf),
    #[error("`{}` is already there", .0.display())]
    Exists(PathBuf),
    #[error("`{}` cannot be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{}` can be read by others than its owner (mode {mode:03o}): `chmod 600` it", .path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("`{}` is not a keyring: {reason}", .path.display())]
    Form { path: PathBuf, reason: String },
    #[error("`{}` was written by a newer version of Hangu", .0.display())]
    Newer(PathBuf),
    #[error("`{}`: {fault}", .path.display())]
    Ring { path: PathBuf, fault: RingFault },
    #[error("`{}` is being changed by another process", .0.display())]
    Busy(PathBuf),
    #[error("`{}` cannot be written: {source}", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Refused(RingFault),
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    keys: Vec<WrittenKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenKey {
    id: String,
    state: String,
    created: String,
    since: String,
    #[serde(default)]
    wraps: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    material: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrapped: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrapped_by: Option<String>,
}

/// A text that is wiped when it is dropped.
struct Text(Zeroizing<String>);

impl Serialize for Text {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| Self(Zeroizing::new(text)))
    }
}

// === impl KeyringFile ===

impl KeyringFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self { path: path.into(), credentials }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the keyring; a key whose material is wrapped stays locked.
    pub fn read(&self) -> Result<Keyring, FileFault> {
        let path = || self.path.clone();
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => FileFault::Missing(path()),
            _ => FileFault::Unreadable { path: path(), source },
        };
        let file = File::open(&self.path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        let mode = meta.mode() & 0o777;
        let guarded = self.credentials.as_ref().is_some_and(|folder| self.path.starts_with(folder));
        if mode & 0o077 != 0 && !guarded {
            return Err(FileFault::Open { path: path(), mode });
        }
        let form = |reason: &str| FileFault::Form { path: path(), reason: reason.to_owned() };
        if !meta.is_file() || meta.len() > MAX_FILE {
            return Err(form("it is no file, or larger than 1 MiB"));
        }
        let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE.min(meta.len() + 1) as usize));
        file.take(MAX_FILE).read_to_end(&mut text).map_err(unreadable)?;
        self.parse(&text)
    }

    fn parse(&self, text: &[u8]) -> Result<Keyring, FileFault> {
        let form = |reason: String| FileFault::Form { path: self.path.clone(), reason };
        // An error's text may repeat a value, and a value may be a key: only its place is told.
        let broken = |error: &serde_json::Error| {
            form(format!("line {}, column {} is not understood", error.line(), error.column()))
        };
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_slice(text).map_err(|e| broken(&e))?;
        if version > VERSION {
            return Err(FileFault::Newer(self.path.clone()));
        }
        let written: Written = serde_json::from_slice(text).map_err(|e| broken(&e))?;
        let keys: Result<Vec<Key>, String> = written.keys.into_iter().map(read_key).collect();
        let ring = Keyring { keys: keys.map_err(form)? };
        ring.verify().map_err(|fault| FileFault::Ring { path: self.path.clone(), fault })?;
        Ok(ring)
    }

    /// Writes a first keyring where there is no file.
    pub fn create(&self, ring: &Keyring) -> Result<(), FileFault> {
        let _lock = self.lock()?;
        if self.path.symlink_metadata().is_ok() {
            return Err(FileFault::Exists(self.path.clone()));
        }
        self.write(ring)
    }

    /// Changes the keyring: reads it, lets `change` work on it, and writes it, with nobody in
    /// between. What `change` refuses leaves the file as it was.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut Keyring) -> Result<T, RingFault>,
    ) -> Result<T, FileFault> {
        let _lock = self.lock()?;
        let mut ring = self.read()?;
        let told = change(&mut ring).map_err(FileFault::Refused)?;
        self.write(&ring)?;
        Ok(told)
    }

    /// Held as long as the file that is returned.
    #[allow(clippy::disallowed_methods, reason = "who changes a keyring may block, as with files")]
    fn lock(&self) -> Result<File, FileFault> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |source| FileFault::Unwritable { path: self.path.clone(), source };
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        if let (Ok(ours), Ok(keyring)) = (lock.metadata(), fs::metadata(&self.path))
            && ours.uid() != keyring.uid()
        {
            // Whoever made it first, the keyring's owner has to be able to use it.
            let _ = fchown(&lock, Some(keyring.uid()), Some(keyring.gid()));
        }
        let mut waited = Duration::ZERO;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
                Err(fs::TryLockError::WouldBlock) if waited >= PATIENCE => {
                    return Err(FileFault::Busy(self.path.clone()));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
            }
        }
    }

    fn write(&self, ring: &Keyring) -> Result<(), FileFault> {
        self.replace(ring)
            .map_err(|source| FileFault::Unwritable { path: self.path.clone(), source })
    }

    fn replace(&self, ring: &Keyring) -> io::Result<()> {
        let written = Written { version: VERSION, keys: ring.keys.iter().map(write_key).collect() };
        let mut text = Zeroizing::new(Vec::with_capacity(64 * 1024));
        serde_json::to_writer_pretty(&mut *text, &written)?;
        text.push(b'\n');
        // A link stays one, and what it leads to is replaced.
        let target = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let aside = folder.join(format!(".keyring-{:016x}", rand::random::<u64>()));
        let done = (|| {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
            if let Ok(old) = fs::metadata(&target) {
                let ours = file.metadata()?;
                if (old.uid(), old.gid()) != (ours.uid(), ours.gid()) {
                    // It stays its owner's, who has to read it, whoever changes it.
                    fchown(&file, Some(old.uid()), Some(old.gid()))?;
                }
            }
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&aside, &target)
        })();
        if done.is_err() {
            // It may not be there.
            let _ = fs::remove_file(&aside);
        }
        done?;
        // The name is to survive the power too.
        File::open(&folder)?.sync_all()
    }
}

// === The form of a key ===

fn read_key(written: WrittenKey) -> Result<Key, String> {
    let id = KeyId::parse(&written.id)
        .ok_or("an `id` is not eight hexadecimal digits of which the first is not zero")?;
    let state = KeyState::ALL.into_iter().find(|state| state.as_str() == written.state);
    let state = state.ok_or_else(|| format!("key {id} has an unknown `state`"))?;
    let material = match (written.material, written.wrapped, written.wrapped_by) {
        (None, None, None) if state == KeyState::Destroyed => Material::Gone,
        _ if state == KeyState::Destroyed => {
            return Err(format!("key {id} is `destroyed` and has material"));
        }
        (Some(material), None, None) => {
            let bytes = STANDARD.decode(material.0.as_bytes()).map(Zeroizing::new);
            let bytes = bytes.ok().filter(|bytes| bytes.len() == 32);
            let bytes = bytes.ok_or_else(|| format!("the material of key {id} is not 32 bytes"))?;
            let mut material = SecretBox::new(Box::new([0; 32]));
            ExposeSecretMut::expose_secret_mut(&mut material).copy_from_slice(&bytes);
            Material::Open(material)
        }
        (None, Some(wrapped), Some(key)) => {
            let bytes = STANDARD.decode(wrapped);
            let bytes = bytes.map_err(|_| format!("what is wrapped of key {id} is not base64"))?;
            Material::Wrapped(Wrapped { key, bytes }, None)
        }
        _ => return Err(format!("key {id} has neither `material` nor `wrapped` and `wrappedBy`")),
    };
    let ms = |text: &str| {
        let time =
            text.parse::<jiff::Timestamp>().map_err(|_| format!("a time of key {id} is none"));
        time.map(|time| u64::try_from(time.as_millisecond()).unwrap_or(0))
    };
    let (created_ms, since_ms) = (ms(&written.created)?, ms(&written.since)?);
    Ok(Key { id, state, created_ms, since_ms, wraps: written.wraps, material })
}

fn write_key(key: &Key) -> WrittenKey {
    let time = |ms: u64| {
        let time = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        time.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
    };
    let (material, wrapped) = match &key.material {
        Material::Gone => (None, None),
        Material::Open(material) => {
            (Some(Text(Zeroizing::new(STANDARD.encode(material.expose_secret())))), None)
        }
        Material::Wrapped(wrapped, _) => (None, Some(wrapped)),
    };
    WrittenKey {
        id: key.id.to_string(),
        state: key.state.as_str().to_owned(),
        created: time(key.created_ms),
        since: time(key.since_ms),
        wraps: key.wraps,
        material,
        wrapped: wrapped.map(|wrapped| STANDARD.encode(&wrapped.bytes)),
        wrapped_by: wrapped.map(|wrapped| wrapped.key.clone()),
    }
}
