//! Names behind which secrets usually stand: of headers, and of query parameters.

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

#[cfg(test)]
mod tests {
    use super::*;

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
