//! YAML written evenly: two spaces a level, one space where one is enough, comments where they
//! stood. It works on the text, so that nothing it does not understand is lost: such lines are
//! only indented. Whether the text still says the same is for the caller to compare.

mod flow;

/// The widest line that several are joined to.
const JOINED: usize = 100;

/// Writes a text evenly. Done twice, it changes nothing the second time.
pub fn format(text: &str) -> String {
    let mut writer = Writer::default();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut rest = lines.as_slice();
    while let Some((first, more)) = rest.split_first() {
        let trimmed = first.trim_start();
        if trimmed.is_empty() {
            writer.blank = true;
            rest = more;
        } else if trimmed.starts_with('#') {
            let blank = std::mem::take(&mut writer.blank);
            writer.comments.push((indent_of(first), trimmed, blank));
            rest = more;
        } else if matches!(*first, "---" | "...")
            || first.starts_with("--- ")
            || first.starts_with('%')
        {
            writer.flush_comments(None);
            writer.levels.clear();
            writer.push(0, first);
            rest = more;
        } else {
            let count = flow::logical_lines(rest);
            let (own, after) = rest.split_at(count.clamp(1, rest.len()));
            rest = writer.content(own, after);
        }
    }
    writer.flush_comments(None);
    writer.out
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// A depth of the text as it was, and as it is written.
#[derive(Debug, Clone, Copy)]
struct Level {
    was: usize,
    is: usize,
    item: bool,
}

#[derive(Default)]
struct Writer<'t> {
    out: String,
    levels: Vec<Level>,
    /// Comments that belong to what comes next, with their indentation.
    comments: Vec<(usize, &'t str, bool)>,
    /// A blank line stands before what comes next.
    blank: bool,
}

impl<'t> Writer<'t> {
    fn push(&mut self, indent: usize, line: &str) {
        if self.blank && !self.out.is_empty() {
            self.out.push('\n');
        }
        self.blank = false;
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.out.push_str(line);
        self.out.push('\n');
    }

    /// Writes waiting comments, beside the line they stand above if they were indented like it.
    fn flush_comments(&mut self, next: Option<(usize, usize)>) {
        let after = self.blank;
        for (was, comment, blank) in std::mem::take(&mut self.comments) {
            self.blank = blank;
            let indent = match next {
                Some((next_was, next_is)) if next_was == was => next_is,
                _ => self.mapped(was),
            };
            self.push(indent, comment);
        }
        self.blank = after;
    }

    fn mapped(&self, was: usize) -> usize {
        let same = self.levels.iter().find(|level| level.was == was);
        let above = self.levels.iter().rev().find(|level| level.was < was);
        same.map_or_else(|| above.map_or(0, |level| level.is + 2), |level| level.is)
    }

    /// Writes a line with something in it, and the lines that belong to it.
    fn content(&mut self, own: &[&'t str], after: &'t [&'t str]) -> &'t [&'t str] {
        let Some(first) = own.first() else { return after };
        let was = indent_of(first);
        let text = first.trim_start();
        let is = self.enter(was, is_item(text));
        self.flush_comments(Some((was, is)));
        let (dashes, text) = self.enter_items(was, is, text);
        if own.len() > 1 {
            self.several(is, &dashes, text, own.get(1..).unwrap_or_default());
            return after;
        }
        let line = flow::tidy(text).unwrap_or_else(|| text.to_owned());
        let header = line.clone();
        self.push(is, &format!("{dashes}{line}"));
        if flow::opens_block_scalar(&header) {
            return self.block_scalar(was, is, after);
        }
        after
    }

    /// The indentation for a line, whose depth is entered.
    fn enter(&mut self, was: usize, item: bool) -> usize {
        while self
            .levels
            .last()
            .is_some_and(|level| level.was > was || (level.was == was && level.item && !item))
        {
            self.levels.pop();
        }
        match self.levels.last().copied() {
            Some(level) if level.was == was && level.item == item => level.is,
            // A list may stand below its key without being indented.
            Some(level) => {
                self.levels.push(Level { was, is: level.is + 2, item });
                level.is + 2
            }
            None => {
                self.levels.push(Level { was, is: 0, item });
                0
            }
        }
    }

    /// Enters what stands behind dashes on the same line.
    fn enter_items(&mut self, was: usize, is: usize, text: &'t str) -> (String, &'t str) {
        let (mut dashes, mut rest, mut was, mut is) = (String::new(), text, was, is);
        while is_item(rest) {
            let behind = rest.get(1..).unwrap_or_default();
            let trimmed = behind.trim_start();
            dashes.push('-');
            if trimmed.is_empty() {
                return (dashes, "");
            }
            dashes.push(' ');
            was += 1 + behind.len() - trimmed.len();
            is += 2;
            self.levels.push(Level { was, is, item: is_item(trimmed) });
            rest = trimmed;
        }
        (dashes, rest)
    }

    /// A value over several lines: one line if it fits, else as it was broken.
    fn several(&mut self, is: usize, dashes: &str, first: &str, more: &[&str]) {
        let parts: Vec<&str> = [first].into_iter().chain(more.iter().map(|l| l.trim())).collect();
        let joined =
            flow::join(&parts).filter(|line| is + dashes.len() + line.chars().count() <= JOINED);
        if let Some(line) = joined {
            self.push(is, &format!("{dashes}{line}"));
            return;
        }
        self.push(is, &format!("{dashes}{first}"));
        for line in more {
            let text = line.trim_start();
            if text.is_empty() {
                self.out.push('\n');
                continue;
            }
            let closes = text.starts_with([']', '}']);
            let deeper = if closes { 0 } else { 2 };
            self.push(is + dashes.len() + deeper, text);
        }
    }

    /// The text below `|` or `>`, shifted as a whole.
    fn block_scalar(&mut self, was: usize, is: usize, after: &'t [&'t str]) -> &'t [&'t str] {
        let inside = |line: &&&str| line.is_empty() || indent_of(line) > was;
        let mut count = after.iter().take_while(inside).count();
        // Blank lines at its end belong to what follows.
        while count > 0 && after.get(count - 1).is_some_and(|line| line.is_empty()) {
            count -= 1;
        }
        let (own, rest) = after.split_at(count);
        let least = own.iter().filter(|line| !line.is_empty()).map(|line| indent_of(line)).min();
        for line in own {
            let text = line.get(least.unwrap_or(0)..).unwrap_or_default();
            if text.is_empty() {
                self.out.push('\n');
            } else {
                self.push(is + 2, text);
            }
        }
        rest
    }
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

#[cfg(test)]
mod tests {
    use super::format;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let once = format(text);
        assert_eq!(once, expected);
        assert_eq!(format(&once), once, "it is done");
    }

    #[test]
    fn levels_are_two_spaces_and_lists_stand_below_their_key() {
        check(
            "rules:\n- id: a\n  risk:\n  - read_low\n-   id: b\n    effect: deny\n",
            "rules:\n  - id: a\n    risk:\n      - read_low\n  - id: b\n    effect: deny\n",
        );
        check("a:\n      b:\n         c: 1\n      d: 2\n", "a:\n  b:\n    c: 1\n  d: 2\n");
    }

    #[test]
    fn one_space_is_enough_inside_a_line() {
        check(
            "x:   {risk: read_low,cost:   1,  tools:  [ a/b ,\"c/*\" ]}   # why\n",
            "x: { risk: read_low, cost: 1, tools: [a/b, \"c/*\"] }  # why\n",
        );
        check("- {}\n- [ ]\n- { a: {b: c} }\n", "- {}\n- []\n- { a: { b: c } }\n");
        check("say: a, b: [c  # not a comment#\n", "say: a, b: [c  # not a comment#\n");
        check("a: 'it''s,  # x'   # y\n", "a: 'it''s,  # x'  # y\n");
    }

    #[test]
    fn comments_stay_with_what_they_stand_above() {
        check(
            "# top\n\n\nrules:\n# of a\n- id: a\n\n  # of effect\n  effect: deny\n# end\n\n",
            "# top\n\nrules:\n  # of a\n  - id: a\n\n    # of effect\n    effect: deny\n# end\n",
        );
    }

    #[test]
    fn a_value_over_several_lines_is_joined_where_it_fits() {
        check("a: [b,\n    c,\n]\nd: 1\n", "a: [b, c]\nd: 1\n");
        let long = "x".repeat(60);
        check(
            &format!("a: {{ k: {long},\n         l: {long} }}\n"),
            &format!("a: {{ k: {long},\n  l: {long} }}\n"),
        );
        check("a: [b, # why\n    c]\n", "a: [b, # why\n  c]\n");
    }

    #[test]
    fn block_texts_keep_their_shape() {
        check(
            "a:\n    say: |\n        one\n          two\n\n        three\n    b: 1\n",
            "a:\n  say: |\n    one\n      two\n\n    three\n  b: 1\n",
        );
    }

    #[test]
    fn documents_begin_anew() {
        check("a:\n   b: 1\n---\nc:\n - d\n", "a:\n  b: 1\n---\nc:\n  - d\n");
    }
}
