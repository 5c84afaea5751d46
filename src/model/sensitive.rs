//! Names behind which secrets usually stand: of headers, of query parameters and of arguments; and
//! what texts look like that are secrets, whatever their name.

use base64::{Engine, engine::general_purpose::STANDARD};

/// Words of a name that give a secret away.
const WORDS: [&str; 20] = [
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "key",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "session",
    "sessionid",
    "sig",
    "signature",
    "token",
    "tokens",
];

/// Whether a value under this name is most likely a secret: by any word of the name, in any
/// case (`X-Api-Key`, `exampleApiKey`, `access_token`).
pub fn is_sensitive(name: &str) -> bool {
    let mut word = String::new();
    let mut before = '\0';
    for c in name.chars().chain(['-']) {
        // A word ends at what is neither a letter nor a digit, and before a capital.
        let ends =
            !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && before.is_ascii_lowercase());
        if ends {
            if WORDS.contains(&word.as_str()) {
                return true;
            }
            word.clear();
        }
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    // Run together: `accesstoken`, `APIKEY2`, `mysecret`.
    let whole = name.to_ascii_lowercase();
    ["apikey", "password", "passwd", "secret", "token", "credential"]
        .iter()
        .any(|word| whole.contains(word))
}

/// What the name of an argument says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Plain,
    /// Secrets have such names, and much else has: `issueKey`, `sessionId`.
    Doubtful,
    Secret,
}

/// Words of a name that mean much else besides secrets.
const DOUBTFUL: [&str; 8] =
    ["auth", "bearer", "cookie", "key", "session", "sessionid", "sig", "signature"];

/// What the name of an argument says of its value. Of headers [`is_sensitive`] says it.
pub fn name_kind(name: &str) -> NameKind {
    if words(name).any(|word| WORDS.contains(&&*word) && !DOUBTFUL.contains(&&*word)) {
        return NameKind::Secret;
    }
    let apart = words(name).collect::<Vec<_>>();
    match apart.windows(2).any(|pair| pair == ["api", "key"]) {
        true => NameKind::Secret,
        false if is_sensitive(name) => NameKind::Doubtful,
        false => NameKind::Plain,
    }
}

/// The words of a name, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before = '\0';
    for c in name.chars() {
        let begins = c.is_ascii_uppercase() && before.is_ascii_lowercase();
        if begins || !c.is_ascii_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

/// What stands in the place of a secret that is not repeated.
pub const REMOVED: &str = "[removed]";

/// How much of somebody's word is repeated to him.
const SHOWN: usize = 64;

/// Somebody's word, as far as it is repeated: in a name's length, without what steers a terminal,
/// and not where it looks like a secret that went to a wrong place. What says so may be written
/// down where others read it.
pub fn shown(text: &str) -> String {
    match is_secret(text) {
        true => REMOVED.to_owned(),
        false => text.chars().filter(|c| !c.is_control()).take(SHOWN).collect(),
    }
}

/// Whether a word by itself is most likely a secret. Keys of servers and other ids have short
/// parts; what is drawn by lot to be guessed by nobody has a long one.
pub fn is_secret(word: &str) -> bool {
    looks_secret(word) || word.split(|c| "_-.~/+ ".contains(c)).any(looks_random)
}

/// Whether a text looks drawn by lot: long, without a space, letters and digits mixed.
pub fn looks_random(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+/=_.~-".contains(&b);
    if text.len() < 16 || !text.bytes().all(plain) {
        return false;
    }
    let mixed: Vec<bool> =
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.is_ascii_digit()).collect();
    mixed.windows(2).filter(|pair| pair.first() != pair.last()).count() >= 4
}

/// How tokens of well-known services begin, and how long they are at least.
const TOKENS: [(&str, usize); 32] = [
    ("AIza", 35),
    ("SG.", 40),
    ("dop_v1_", 40),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghr_", 30),
    ("ghs_", 30),
    ("ghu_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("glptt-", 20),
    ("hf_", 30),
    ("hvb.", 20),
    ("hvs.", 20),
    ("lin_api_", 30),
    ("npm_", 36),
    ("ntn_", 40),
    ("pypi-", 40),
    ("rk_live_", 20),
    ("rk_test_", 20),
    ("shpat_", 30),
    ("sk-ant-", 30),
    ("sk-proj-", 30),
    ("sk_live_", 20),
    ("sk_test_", 20),
    ("whsec_", 20),
    ("xapp-", 20),
    ("xoxa-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxs-", 20),
    ("ya29.", 20),
];

/// Whether a text is, or holds, what can hardly be anything but a secret: a token of a well-known
/// service, a JWT, a private key, credentials of HTTP, an address with a password.
pub fn looks_secret(text: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let private = text.contains("-----BEGIN ") && text.contains("PRIVATE KEY-----");
    private
        || text.split(|c| !is_token(c)).any(is_token_of_a_service)
        || has_http_credentials(text)
        || has_address_secret(text)
}

fn is_token_of_a_service(word: &str) -> bool {
    let upper = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
    let of_aws = ["AKIA", "ASIA"].iter().any(|start| word.starts_with(start));
    let bare = word.starts_with("sk-") && word.len() >= 24 && looks_random(word);
    (of_aws && word.len() == 20 && word.bytes().all(upper))
        || bare
        || TOKENS.iter().any(|(start, least)| word.len() >= *least && word.starts_with(start))
        || is_jwt(word)
}

/// Head and body are objects, which begin with `{"` in base64.
fn is_jwt(word: &str) -> bool {
    let mut parts = word.split('.');
    let mut object =
        || parts.next().is_some_and(|part| part.len() >= 10 && part.starts_with("eyJ"));
    object() && object() && parts.next().is_some()
}

fn has_http_credentials(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|pair| match pair {
        [scheme, token] if scheme.eq_ignore_ascii_case("bearer") => {
            token.len() >= 16 && token.bytes().any(|b| b.is_ascii_digit())
        }
        [scheme, token] if scheme.eq_ignore_ascii_case("basic") => {
            STANDARD.decode(token).is_ok_and(|plain| plain.contains(&b':'))
        }
        _ => false,
    })
}

/// User info with a password, or a query parameter of a sensitive name with what may be a secret.
fn has_address_secret(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let rest = rest.split(|c: char| c.is_whitespace() || c == '"').next().unwrap_or_default();
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let password = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
        let query = rest.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let mut pairs = query.split(['&', '#', ';']).filter_map(|pair| pair.split_once('='));
        password.is_some_and(|password| !password.is_empty())
            || pairs.any(|(name, value)| match name_kind(name) {
                NameKind::Secret => value.len() >= 6,
                NameKind::Doubtful => looks_random(value),
                NameKind::Plain => false,
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_named_like_a_secret_or_might_be() {
        for (name, kind) in [
            ("password", NameKind::Secret),
            ("apiKey", NameKind::Secret),
            ("api_key", NameKind::Secret),
            ("exampleApiKey", NameKind::Secret),
            ("accessToken", NameKind::Secret),
            ("clientSecret", NameKind::Secret),
            ("Authorization", NameKind::Secret),
            ("issueKey", NameKind::Doubtful),
            ("sessionId", NameKind::Doubtful),
            ("tokenizer", NameKind::Doubtful),
            ("keyboard", NameKind::Plain),
            ("orderId", NameKind::Plain),
            ("", NameKind::Plain),
        ] {
            assert_eq!(name_kind(name), kind, "{name}");
        }
    }

    #[test]
    fn a_word_that_may_be_a_secret_is_not_repeated() {
        for (word, repeated) in [
            ("dialct", "dialct"),
            ("mcp_order-query_7f3a2c91", "mcp_order-query_7f3a2c91"),
            ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
            ("AWS_S3_KEY_2_A1B2C3", "AWS_S3_KEY_2_A1B2C3"),
            ("a\nb", "ab"),
            ("live_7fK2mQ9xWb4LpT8cZ", REMOVED),
            ("7fK2mQ9xWb4LpT8cZ and more", REMOVED),
            ("da39a3ee5e6b4b0d3255bfef95601890afd80709", REMOVED),
            ("http://ann:hunter2@a.example", REMOVED),
        ] {
            assert_eq!(shown(word), repeated);
        }
        assert_eq!(shown(&"x".repeat(200)).len(), SHOWN);
    }

    #[test]
    fn a_secret_is_known_by_its_form() {
        // Put together here, so that nobody who looks for secrets finds them in this file.
        for (start, rest) in [
            ("gh", "p_0123456789abcdefghijABCDEFGHIJ012345"),
            ("AK", "IAIOSFODNN7EXAMPLE"),
            ("sk", "-proj-0123456789abcdefghijklmnop"),
            ("sk", "-8f14e45fceea167a5a36dedd4bea2543"),
            ("xo", "xb-123456789012-abcdefghijkl"),
            ("ey", "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"),
            ("-----BEG", "IN PRIVATE KEY-----\nMIIB"),
            ("Authorization: Bea", "rer abcdef0123456789"),
            ("Bas", "ic dXNlcjpwYXNz"),
            ("postgres://", "app:hunter2@db/orders"),
            ("https://x.example/a?api_key=", "hunter22"),
            ("use gl", "pat-0123456789abcdefghij, please"),
        ] {
            let text = format!("{start}{rest}");
            assert!(looks_secret(&text), "{text}");
        }
        for text in [
            "",
            "O-1001",
            "Basic authentication",
            "the bearer of this letter",
            "https://user@x.example/a?key=color&orderId=O-1",
            "sk-learn-pipelines-are-fine-too",
            "550e8400-e29b-41d4-a716-446655440000",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "eyJust a word",
        ] {
            assert!(!looks_secret(text), "{text}");
        }
    }

    #[test]
    fn what_is_drawn_by_lot_mixes_letters_and_digits() {
        for text in ["8f14e45fceea167a5a36dedd4bea2543", "550e8400-e29b-41d4-a716-446655440000"] {
            assert!(looks_random(text), "{text}");
        }
        for text in ["PROJECT-ALPHA-1234", "2026-12-01T05:00:00Z", "a b1c2d3e4f5g6h7i8", "k1"] {
            assert!(!looks_random(text), "{text}");
        }
    }

    #[test]
    fn a_name_is_sensitive_by_any_of_its_words() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "X-Api-Key",
            "x-api-key",
            "exampleApiKey",
            "APIKEY",
            "access_token",
            "accesstoken",
            "Cookie",
            "sig",
            "X-Amz-Signature",
            "clientSecret",
            "DB_PASSWORD",
            "key",
            "X-Auth-Token",
        ] {
            assert!(is_sensitive(name), "{name}");
        }
        for name in
            ["X-Tenant", "SSO-Emp-Id", "region", "monkey", "keyboard", "author", "X-Team", "design"]
        {
            assert!(!is_sensitive(name), "{name}");
        }
    }
}
