//! What of a configuration its faults may show: where nothing in it can be a secret, the line.
//!
//! Faults are read in terminals that others see, in the logs of builds and in that of the gateway.
//! Whoever wrote a secret at a wrong place is told where, and it is not repeated.

use crate::{
    fault::Fault,
    model::sensitive::{NameKind, REMOVED, is_secret, looks_secret, name_kind},
};

/// Hides lines that may hold a secret, and leaves out what looks like one where a fault repeats it.
pub(super) fn hide(mut faults: Vec<Fault>) -> Vec<Fault> {
    for fault in &mut faults {
        fault.secret |= line_of(fault).is_some_and(may_hold_secret);
        clean(&mut fault.message);
        fault.suggestion.iter_mut().for_each(clean);
        fault.related.iter_mut().for_each(|related| clean(&mut related.message));
    }
    faults
}

fn line_of(fault: &Fault) -> Option<&str> {
    let index = usize::try_from(fault.at.line).ok()?.checked_sub(1)?;
    fault.at.source.text.lines().nth(index)
}

fn may_hold_secret(line: &str) -> bool {
    looks_secret(line)
        || words(line).any(is_secret)
        || values(line).any(|(name, value)| {
            // Its name says what it is, unless it says where that is.
            name_kind(name) == NameKind::Secret && !(name == "secret" && is_name(value))
        })
}

/// What in it stands between backticks is somebody's own word.
fn clean(message: &mut String) {
    let mut parts = message.split('`').map(str::to_owned).collect::<Vec<_>>();
    for word in parts.iter_mut().skip(1).step_by(2) {
        if looks_secret(word) || words(word).any(is_secret) {
            REMOVED.clone_into(word);
        }
    }
    *message = parts.join("`");
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || "\"'`{}[](),:=".contains(c))
}

/// Names of a line, each with what is written behind it, if that is a text.
fn values(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.match_indices(':').filter_map(|(at, _)| {
        let (before, after) = (line.get(..at)?, line.get(at + 1..)?);
        let mut name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        let value = after.trim_start().trim_start_matches(['"', '\'']);
        let end = value.find(['"', '\'', ',', '}', ']', '#']).unwrap_or(value.len());
        let value = value.get(..end)?.trim_end();
        let is_text = !value.is_empty() && !value.starts_with(['{', '[', '$']);
        is_text.then_some((name.next()?, value))
    })
}

fn is_name(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_may_hold_a_secret_is_known() {
        for line in [
            "  token: hunter2",
            "admin: { token: hunter2 }",
            "    Authorization: hunter2",
            "headers: { X-Api-Key: 'hunter2' }",
            "url: http://ann:hunter2@a.example",
            "keys: [{ evn: 7fK2mQ9xWb4LpT8c }]",
            "exec: [sh, \"--with=7fK2mQ9xWb4LpT8c\"]",
            "password: \"hunter2",
            "secret: hunter 2",
        ] {
            assert!(may_hold_secret(line), "{line}");
        }
        for line in [
            "",
            "keys: [{ env: AWS_S3_KEY_2_A1B2C3 }]",
            "headers: { X-Api-Key: { secret: platform-key } }",
            "token: { env: HANGU_ADMIN_TOKEN }",
            "X-Employee: $ctx.user.empId",
            "session_ttl: 8x",
            "timeout: 15s",
            "  crm: { url: \"http://127.0.0.1:7001/mcp\", dialct: mcp-lite }",
        ] {
            assert!(!may_hold_secret(line), "{line}");
        }
    }

    #[test]
    fn a_word_that_looks_like_a_secret_is_not_repeated() {
        for (message, expected) in [
            ("unknown key `7fK2mQ9xWb4LpT8c`", "unknown key `[removed]`"),
            ("the variable `7fK2mQ9xWb4LpT8c` is not set", "the variable `[removed]` is not set"),
            (
                "the variable `AWS_S3_KEY_2_A1B2C3` is not set",
                "the variable `AWS_S3_KEY_2_A1B2C3` is not set",
            ),
            ("`7fK2mQ9xWb4LpT8c /` is not a name", "`[removed]` is not a name"),
            ("unknown key `dialct`", "unknown key `dialct`"),
            ("a lonely ` stays", "a lonely ` stays"),
        ] {
            let mut cleaned = message.to_owned();
            clean(&mut cleaned);
            assert_eq!(cleaned, expected);
        }
    }
}
