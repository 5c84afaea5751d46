//! Text as it is read by a model, made plain: what nobody sees taken out, what looks alike made
//! the same.

use unicode_normalization::UnicodeNormalization;

/// Letters of other scripts that look like Latin ones, and those.
const LOOKALIKES: [(char, char); 58] = [
    ('а', 'a'),
    ('е', 'e'),
    ('о', 'o'),
    ('р', 'p'),
    ('с', 'c'),
    ('у', 'y'),
    ('х', 'x'),
    ('і', 'i'),
    ('ј', 'j'),
    ('ѕ', 's'),
    ('һ', 'h'),
    ('ԁ', 'd'),
    ('ԛ', 'q'),
    ('ԝ', 'w'),
    ('ӏ', 'l'),
    ('ɡ', 'g'),
    ('ν', 'v'),
    ('ο', 'o'),
    ('ρ', 'p'),
    ('ϲ', 'c'),
    ('ι', 'i'),
    ('κ', 'k'),
    ('υ', 'u'),
    ('ⅼ', 'l'),
    ('ı', 'i'),
    ('А', 'a'),
    ('В', 'b'),
    ('Е', 'e'),
    ('К', 'k'),
    ('М', 'm'),
    ('Н', 'h'),
    ('О', 'o'),
    ('Р', 'p'),
    ('С', 'c'),
    ('Т', 't'),
    ('У', 'y'),
    ('Х', 'x'),
    ('І', 'i'),
    ('Ј', 'j'),
    ('Ѕ', 's'),
    ('Α', 'a'),
    ('Β', 'b'),
    ('Ε', 'e'),
    ('Ζ', 'z'),
    ('Η', 'h'),
    ('Ι', 'i'),
    ('Κ', 'k'),
    ('Μ', 'm'),
    ('Ν', 'n'),
    ('Ο', 'o'),
    ('Ρ', 'p'),
    ('Τ', 't'),
    ('Υ', 'y'),
    ('Χ', 'x'),
    ('Ꭺ', 'a'),
    ('Ꭼ', 'e'),
    ('Ꮪ', 's'),
    ('Ꭲ', 't'),
];

/// What only says how a text is set.
const EMPHASIS: [char; 5] = ['*', '`', '"', '“', '”'];

/// The Latin letter, in lower case, that a letter of another script looks like.
pub fn looks_like(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    LOOKALIKES.iter().find(|(other, _)| *other == c).map(|(_, latin)| *latin)
}

/// Whether nobody sees it, in most texts.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The first character that has no business in a text, if there is one. Emoji, and scripts that
/// are joined or run from right to left, need some of what is invisible elsewhere.
pub fn stranger(text: &str) -> Option<char> {
    // Nearly every text.
    if text.bytes().all(|b| (0x20..0x7f).contains(&b) || matches!(b, b'\n' | b'\t' | b'\r')) {
        return None;
    }
    let runs_left = text.chars().any(
        |c| matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'),
    );
    let mut before = ' ';
    let mut is_flag = false;
    for c in text.chars() {
        let is_fine = match c {
            '\n' | '\t' | '\r' => true,
            // A hyphen that shows at the end of a line only.
            '\u{ad}' => true,
            '\u{200c}' | '\u{200d}' => before >= '\u{600}' && !before.is_ascii(),
            '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2066}'..='\u{2069}' => runs_left,
            '\u{fe00}'..='\u{fe0f}' => {
                !before.is_ascii() || before.is_ascii_digit() || matches!(before, '#' | '*')
            }
            '\u{180b}'..='\u{180d}' | '\u{180f}' => ('\u{1800}'..='\u{18af}').contains(&before),
            '\u{115f}' | '\u{1160}' => ('\u{1100}'..='\u{11ff}').contains(&before),
            '\u{e0100}'..='\u{e01ef}' => {
                matches!(before, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
            }
            // The flags of England, Scotland and Wales.
            '\u{e0020}'..='\u{e007f}' => is_flag,
            c => !c.is_control() && !is_invisible(c),
        };
        if !is_fine {
            return Some(c);
        }
        is_flag = c == '\u{1f3f4}' || (is_flag && ('\u{e0020}'..'\u{e007f}').contains(&c));
        before = c;
    }
    None
}

/// What a character is called that nobody sees.
pub fn called(c: char) -> String {
    let what = match c {
        '\u{200b}' => "zero width space",
        '\u{200c}' | '\u{200d}' => "zero width joiner",
        '\u{2060}'..='\u{2064}' => "invisible operator",
        '\u{feff}' => "byte order mark",
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            "it changes the direction in which text is shown"
        }
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => "variation selector",
        '\u{e0000}'..='\u{e007f}' => "tag character: hidden text",
        '\u{1b}' => "begins a command to a terminal",
        c if c.is_control() => "control character",
        _ => "shown as nothing",
    };
    format!("U+{:04X} ({what})", c as u32)
}

/// What tag characters spell.
pub fn tagged(text: &str) -> Option<String> {
    let tags = text.chars().filter(|c| ('\u{e0020}'..='\u{e007e}').contains(c));
    let spelled: String = tags.filter_map(|c| char::from_u32(c as u32 - 0xe0000)).collect();
    (!spelled.is_empty()).then_some(spelled)
}

/// Lower case, in compatibility form, without what nobody sees and without marks of emphasis; one
/// space where there was any.
pub fn plain(text: &str) -> String {
    if text.is_ascii() { made_plain(text.chars()) } else { made_plain(text.nfkc()) }
}

fn made_plain(text: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    let mut text = text.filter(|c| !is_invisible(*c) && !EMPHASIS.contains(c)).peekable();
    while let Some(c) = text.next() {
        let ends_word =
            |c: char| c.is_whitespace() || matches!(c, '.' | ',' | ';' | ':' | '!' | '?');
        match c {
            '_' if out.is_empty() || out.ends_with(' ') => {}
            '_' if text.peek().is_none_or(|next| ends_word(*next)) => {}
            '\u{2018}' | '\u{2019}' | '\u{2bc}' => out.push('\''),
            '\u{2010}'..='\u{2015}' => out.push('-'),
            c if c.is_whitespace() || c.is_control() => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

/// The same with Latin letters for those that look like them; `None` where there are none.
pub fn folded(plain: &str) -> Option<String> {
    if plain.is_ascii() || !plain.chars().any(|c| looks_like(c).is_some()) {
        return None;
    }
    Some(plain.chars().map(|c| looks_like(c).unwrap_or(c)).collect())
}

/// The first word that mixes Latin letters with others that look like them.
pub fn mixed(text: &str) -> Option<&str> {
    if text.is_ascii() {
        return None;
    }
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.into_iter().find(|word| {
        word.chars().any(|c| c.is_ascii_alphabetic())
            && word.chars().any(|c| looks_like(c).is_some())
    })
}

/// The words of a name, in lower case: `readFile`, `read_file` and `read-file` have the same.
pub fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = '\0';
    for c in name.chars() {
        let begins = c.is_uppercase() && before.is_lowercase();
        if (begins || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
