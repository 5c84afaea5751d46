//! Looks for secrets in whatever came out, in every form in which one may have been written.
//!
//! A secret is looked for in pieces, so that one that was cut is found too, and so that no escape
//! of what stands between its letters hides it.

use std::collections::{BTreeMap, HashMap};

use base64::{
    Engine, alphabet,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};

/// The length of a piece. So many letters do not meet by chance.
const PIECE: usize = 10;
/// Bytes by which a form is looked up. No form is shorter.
const START: usize = 8;

/// Secrets, and the forms of their pieces.
#[derive(Default)]
pub struct Search {
    names: Vec<String>,
    /// Forms in which case counts, and forms in which it does not, by how they begin.
    exact: Needles,
    folded: Needles,
}

#[derive(Default)]
struct Needles {
    by_start: HashMap<[u8; START], Vec<(Vec<u8>, usize)>>,
    /// Which beginnings there are, roughly: most bytes are passed over by it.
    rough: Vec<bool>,
}

impl Search {
    /// One more secret. What is added once is not added again.
    pub fn add(&mut self, name: &str, secret: &[u8]) {
        let number = match self.names.iter().position(|known| known == name) {
            Some(number) => number,
            None => {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }
        };
        let pieces = pieces(secret);
        assert!(!pieces.is_empty(), "`{name}` is too short to be found");
        for piece in pieces {
            for form in exact(piece) {
                self.exact.add(form, number);
            }
            for form in folded(piece) {
                self.folded.add(form, number);
            }
        }
    }

    /// The secrets that stand in there, by their names, and where.
    pub fn found(&self, bytes: &[u8]) -> BTreeMap<&str, usize> {
        let mut found = self.exact.found(bytes);
        found.extend(self.folded.found(&bytes.to_ascii_lowercase()));
        found.into_iter().map(|(number, place)| (&*self.names[number], place)).collect()
    }
}

impl Needles {
    fn add(&mut self, form: Vec<u8>, number: usize) {
        self.rough.resize(1 << 16, false);
        let start: [u8; START] = *form.first_chunk().unwrap();
        self.rough[rough(&start)] = true;
        let here = self.by_start.entry(start).or_default();
        if !here.iter().any(|(known, of)| *known == form && *of == number) {
            here.push((form, number));
        }
    }

    fn found(&self, bytes: &[u8]) -> BTreeMap<usize, usize> {
        let mut found = BTreeMap::new();
        for (place, start) in bytes.windows(START).enumerate() {
            let start: &[u8; START] = start.try_into().unwrap();
            if !self.rough.is_empty() && self.rough[rough(start)] {
                let forms = self.by_start.get(start).into_iter().flatten();
                let here = forms.filter(|(form, _)| bytes[place..].starts_with(form));
                found.extend(here.map(|(_, number)| (*number, place)));
            }
        }
        found
    }
}

fn rough(start: &[u8; START]) -> usize {
    usize::from(start[0]) << 8 | usize::from(start[1] ^ start[2].rotate_left(3) ^ start[3])
}

/// Runs of what no escape changes, cut to pieces; of what is no text, everything.
fn pieces(secret: &[u8]) -> Vec<&[u8]> {
    let text = secret.iter().all(|byte| (b' '..=b'~').contains(byte));
    let escaped = |byte: &u8| !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'_' | b'.');
    let runs: Vec<&[u8]> = match text {
        true => secret.split(escaped).collect(),
        false => vec![secret],
    };
    runs.into_iter().flat_map(|run| run.chunks_exact(PIECE)).collect()
}

/// As it is inside base64, wherever it begins there, in both alphabets.
fn exact(piece: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for alphabet in [alphabet::STANDARD, alphabet::URL_SAFE] {
        let engine = GeneralPurpose::new(&alphabet, NO_PAD);
        for before in 0..3 {
            let text = engine.encode([&vec![0; before], piece].concat());
            // Letters that what stands before or behind has a part in are left out.
            let first = (before * 8).div_ceil(6);
            let whole = (before + piece.len()) * 8 / 6;
            forms.push(text.as_bytes()[first..whole].to_vec());
        }
    }
    forms
}

/// As it is, and byte by byte: in hexadecimal, escaped, and as numbers.
fn folded(piece: &[u8]) -> Vec<Vec<u8>> {
    let each = |write: fn(&u8) -> String, between: &str| {
        piece.iter().map(write).collect::<Vec<_>>().join(between).into_bytes()
    };
    let hex = |byte: &u8| format!("{byte:02x}");
    vec![
        piece.to_ascii_lowercase(),
        each(hex, ""),
        each(hex, " "),
        each(hex, ":"),
        each(|byte| format!("%{byte:02x}"), ""),
        each(|byte| format!("\\x{byte:02x}"), ""),
        each(|byte| format!("\\u00{byte:02x}"), ""),
        each(|byte| format!("&#{byte};"), ""),
        each(u8::to_string, ", "),
        each(u8::to_string, ","),
    ]
}

#[test]
fn each_form_of_a_secret_is_found() {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let odd = super::kinds::odd("of the search");
    let binary: Vec<u8> = (0..32_u8).map(|n| n.wrapping_mul(151).wrapping_add(130)).collect();
    let mut search = Search::default();
    search.add("odd", odd.as_bytes());
    search.add("binary", &binary);
    type Write = fn(&[u8]) -> Vec<u8>;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let forms: [(&str, Write); 17] = [
        ("plain", <[u8]>::to_vec),
        ("another case", <[u8]>::to_ascii_lowercase),
        ("base64", |it| STANDARD.encode(it).into()),
        ("base64 after one", |it| STANDARD.encode([b"x", it, b"yz"].concat()).into()),
        ("base64 after two", |it| STANDARD.encode([b"u:", it].concat()).into()),
        ("base64url", |it| URL_SAFE_NO_PAD.encode(it).into()),
        ("base64url after one", |it| URL_SAFE_NO_PAD.encode([b"\xff", it].concat()).into()),
        ("base64url after two", |it| URL_SAFE_NO_PAD.encode([b"\xff\xfe", it].concat()).into()),
        ("percent", |it| url::form_urlencoded::byte_serialize(it).collect::<String>().into()),
        ("all percent", |it| {
            it.iter().map(|byte| format!("%{byte:02X}")).collect::<String>().into()
        }),
        ("json", |it| serde_json::json!(String::from_utf8_lossy(it)).to_string().into()),
        ("twice json", |it| {
            let once = serde_json::json!(String::from_utf8_lossy(it)).to_string();
            serde_json::json!(once).to_string().into()
        }),
        ("escaped json", |it| {
            it.iter().map(|byte| format!("\\u{byte:04X}")).collect::<String>().into()
        }),
        ("debug", |it| format!("{it:?}").into()),
        ("debug of a text", |it| format!("{:?}", String::from_utf8_lossy(it)).into()),
        ("its beginning", |it| it[..it.len() / 2 + 2].to_vec()),
        ("its end", |it| it[it.len() / 2 - 2..].to_vec()),
    ];
    for (name, write) in forms {
        let around = |form: Vec<u8>| [&b"{\"at\":\""[..], &form, b"\"}"].concat();
        let found = around(write(odd.as_bytes()));
        assert!(search.found(&found).contains_key("odd"), "{name}");
        assert!(!search.found(&found).contains_key("binary"), "{name}");
        // Of what is no text these lose the bytes themselves.
        if !matches!(name, "json" | "twice json" | "debug of a text" | "percent") {
            assert!(search.found(&around(write(&binary))).contains_key("binary"), "{name}");
        }
    }
    assert!(search.found(hex(odd.as_bytes()).as_bytes()).contains_key("odd"));
    assert!(search.found(hex(&binary).to_ascii_uppercase().as_bytes()).contains_key("binary"));
    assert!(search.found(b"nothing of the kind").is_empty());
}
