//! What stands in one line: keys, flow collections, quotes and comments.

/// How many lines belong to the first: those within its brackets and quotes.
pub fn logical_lines(lines: &[&str]) -> usize {
    let mut state = Scan::default();
    for (index, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        if !state.line(text, index == 0) {
            return index + 1;
        }
    }
    // Never closed: the reader has its own words for that.
    1
}

#[derive(Default)]
struct Scan {
    depth: usize,
    quote: Option<char>,
}

impl Scan {
    /// Reads a line; whether the next one belongs to it.
    fn line(&mut self, text: &str, first: bool) -> bool {
        let mut before = ' ';
        // Brackets and quotes mean something where a value begins, and inside of brackets.
        let mut value_begins = true;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (self.quote, c) {
                (Some('"'), '\\') => {
                    chars.next();
                }
                (Some('\''), '\'') if chars.peek() == Some(&'\'') => {
                    chars.next();
                }
                (Some(open), c) if c == open => self.quote = None,
                (Some(_), _) => {}
                (None, '#') if before.is_whitespace() => break,
                (None, '"' | '\'') if value_begins => self.quote = Some(c),
                (None, '[' | '{') if value_begins || self.depth > 0 => self.depth += 1,
                (None, ']' | '}') if self.depth > 0 => self.depth -= 1,
                _ => {}
            }
            value_begins = match c {
                ' ' | '\t' => value_begins || matches!(before, ':' | '-'),
                ',' | '[' | '{' => self.depth > 0,
                ':' if self.depth > 0 => true,
                '-' => first && value_begins && before == ' ' && chars.peek() == Some(&' '),
                _ => false,
            };
            before = c;
        }
        self.depth > 0 || self.quote.is_some()
    }
}

/// Whether a block text follows: `key: |`, `- >-`.
pub fn opens_block_scalar(line: &str) -> bool {
    let line = split_comment(line).0.trim_end();
    let last = line.rsplit(' ').next().unwrap_or_default();
    let mut chars = last.chars();
    matches!(chars.next(), Some('|' | '>')) && chars.all(|c| matches!(c, '+' | '-' | '1'..='9'))
}

/// A line with one space where one is enough; `None` for what is not understood.
pub fn tidy(text: &str) -> Option<String> {
    let (body, comment) = split_comment(text);
    let body = tidy_body(body.trim_end())?;
    Some(match (body.is_empty(), comment) {
        (true, comment) => comment.to_owned(),
        (false, "") => body,
        (false, comment) => format!("{body}  {comment}"),
    })
}

/// Several lines of one value as one, if there are no comments among them.
pub fn join(parts: &[&str]) -> Option<String> {
    let inner = parts.split_last().map(|(_, inner)| inner)?;
    let commented = |part: &&str| !split_comment(part).1.is_empty();
    if inner.iter().any(commented) {
        return None;
    }
    let (joined, text) = (parts.join(" "), parts.first()?);
    // A quoted text is folded by other rules.
    let value = key_end(text).map_or(*text, |end| text.get(end..).unwrap_or_default());
    if !value.trim_start().starts_with(['[', '{']) {
        return None;
    }
    tidy(&joined)
}

/// The text and its comment, which begins with `#` after a blank, outside of quotes.
fn split_comment(text: &str) -> (&str, &str) {
    let mut quote = None;
    let mut before = ' ';
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('"'), '\\') => {
                chars.next();
            }
            (Some('\''), '\'') if chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                chars.next();
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '#') if before.is_whitespace() => return text.split_at(at),
            (None, '"' | '\'') if matches!(before, ' ' | '[' | '{' | ',' | ':') => quote = Some(c),
            _ => {}
        }
        before = c;
    }
    (text, "")
}

fn tidy_body(body: &str) -> Option<String> {
    let Some(end) = key_end(body) else { return tidy_value(body) };
    let (key, value) = body.split_at(end);
    let value = value.trim_start();
    if value.is_empty() {
        return Some(key.to_owned());
    }
    Some(format!("{key} {}", tidy_value(value)?))
}

/// The end of `key:`, where a block mapping's key begins the line.
fn key_end(body: &str) -> Option<usize> {
    if body.starts_with(['[', '{']) {
        return None;
    }
    let mut quote = None;
    for (at, c) in body.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') if at == 0 => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ':') => {
                let rest = body.get(at + 1..)?;
                if rest.is_empty() || rest.starts_with([' ', '\t']) {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn tidy_value(value: &str) -> Option<String> {
    // An anchor stands before what it names.
    if value.starts_with('&')
        && let Some((anchor, rest)) = value.split_once(' ')
    {
        return Some(format!("{anchor} {}", tidy_value(rest.trim_start())?));
    }
    if !value.starts_with(['[', '{']) {
        return Some(value.to_owned());
    }
    let (text, rest) = collection(value)?;
    rest.trim().is_empty().then_some(text)
}

/// A flow collection at the beginning of a text, tidy, and what follows it.
fn collection(text: &str) -> Option<(String, &str)> {
    let open = text.chars().next()?;
    let close = if open == '[' { ']' } else { '}' };
    let mut rest = text.get(1..)?.trim_start();
    let mut parts = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(close) {
            let inside = parts.join(", ");
            let text = match (open, inside.is_empty()) {
                (_, true) => format!("{open}{close}"),
                ('[', false) => format!("[{inside}]"),
                (_, false) => format!("{{ {inside} }}"),
            };
            return Some((text, after));
        }
        let (mut part, after) = node(rest)?;
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(':') {
            let after = after.trim_start();
            if after.starts_with([',', close]) {
                part.push(':');
                rest = after;
            } else {
                let (value, after) = node(after)?;
                part = format!("{part}: {value}");
                rest = after.trim_start();
            }
        }
        parts.push(part);
        rest = match rest.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if rest.starts_with(close) => rest,
            None => return None,
        };
    }
}

/// A value within a flow collection, and what follows it.
fn node(text: &str) -> Option<(String, &str)> {
    match text.chars().next()? {
        '[' | '{' => collection(text),
        open @ ('"' | '\'') => {
            let mut chars = text.char_indices().skip(1).peekable();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' if open == '"' => {
                        chars.next();
                    }
                    c if c == open => {
                        // Two of them are one in the text.
                        if open == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') {
                            chars.next();
                            continue;
                        }
                        let (quoted, rest) = text.split_at(at + 1);
                        return Some((quoted.to_owned(), rest));
                    }
                    _ => {}
                }
            }
            None
        }
        _ => {
            let end = text.char_indices().find(|(at, c)| match c {
                ',' | ']' | '}' | '[' | '{' => true,
                ':' => text
                    .get(at + 1..)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',', ']', '}'])),
                _ => false,
            });
            let (plain, rest) = text.split_at(end.map_or(text.len(), |(at, _)| at));
            let plain = plain.trim_end();
            (!plain.is_empty()).then(|| (plain.to_owned(), rest))
        }
    }
}
