//! Orders to the model in what should only describe a tool, and text that only a model reads.
//!
//! A phrase counts where a description of what a tool does has no use for it. What honest
//! descriptions also say, such as when to call another tool, is `steering` at most; both kinds are
//! held by `tests/fixtures/quality`.

use std::sync::LazyLock;

use base64::{Engine, alphabet, engine};
use regex::{Regex, RegexBuilder};

use super::{
    Findings,
    places::{Place, Role},
    shown, text,
};
use crate::model::quality::Flaw;

/// A phrase, in lower case, and what is wrong with it.
struct Phrase {
    flaw: Flaw,
    pattern: &'static str,
    message: &'static str,
}

const fn poisoned(pattern: &'static str, message: &'static str) -> Phrase {
    Phrase { flaw: Flaw::Poisoned, pattern, message }
}

const fn steering(pattern: &'static str, message: &'static str) -> Phrase {
    Phrase { flaw: Flaw::Steering, pattern, message }
}

const OVERRIDES: &str = "it tells the model to set aside what it was told before";
const SECRECY: &str = "it tells the model to keep something from the user";
const READS: &str = "it tells the model to read a file where credentials are kept";
const SENDS: &str = "it tells the model to send data somewhere";
const OTHERS: &str = "it gives orders about other tools";
const MARKUP: &str = "it has markup that looks like an instruction of the system";
const HIDDEN: &str = "it has a comment or an element that is not shown to a person";

/// Files where credentials are kept.
macro_rules! secret_files {
    () => {
        r"(\.ssh\b|id_rsa|id_ed25519|\.aws/|/etc/passwd|/etc/shadow|\.netrc|\.git-credentials|\.kube/config|\.cursor/|\bmcp\.json|claude_desktop_config|\.npmrc|\.pgpass|\.config/gcloud|\.docker/config)"
    };
}

static PHRASES: &[Phrase] = &[
    poisoned(
        r"\b(ignore|disregard|forget)( \w+){0,3}? (previous|prior|above|earlier|preceding|foregoing|your|all)( \w+){0,2}? (instructions?|prompts?|guidelines|directives?|training)\b",
        OVERRIDES,
    ),
    poisoned(
        r"\b(ignore|disregard|bypass|override) (all )?(your|of your|the above|any previous|all previous)( \w+)? (rules|polic(y|ies)|safety|restrictions|constraints|guardrails)\b",
        OVERRIDES,
    ),
    poisoned(
        r"\bnew (system )?instructions? ?:|\bsystem override\b|\b(developer|dan|god|admin) mode (is )?(enabled|activated|on)\b|\bjailbroken\b",
        OVERRIDES,
    ),
    poisoned(
        r"\bthis (instruction|message|description|tool description)s? (overrides?|supersedes?|takes? precedence over)\b",
        OVERRIDES,
    ),
    poisoned(
        r"\b(do not|don't|dont|never|must not|mustn't|should not|shouldn't|no need to)( ever)? (tell|inform)( \w+){0,1}? (the |your )?(user|human|operator)s?\b",
        SECRECY,
    ),
    poisoned(
        r"\b(do not|don't|dont|never|must not|should not) let (the |your )?(user|human|operator)s? (know|see|notice|find out|realize|realise|suspect)\b",
        SECRECY,
    ),
    poisoned(
        r"\b(do not|don't|dont|never|must not|should not|avoid)( ever)? (mention|mentioning|reveal|revealing|disclose|disclosing|explain|explaining) (this|it|that you|these|any of this|the above)\b[^.!?]*\b(user|human|operator|response|answer|reply|conversation|anyone)",
        SECRECY,
    ),
    poisoned(
        r"\b(hide|conceal|keep) (this|that|it|these|the fact)\b[^.!?]*\bfrom (the |your )?(user|human|operator)s?\b",
        SECRECY,
    ),
    poisoned(
        r"\bwithout (the |your )?(user|human|operator)('s|s')? (knowing|knowledge|noticing|awareness|being aware|seeing)\b",
        SECRECY,
    ),
    poisoned(
        r"\bwithout (telling|informing|mentioning)\b[^.!?]*\b(user|human|operator)s?\b",
        SECRECY,
    ),
    poisoned(
        concat!(
            r"\b(before|first|prior to|in order to use|to use this)\b[^!?]*\b(read|open|cat|load|fetch|get|access|retrieve|check)\b[^!?]*",
            secret_files!()
        ),
        READS,
    ),
    poisoned(
        concat!(
            r"\b(read|open|cat|load|fetch|get|include|access|retrieve)\b[^!?]*",
            r"(\.env\b|",
            secret_files!(),
            r")[^!?]*\b(pass|send|include|provide|put|attach|insert|append|post|upload|as the)\b"
        ),
        READS,
    ),
    poisoned(
        concat!(
            r"\b(send|upload|post|attach|include|pass|provide|append|forward|paste|exfiltrate)( \w+){0,6} \S*",
            secret_files!()
        ),
        SENDS,
    ),
    poisoned(
        r"<\s*/?\s*(important|system|secret|hidden|admin|override|critical|assistant)\s*>",
        MARKUP,
    ),
    poisoned(r"<\|[a-z_]{2,20}\|>|\[/?inst\]|<</?sys>>", MARKUP),
    poisoned(r"<!--[^>]*\w+ \w+ \w+[^>]*", HIDDEN),
    poisoned(
        r"<\w+ [^>]*(display ?: ?none|visibility ?: ?hidden|font-size ?: ?0|opacity ?: ?0\b)",
        HIDDEN,
    ),
    poisoned(r"\[//\]: ?#", HIDDEN),
    poisoned(
        r"\b(reveal|print|output|repeat|include|pass|send|provide|paste|copy|insert|put|append|share)\b[^.!?]*\byour (own |full |entire |complete )?(system (prompt|message|instructions)|initial instructions|hidden instructions|chat history|conversation history|context window)",
        "it asks the model for what it was told, or for the conversation",
    ),
    poisoned(
        r"\b(when|whenever|if|once|while)\b[^.!?]*\b(tool|server|function|mcp)s? (is|are) (present|available|connected|installed|enabled|loaded)\b[^?]*\b(must|always|never|do not|don't)\b",
        OTHERS,
    ),
    poisoned(
        r"\bthe [`']?\w+[`']? tool (must|has to|needs to) (always|now|also|instead) (send|forward|route|redirect|use|include|add|call)\b",
        OTHERS,
    ),
    poisoned(
        r"\b(must|always|have to|need to|secretly|silently|quietly) (\w+ )?(send|forward|route|redirect|deliver|bcc|cc|copy|post|upload)\b[^!?]*\b(all|every|any|each|copy|copies|emails?|messages?|data|results?|contents?)\b[^!?]*(https?://|[a-z0-9_.+-]+@[a-z0-9_-]+\.\w)",
        SENDS,
    ),
    poisoned(
        r"\b(always|must|silently|secretly) (add|include|set|use|put)\b[^.!?]*\b(bcc|cc)\b",
        SENDS,
    ),
    poisoned(
        r"\b(send|forward|post|upload|transmit|exfiltrate|leak|email)\b[^!?]*\b(the|all|any|user's|your) (credentials|passwords|secrets|api keys?|tokens|private keys?|environment variables|conversation|chat history|file contents?)\b[^!?]*\bto\b[^!?]*(https?://|[a-z0-9_.+-]+@[a-z0-9_-]+\.\w)",
        SENDS,
    ),
    // The same in other languages.
    poisoned(
        r"(忽略|无视|無視|忘记|忘掉)[^。！？]{0,8}(之前|以上|先前|前面|上述|所有|系统|此前)[^。！？]{0,8}(指令|指示|提示|规则|要求)",
        OVERRIDES,
    ),
    poisoned(
        r"(不要|不得|禁止|切勿|请勿|千万别|不能)[^。！？]{0,6}(告诉|告知|透露给|让)[^。！？]{0,3}(用户|使用者|人类)",
        SECRECY,
    ),
    poisoned(
        r"(以前|これまで|上記|前)の(指示|命令|プロンプト)[^。]{0,8}(無視|忘れ)|(ユーザー|ユーザ|利用者)に[^。]{0,6}(言わない|伝えない|知らせない|教えない)",
        OVERRIDES,
    ),
    poisoned(
        r"\b(ignoriere|vergiss|missachte)( \w+){0,3}? (vorherigen|bisherigen|obigen|früheren)( \w+)? (anweisungen|befehle|vorgaben)",
        OVERRIDES,
    ),
    poisoned(
        r"\b(sage?|erzähle?|verrate?)\b[^.!?]{0,20}\b(dem|den) (benutzer|nutzer|anwender) (nichts|nicht)\b",
        SECRECY,
    ),
    poisoned(
        r"\b(ignore[rz]?|oublie[rz]?)( \w+){0,3}? (instructions|consignes) (précédentes|antérieures|ci-dessus)",
        OVERRIDES,
    ),
    poisoned(r"\bne (dis|dites|dire|mentionne[rz]?)\b[^.!?]{0,40}\bl'utilisateur", SECRECY),
    poisoned(
        r"\b(ignora|ignore|ignorar|olvida)( \w+){0,3}? (instrucciones|instruções) (anteriores|previas|prévias)",
        OVERRIDES,
    ),
    poisoned(r"\bno (le |se lo )?(digas|diga|menciones|reveles)\b[^.!?]{0,40}\busuario", SECRECY),
    poisoned(
        r"(игнорируй|игнорируйте|забудь|забудьте)[^.!?]{0,20}(предыдущие|прежние|все)[^.!?]{0,10}(инструкции|указания)",
        OVERRIDES,
    ),
    poisoned(r"не (говори|говорите|сообщай|сообщайте|рассказывай)[^.!?]{0,20}пользовател", SECRECY),
    poisoned(
        r"(이전|위의|모든)[^.!?]{0,8}(지시|명령|프롬프트)[^.!?]{0,6}무시|사용자에게[^.!?]{0,8}(말하지|알리지)",
        OVERRIDES,
    ),
    steering(
        r"\b(before|after|whenever|every time|each time|instead of) (you )?(use|using|call|calling|invoke|invoking|run|running|execute|executing) (\w+ )?(any|all|every|another|other)( other)? (tool|function|server)s?\b",
        OTHERS,
    ),
    steering(
        r"\b(always|must) (be )?(call|use|run|invoke|execute)d? (this|it)( tool| function)? (first|before (any|every|all|each|other|anything)|for (any|every|all))\b",
        "it wants to be called whatever was asked",
    ),
    steering(
        r"\b(do not|don't|never|must not)( ever)? (call|use|invoke|run|trust)( any)? other (tool|function|server)s?\b",
        OTHERS,
    ),
    steering(
        r"\b(prefer|choose) this (tool|function|server) (over|to|instead of|rather than) (any|all|every|other)\b",
        OTHERS,
    ),
    steering(
        r"\b(supersedes|overrides|takes precedence over|replaces) (all |any |every )?other (tools?|functions?|servers?|instructions?)\b",
        OTHERS,
    ),
    steering(
        r"\b(do not|don't|never|without|no need to)( ever)? (ask|asking|wait|waiting|prompt|prompting|seek|seeking)( \w+){0,4}? (confirmation|permission|approval|consent)\b",
        "it tells the model not to ask anybody",
    ),
    steering(
        r"\b(include|pass|provide|send|copy|paste|append|insert)\b[^.!?]*\b(full|entire|whole|complete) (conversation|chat)\b",
        "it asks for the whole conversation",
    ),
    steering(r"<\s*/?\s*instructions?\s*>", MARKUP),
    steering(
        r"\bif (the|an?|this|another) [^.!?]{0,30}(tool|server|function) (is|are) (also )?(present|available|connected|installed|enabled)\b[^?]*\b(instead|prefer|should)\b",
        OTHERS,
    ),
    steering(
        r"(使用|调用)(任何|所有|其他)[^。！？]{0,4}工具(之前|前)|(必须|务必|一定要)(首先|先)(调用|使用)(本|此|这个|该)工具",
        OTHERS,
    ),
];

impl Phrase {
    /// With Latin letters alone for letters: the table of all letters makes an expression slow.
    fn narrow(&self) -> String {
        self.pattern.replace(r"\b", r"(?-u:\b)").replace(r"\w", "[a-z0-9_à-ÿ]").replace(r"\s", " ")
    }
}

/// Each by itself: together they would have more states than anybody can keep.
static EACH: LazyLock<Vec<(Regex, &Phrase)>> = LazyLock::new(|| {
    // A test sees to it that they can all be read.
    let made = |phrase: &'static Phrase| {
        let built = RegexBuilder::new(&phrase.narrow()).dfa_size_limit(MEMORY).build();
        Some((built.ok()?, phrase))
    };
    PHRASES.iter().filter_map(made).collect()
});

/// What an expression may keep to be fast, in bytes.
const MEMORY: usize = 64 * 1024;

/// What could be base64 of more than a few words.
static BLOB: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/_-]{40,}={0,2}").ok());

/// Padding or none: whoever hides something does not care.
const LENIENT: engine::GeneralPurposeConfig = engine::GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(engine::DecodePaddingMode::Indifferent);

/// Bytes that are no text are a blob from so many characters on.
const BLOB_MIN: usize = 200;

pub fn look(place: &Place<'_>, written: &str, findings: &mut Findings) {
    unseen(place, written, findings);
    alike(place, written, findings);
    let plain = match place.role {
        Role::Name => text::plain(&written.replace(['_', '-'], " ")),
        _ => text::plain(written),
    };
    phrases(place, &plain, "", findings);
    if let Some(folded) = text::folded(&plain) {
        phrases(place, &folded, ", in letters that look like others", findings);
    }
    if !matches!(place.role, Role::Name | Role::Syntax) {
        blobs(place, written, findings);
    }
}

/// Characters that are not seen.
fn unseen(place: &Place<'_>, written: &str, findings: &mut Findings) {
    let Some(c) = text::stranger(written) else { return };
    let message = format!("it has a character that a person does not see: {}", text::called(c));
    findings.add_at(Flaw::Invisible, place, message);
    if let Some(tagged) = text::tagged(written) {
        phrases(place, &text::plain(&tagged), ", in characters that are not shown", findings);
    }
}

/// Letters that look like others.
fn alike(place: &Place<'_>, written: &str, findings: &mut Findings) {
    if let Some(word) = text::mixed(written) {
        let message = format!("`{}` mixes letters of alphabets that look alike", shown(word));
        findings.add_at(Flaw::Confusable, place, message);
    } else if place.role == Role::Name && !written.is_ascii() {
        let plain: String = text::plain(written);
        let folded = text::folded(&plain).unwrap_or(plain);
        if folded.is_ascii() {
            let name = shown(written);
            let message = format!("the name `{name}` looks like `{folded}`, and is another");
            findings.add_at(Flaw::Confusable, place, message);
        }
    }
}

fn phrases(place: &Place<'_>, plain: &str, how: &str, findings: &mut Findings) {
    // Shorter than every phrase.
    if plain.len() < 6 {
        return;
    }
    let mut said: Vec<&str> = Vec::new();
    for (shape, phrase) in EACH.iter() {
        // Two phrases for one thing are one finding.
        if said.contains(&phrase.message) || !shape.is_match(plain) {
            continue;
        }
        said.push(phrase.message);
        findings.add_at(phrase.flaw, place, format!("{}{how}", phrase.message));
    }
}

/// Base64 in which there is text, or a lot of something else.
fn blobs(place: &Place<'_>, written: &str, findings: &mut Findings) {
    if written.len() < 40 {
        return;
    }
    let Some(blob) = &*BLOB else { return };
    for found in blob.find_iter(written) {
        let token = found.as_str();
        let has = |test: fn(&u8) -> bool| token.bytes().any(|b| test(&b));
        let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
        if !mixed || !has(u8::is_ascii_digit) && !token.ends_with('=') {
            continue;
        }
        match decoded(token) {
            Some(hidden) => {
                findings.add_at(Flaw::Encoded, place, "it has text in base64, which nobody reads");
                phrases(place, &text::plain(&hidden), ", in base64", findings);
            }
            None if token.len() >= BLOB_MIN && place.role == Role::Prose => {
                let message = format!("it has {} characters of what is no text", token.len());
                findings.add_at(Flaw::Encoded, place, message);
            }
            None => {}
        }
    }
}

/// The text that a token stands for, if it stands for one.
fn decoded(token: &str) -> Option<String> {
    let alphabet = match token.contains(['-', '_']) {
        true => &alphabet::URL_SAFE,
        false => &alphabet::STANDARD,
    };
    let bytes = engine::GeneralPurpose::new(alphabet, LENIENT).decode(token).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let is_read = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    (text.chars().all(is_read) && text.contains(' ')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_can_be_read() {
        for phrase in PHRASES {
            assert!(Regex::new(&phrase.narrow()).is_ok(), "{}", phrase.pattern);
        }
        assert_eq!(EACH.len(), PHRASES.len());
        assert!(BLOB.is_some());
    }
}
