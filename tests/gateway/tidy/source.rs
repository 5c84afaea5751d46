//! Reads as much of Rust as the checks need: words and signs without comments and
//! literals, and the module paths a file names. It knows nothing of macros' output and
//! nothing of what a glob brings in.

use std::{collections::BTreeSet, fs, path::Path};

/// One file of the project.
#[derive(Debug)]
pub struct Source {
    /// From the root of the project, with `/`.
    pub path: String,
    pub text: String,
}

/// A path from the root of the crate, and the line that names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    pub line: usize,
    pub path: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Path,
    Sign(char),
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Every Rust file below a folder, in the order of their names.
    pub fn below(root: &Path, folder: &str) -> Vec<Self> {
        let mut found = Vec::new();
        let mut folders = vec![root.join(folder)];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry.expect("a readable folder").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = path.strip_prefix(root).expect("below the root");
                    let text = fs::read_to_string(&path).expect("a readable file");
                    found.push(Self::new(&name.to_string_lossy().replace('\\', "/"), &text));
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// The module a file below `src/` is; the root of the library is the empty path.
    pub fn module(&self) -> Vec<String> {
        let path = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let mut module: Vec<String> = path.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| last == "mod" || last == "lib") {
            module.pop();
        }
        module
    }

    /// The paths this file names by `crate::`, `self::` or `super::`, in `use` or in place.
    pub fn named(&self) -> Vec<Named> {
        let tokens = tokens(&self.text);
        let mut walk = Walk { tokens: &tokens, at: 0, found: Vec::new() };
        let module = self.module();
        // For each open brace the inline module it belongs to, if it is one's.
        let mut open: Vec<Option<String>> = Vec::new();
        let mut opening = None;
        while let Some((_, token)) = tokens.get(walk.at) {
            match token {
                Token::Sign('{') => open.push(opening.take()),
                Token::Sign('}') => drop(open.pop()),
                Token::Word(word) if word == "mod" => {
                    if let (Some(name), Some(Token::Sign('{'))) = (walk.word(1), walk.sign(2)) {
                        opening = Some(name.to_owned());
                    }
                }
                Token::Word(word) if walk.sign(1) == Some(&Token::Path) => {
                    let here = || module.iter().chain(open.iter().flatten()).cloned().collect();
                    let base: Option<Vec<String>> = match word.as_str() {
                        "crate" => Some(Vec::new()),
                        "self" => Some(here()),
                        "super" => Some(above(here())),
                        _ => None,
                    };
                    if let Some(base) = base {
                        walk.at += 1;
                        walk.tree(base);
                        continue;
                    }
                }
                _ => {}
            }
            walk.at += 1;
        }
        walk.found
    }

    /// What follows `name::` anywhere in this file.
    pub fn used_of(&self, name: &str) -> BTreeSet<String> {
        let tokens = tokens(&self.text);
        let walk = |at| Walk { tokens: &tokens, at, found: Vec::new() };
        (0..tokens.len())
            .map(walk)
            .filter(|walk| walk.word(0) == Some(name) && walk.sign(1) == Some(&Token::Path))
            .filter_map(|walk| walk.word(2).map(str::to_owned))
            .collect()
    }

    /// Lines where a macro of that name is called.
    pub fn calls_of(&self, name: &str) -> Vec<usize> {
        let tokens = tokens(&self.text);
        (0..tokens.len())
            .map(|at| Walk { tokens: &tokens, at, found: Vec::new() })
            .filter(|walk| walk.word(0) == Some(name) && walk.sign(1) == Some(&Token::Sign('!')))
            .filter_map(|walk| tokens.get(walk.at).map(|(line, _)| *line))
            .collect()
    }

    /// The modules that this file declares.
    pub fn declares(&self) -> Vec<String> {
        let tokens = tokens(&self.text);
        (0..tokens.len())
            .map(|at| Walk { tokens: &tokens, at, found: Vec::new() })
            .filter(|walk| walk.word(0) == Some("mod"))
            .filter(|walk| walk.sign(2) == Some(&Token::Sign(';')))
            .filter_map(|walk| walk.word(1).map(str::to_owned))
            .collect()
    }
}

// === impl Walk ===

struct Walk<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    found: Vec<Named>,
}

impl Walk<'_> {
    fn sign(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(_, token)| token)
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.sign(ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Reads on from a `::` after `base`, through nested braces, and notes each leaf.
    fn tree(&mut self, mut base: Vec<String>) {
        let line = self.tokens.get(self.at).map_or(0, |(line, _)| *line);
        while self.sign(0) == Some(&Token::Path) {
            if self.sign(1) == Some(&Token::Sign('{')) {
                self.at += 2;
                return self.branches(&base);
            }
            let Some(word) = self.word(1) else {
                self.at += 1;
                break;
            };
            base = extended(base, word);
            self.at += 2;
        }
        self.found.push(Named { line, path: base });
    }

    fn branches(&mut self, base: &[String]) {
        loop {
            match self.sign(0) {
                None => return,
                Some(Token::Sign('}')) => {
                    self.at += 1;
                    return;
                }
                Some(Token::Word(word)) if word == "as" => self.at += 2,
                Some(Token::Word(word)) => {
                    let base = extended(base.to_vec(), word);
                    self.at += 1;
                    self.tree(base);
                }
                Some(_) => self.at += 1,
            }
        }
    }
}

fn extended(mut base: Vec<String>, word: &str) -> Vec<String> {
    match word {
        "self" => base,
        "super" => above(base),
        _ => {
            base.push(word.to_owned());
            base
        }
    }
}

fn above(mut path: Vec<String>) -> Vec<String> {
    path.pop();
    path
}

/// The words and signs of a file with their lines; comments and literals are left out.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let peek = |at: usize| chars.get(at).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let begin = at;
        match peek(at) {
            '/' if peek(at + 1) == '/' => at = find(&chars, at, |at| peek(at) == '\n'),
            '/' if peek(at + 1) == '*' => at = comment_end(&chars, at),
            '"' => at = string_end(&chars, at, 0),
            '\'' => at = quote_end(&chars, at),
            ':' if peek(at + 1) == ':' => {
                tokens.push((line, Token::Path));
                at += 2;
            }
            first if first.is_alphanumeric() || first == '_' => {
                at = find(&chars, at, |at| !(peek(at).is_alphanumeric() || peek(at) == '_'));
                let word: String = part(&chars, begin, at).iter().collect();
                let hashes = find(&chars, at, |at| peek(at) != '#') - at;
                let prefix = matches!(word.as_str(), "r" | "b" | "c" | "br" | "cr");
                if prefix && peek(at + hashes) == '"' {
                    let raw = word.contains('r');
                    at = string_end(&chars, at + hashes, if raw { hashes + 1 } else { 0 });
                } else {
                    tokens.push((line, Token::Word(word)));
                }
            }
            sign => {
                if !sign.is_whitespace() {
                    tokens.push((line, Token::Sign(sign)));
                }
                at += 1;
            }
        }
        line += part(&chars, begin, at).iter().filter(|c| **c == '\n').count();
    }
    tokens
}

fn part(chars: &[char], from: usize, to: usize) -> &[char] {
    chars.get(from..to).unwrap_or_default()
}

/// Where something holds first, at or after a place; else the end.
fn find(chars: &[char], from: usize, holds: impl Fn(usize) -> bool) -> usize {
    (from..chars.len()).find(|at| holds(*at)).unwrap_or(chars.len())
}

fn comment_end(chars: &[char], from: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = from;
    while at < chars.len() {
        match chars.get(at..at + 2) {
            Some(['/', '*']) => depth += 1,
            Some(['*', '/']) => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Past a string whose opening quote is at `from`; `guard` is one more than the number
/// of `#` of a raw one, 0 for one with escapes.
fn string_end(chars: &[char], from: usize, guard: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars.get(at) {
            Some('\\') if guard == 0 => at += 1,
            Some('"') => {
                let hashes = guard.saturating_sub(1);
                if part(chars, at + 1, at + 1 + hashes).iter().filter(|c| **c == '#').count()
                    == hashes
                {
                    return at + 1 + hashes;
                }
            }
            _ => {}
        }
        at += 1;
    }
    chars.len()
}

/// Past a character; a lifetime loses its quote only.
fn quote_end(chars: &[char], from: usize) -> usize {
    if chars.get(from + 1) == Some(&'\\') {
        return find(chars, from + 3, |at| chars.get(at) == Some(&'\'')) + 1;
    }
    if chars.get(from + 2) == Some(&'\'') { from + 3 } else { from + 1 }
}
