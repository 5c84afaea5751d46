//! A program that keeps keys: one line of JSON goes in, one comes out, for each request.
//!
//! ```text
//! {"version":1,"op":"wrap","key":BASE64,"context":{…}}                    {"keyId":ID,"wrapped":BASE64}
//! {"version":1,"op":"unwrap","keyId":ID,"wrapped":BASE64,"context":{…}}   {"key":BASE64}
//! {"version":1,"op":"keyId"}                                              {"keyId":ID}
//! {"version":1,"op":"health"}                                             {}
//! ```
//!
//! or `{"error": TEXT}`. The context is what the key belongs to: texts by name, the same in both
//! directions, to be used as the other system's encryption context. The program is started for
//! each request, with the gateway's environment, and ended when it has answered or its time is
//! over.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, ExposeSecretMut, SecretBox};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Context, DataKey, Kms, KmsFault, Wrapped};

/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;
/// The longest reason that is repeated, in characters.
const MAX_REASON: usize = 200;

/// The program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// How long one answer may take.
    pub timeout: Duration,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    version: u32,
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wrapped: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<BTreeMap<&'a str, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    error: Option<String>,
    key_id: Option<String>,
    wrapped: Option<String>,
    /// Borrowed from the line, which is wiped.
    #[serde(borrow)]
    key: Option<&'a str>,
}

/// Ends the program and whatever it has started, and waits for it.
struct Running(Child);

// === impl Exec ===

impl Exec {
    fn question(op: &'static str) -> Question<'static> {
        Question { version: 1, op, key_id: None, key: None, wrapped: None, context: None }
    }

    /// The line that it answers.
    fn ask(&self, question: &Question<'_>) -> Result<Zeroizing<Vec<u8>>, KmsFault> {
        let away = |what: &str, error: &dyn std::fmt::Display| {
            KmsFault::Away(format!("`{}` {what}: {error}", self.program.display()))
        };
        let mut line = Zeroizing::new(Vec::with_capacity(1024));
        serde_json::to_writer(&mut *line, question)
            .map_err(|error| away("cannot be asked", &error))?;
        line.push(b'\n');
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| away("cannot be started", &error))?;
        let mut running = Running(child);
        let (Some(mut input), Some(output)) = (running.0.stdin.take(), running.0.stdout.take())
        else {
            return Err(away("cannot be asked", &"it has no input"));
        };
        let (told, answer) = mpsc::channel();
        let talk = move || {
            // One that does not read its input may answer all the same, or say so by its end.
            let _ = input.write_all(&line);
            drop(input);
            let mut answer = Zeroizing::new(Vec::with_capacity(MAX_ANSWER as usize));
            let read = BufReader::new(output.take(MAX_ANSWER)).read_until(b'\n', &mut answer);
            // Nobody waits any more if it took too long.
            let _ = told.send(read.map(|_| answer));
        };
        thread::Builder::new()
            .name("hangu-kms".into())
            .spawn(talk)
            .map_err(|error| away("cannot be asked", &error))?;
        match answer.recv_timeout(self.timeout) {
            Ok(Ok(answer)) if answer.iter().any(|byte| !byte.is_ascii_whitespace()) => Ok(answer),
            Ok(Ok(_)) => Err(away("ended", &"it did not answer")),
            Ok(Err(error)) => Err(away("cannot be heard", &error)),
            Err(_) => {
                Err(away("did not answer", &format!("it had {} ms", self.timeout.as_millis())))
            }
        }
    }

    fn answered<'a>(&self, line: &'a [u8]) -> Result<Answer<'a>, KmsFault> {
        // The error's text may repeat what was answered.
        let answer: Answer<'a> = serde_json::from_slice(line).map_err(|_| {
            KmsFault::Away(format!("`{}` did not answer in JSON", self.program.display()))
        })?;
        match answer.error {
            Some(reason) => {
                let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
                Err(KmsFault::Refused(reason.take(MAX_REASON).collect()))
            }
            None => Ok(answer),
        }
    }

    fn missing(&self, what: &str) -> KmsFault {
        KmsFault::Away(format!("`{}` answered without `{what}`", self.program.display()))
    }
}

impl Kms for Exec {
    fn key_id(&self) -> Result<String, KmsFault> {
        let line = self.ask(&Self::question("keyId"))?;
        self.answered(&line)?.key_id.ok_or_else(|| self.missing("keyId"))
    }

    fn wrap(&self, key: &DataKey, context: &Context<'_>) -> Result<Wrapped, KmsFault> {
        let key = Zeroizing::new(STANDARD.encode(key.expose_secret()));
        let question =
            Question { key: Some(&key), context: Some(context.named()), ..Self::question("wrap") };
        let line = self.ask(&question)?;
        let answer = self.answered(&line)?;
        let wrapped = answer.wrapped.and_then(|wrapped| STANDARD.decode(wrapped).ok());
        Ok(Wrapped {
            key: answer.key_id.ok_or_else(|| self.missing("keyId"))?,
            bytes: wrapped.ok_or_else(|| self.missing("wrapped"))?,
        })
    }

    fn unwrap(&self, wrapped: &Wrapped, context: &Context<'_>) -> Result<DataKey, KmsFault> {
        let bytes = STANDARD.encode(&wrapped.bytes);
        let question = Question {
            key_id: Some(&wrapped.key),
            wrapped: Some(&bytes),
            context: Some(context.named()),
            ..Self::question("unwrap")
        };
        let line = self.ask(&question)?;
        let key = self.answered(&line)?.key;
        let bytes = key.and_then(|key| STANDARD.decode(key).ok()).map(Zeroizing::new);
        let bytes = bytes.filter(|bytes| bytes.len() == 32).ok_or_else(|| self.missing("key"))?;
        let mut key: DataKey = SecretBox::new(Box::new([0; 32]));
        key.expose_secret_mut().copy_from_slice(&bytes);
        Ok(key)
    }

    fn health(&self) -> Result<(), KmsFault> {
        let line = self.ask(&Self::question("health"))?;
        self.answered(&line).map(|_| ())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // It may have ended already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        // Killed, so it does not last.
        let _ = self.0.wait();
    }
}

// === impl Context ===

impl Context<'_> {
    /// As texts by name, which is how other systems take a context.
    fn named(&self) -> BTreeMap<&str, String> {
        let mut named = BTreeMap::from([
            ("tenant", self.tenant.to_owned()),
            ("kind", self.kind.to_owned()),
            ("schema", self.schema.to_string()),
        ]);
        // As one text from which the parts can be told.
        let record = serde_json::to_string(self.record).unwrap_or_default();
        named.insert("record", record);
        named
    }
}
