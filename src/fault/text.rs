//! Text for people at a terminal: colour, width, and nothing in it that could draw.

/// The widest line that is written for people.
pub const WIDTH: usize = 120;

/// Colours, or nothing where nobody wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    pub fn new(colour: bool) -> Self {
        Self(colour)
    }

    pub fn bold(self) -> &'static str {
        self.on("\x1b[1m")
    }

    pub fn dim(self) -> &'static str {
        self.on("\x1b[2m")
    }

    pub fn red(self) -> &'static str {
        self.on("\x1b[1;31m")
    }

    pub fn yellow(self) -> &'static str {
        self.on("\x1b[1;33m")
    }

    pub fn green(self) -> &'static str {
        self.on("\x1b[1;32m")
    }

    pub fn reset(self) -> &'static str {
        self.on("\x1b[0m")
    }

    fn on(self, code: &'static str) -> &'static str {
        if self.0 { code } else { "" }
    }
}

/// Text from elsewhere must not be able to draw on the terminal that shows it.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            c if c.is_control() || is_directional(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Marks that turn the direction of the text after them.
fn is_directional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Breaks a text at its spaces so that no line is wider. The first line begins at column
/// `indent`, and the others are indented to it.
pub fn wrap(text: &str, indent: usize, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent {
            if column + 1 + length > width {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            } else {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_spaces_and_goes_on_below_where_it_began() {
        assert_eq!(wrap("one two three", 4, 12), "one two\n    three");
        assert_eq!(wrap("one", 4, 5), "one");
        assert_eq!(wrap("unbreakable word", 0, 4), "unbreakable\nword");
    }

    #[test]
    fn what_could_draw_is_spelled_out() {
        assert_eq!(escape("a\x1b[31m\tb\u{202e}"), "a\\u{1b}[31m b\\u{202e}");
    }
}
