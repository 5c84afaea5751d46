//! Documents for property tests: a tree, and the many ways to write the same one down.

use proptest::{collection::vec, prelude::*};

/// A JSON value, apart from how it is spelled.
#[derive(Debug, Clone)]
pub(super) enum Sample {
    Name(&'static str),
    /// Digits times a power of ten.
    Number {
        negative: bool,
        digits: u64,
        power: i64,
    },
    String(String),
    Array(Vec<Sample>),
    Object(Vec<(String, Sample)>),
}

/// Trees whose objects have names that are often, or never, the same.
pub(super) fn sample(unique: bool) -> impl Strategy<Value = Sample> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["true", "false", "null"]).prop_map(Sample::Name),
        number(),
        text().prop_map(Sample::String),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let name = prop_oneof![prop::sample::select(vec!["a", "b", "é"]).prop_map_into(), text()];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Sample::Array),
            vec((name, inner), 0..6).prop_map(move |mut members| {
                let mut seen = Vec::new();
                members.retain(|(name, _)| {
                    let new = !seen.contains(name);
                    seen.push(name.clone());
                    new || !unique
                });
                Sample::Object(members)
            }),
        ]
    })
}

pub(super) fn number() -> impl Strategy<Value = Sample> {
    let digits = prop_oneof![0..20u64, any::<u64>(), (0..9u64).prop_map(|n| n * 10_000)];
    let power = prop_oneof![Just(0), -30..30i64, any::<i32>().prop_map(i64::from)];
    (any::<bool>(), digits, power).prop_map(|(negative, digits, power)| Sample::Number {
        negative,
        digits,
        power,
    })
}

fn text() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        prop::char::range(' ', '~'),
        prop::sample::select(vec!['"', '\\', '/', '\n', '\t', '\0', '\u{1f}', '\u{7f}']),
        prop::sample::select(vec!['é', '你', '\u{e000}', '\u{ffff}', '😀', '\u{10ffff}']),
    ];
    prop_oneof![
        4 => vec(char.clone(), 0..12).prop_map(String::from_iter),
        1 => vec(char, 60..200).prop_map(String::from_iter),
    ]
}

impl Sample {
    /// Whether an object in it names a member twice.
    pub(super) fn has_duplicates(&self) -> bool {
        match self {
            Sample::Array(elements) => elements.iter().any(Self::has_duplicates),
            Sample::Object(members) => members.iter().enumerate().any(|(index, (name, value))| {
                members.iter().skip(index + 1).any(|(other, _)| other == name)
                    || value.has_duplicates()
            }),
            _ => false,
        }
    }

    /// Writes it down; every choice there is to make is taken from `whims`, again and again.
    pub(super) fn write(&self, whims: &[u8]) -> String {
        let mut writer = Writer { out: String::new(), whims: whims.iter().cycle() };
        writer.space();
        writer.value(self);
        writer.space();
        writer.out
    }
}

/// Enough choices that few are taken twice; at times always the plainest one.
pub(super) fn whims() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => Just(vec![0]), 3 => vec(any::<u8>(), 1..64)]
}

struct Writer<'w> {
    out: String,
    whims: std::iter::Cycle<std::slice::Iter<'w, u8>>,
}

impl Writer<'_> {
    fn whim(&mut self, choices: usize) -> usize {
        usize::from(*self.whims.next().unwrap()) % choices
    }

    fn space(&mut self) {
        self.one_of(&["", "", " ", "\n         ", "\t\r\n"]);
    }

    fn value(&mut self, sample: &Sample) {
        match sample {
            Sample::Name(name) => self.out.push_str(name),
            Sample::Number { negative, digits, power } => self.number(*negative, *digits, *power),
            Sample::String(text) => self.string(text),
            Sample::Array(elements) => self.list('[', elements, Self::value, ']'),
            Sample::Object(members) => {
                // The order of members is a whim too.
                let mut members: Vec<_> = members.iter().collect();
                if !members.is_empty() {
                    let by = self.whim(members.len());
                    members.rotate_left(by);
                }
                let member = |writer: &mut Self, (name, value): &&(String, Sample)| {
                    writer.string(name);
                    writer.space();
                    writer.out.push(':');
                    writer.space();
                    writer.value(value);
                };
                self.list('{', &members, member, '}');
            }
        }
    }

    fn list<T>(&mut self, open: char, items: &[T], write: impl Fn(&mut Self, &T), close: char) {
        self.out.push(open);
        self.space();
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
                self.space();
            }
            write(self, item);
            self.space();
        }
        self.out.push(close);
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for char in text.chars() {
            let short = "\"\"\\\\//\u{8}b\u{c}f\nn\rr\tt";
            let short = short.chars().step_by(2).zip(short.chars().skip(1).step_by(2));
            let letter = short.into_iter().find(|(of, _)| *of == char).map(|(_, letter)| letter);
            match self.whim(4) {
                0 | 1 if !matches!(char, '"' | '\\' | ..' ') => self.out.push(char),
                0..3 if letter.is_some() => self.out.extend(['\\', letter.unwrap()]),
                _ => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let upper = self.whim(2) == 1;
                        let digits =
                            if upper { format!("{unit:04X}") } else { format!("{unit:04x}") };
                        self.out.push_str("\\u");
                        self.out.push_str(&digits);
                    }
                }
            }
        }
        self.out.push('"');
    }

    fn number(&mut self, negative: bool, digits: u64, power: i64) {
        let mut digits = digits.to_string();
        let mut power = power;
        for _ in 0..if digits == "0" { 0 } else { self.whim(3) } {
            digits.push('0');
            power -= 1;
        }
        // A point somewhere, with zeros before it if need be.
        let point = self.whim(digits.len() + 3);
        let fraction = point.min(digits.len() + 2);
        if fraction > 0 {
            let missing = (fraction + 1).saturating_sub(digits.len());
            digits.insert_str(0, &"0".repeat(missing));
            digits.insert(digits.len() - fraction, '.');
            power += fraction as i64;
        }
        if negative {
            self.out.push('-');
        }
        self.out.push_str(&digits);
        if power != 0 || self.whim(4) == 3 {
            self.one_of(&["e", "E"]);
            self.one_of(if power < 0 { &["-"] } else { &["", "+"] });
            self.one_of(&["", "0", "000"]);
            self.out.push_str(&power.unsigned_abs().to_string());
        }
    }

    fn one_of(&mut self, choices: &[&str]) {
        let choice = self.whim(choices.len());
        self.out.push_str(choices[choice]);
    }
}
