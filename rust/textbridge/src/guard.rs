//! Marks the names of control tokens inside text from outside, so that the tokenizer reads them as
//! ordinary text. src/model/tokenizer.h tells the whole design.

use aho_corasick::{AhoCorasick, MatchKind};

/// U+FDD1: a noncharacter, reserved by Unicode for use inside a program.
pub const MARK: char = '\u{FDD1}';

pub struct Guard {
    /// None when the vocabulary has no control tokens.
    names: Option<AhoCorasick>,
    contents: Vec<String>,
    /// Fragments a string may begin (`tails`) or end (`heads`) with that could be completed to a
    /// name by its neighbours. Sorted; each holds a non-word character, so that words a template
    /// compares ("user", "function") are never touched.
    tails: Vec<String>,
    heads: Vec<String>,
    longest: usize,
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == ' ')
}

fn sorted(mut fragments: Vec<String>) -> Vec<String> {
    fragments.sort();
    fragments.dedup();
    fragments
}

impl Guard {
    pub fn new(contents: Vec<String>) -> Result<Self, String> {
        let mut tails = Vec::new();
        let mut heads = Vec::new();
        for content in &contents {
            for (at, _) in content.char_indices().skip(1) {
                let (head, tail) = content.split_at(at);
                if !is_word(head) {
                    heads.push(head.to_string());
                }
                if !is_word(tail) {
                    tails.push(tail.to_string());
                }
            }
        }
        let names = if contents.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&contents);
            Some(built.map_err(|e| e.to_string())?)
        };
        let longest = contents.iter().map(String::len).max().unwrap_or(0);
        Ok(Self { names, contents, tails: sorted(tails), heads: sorted(heads), longest })
    }

    /// The text with every name in it broken by a mark.
    pub fn mark(&self, text: &str) -> String {
        let text =
            if text.contains(MARK) { text.replace(MARK, "\u{FFFD}") } else { text.to_string() };
        let Some(names) = &self.names else { return text };

        // Byte positions before which a mark goes, and single-character names, which no mark can
        // break and which are therefore replaced.
        let mut marks = Vec::new();
        let mut replaced = Vec::new();
        for found in names.find_overlapping_iter(&text) {
            let first = text[found.start()..].chars().next().map_or(1, char::len_utf8);
            if first == found.len() {
                replaced.push(found.start());
            } else {
                marks.push(found.start() + first);
            }
        }
        self.mark_edges(&text, &mut marks);
        if marks.is_empty() && replaced.is_empty() {
            return text;
        }
        marks.sort_unstable();
        marks.dedup();
        let mut out = String::with_capacity(text.len() + marks.len() * MARK.len_utf8());
        let mut next = marks.iter().peekable();
        for (at, c) in text.char_indices() {
            if next.next_if(|&&m| m == at).is_some() {
                out.push(MARK);
            }
            out.push(if replaced.contains(&at) { '\u{FFFD}' } else { c });
        }
        if next.next().is_some() {
            out.push(MARK);
        }
        out
    }

    /// Templates trim strings and join them to others, so a name could be put together from the
    /// end of one string and the beginning of another, or be completed by a lone "<" or ">" of the
    /// template around a whole string.
    fn mark_edges(&self, text: &str, marks: &mut Vec<usize>) {
        let trimmed_start = text.len() - text.trim_start().len();
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return;
        }
        let begins = |at: usize| {
            trimmed
                .get(..at)
                .is_some_and(|s| self.tails.binary_search_by(|t| t.as_str().cmp(s)).is_ok())
        };
        let ends = |from: usize| {
            trimmed
                .get(from..)
                .is_some_and(|s| self.heads.binary_search_by(|h| h.as_str().cmp(s)).is_ok())
        };
        let reach = self.longest.min(trimmed.len());
        let inside = trimmed.len() < self.longest
            && !is_word(trimmed)
            && self.contents.iter().any(|content| content.contains(trimmed));
        if inside || (1..=reach).any(begins) {
            marks.push(trimmed_start);
        }
        if (trimmed.len() - reach..trimmed.len()).any(ends) {
            marks.push(trimmed_start + trimmed.len());
        }
    }
}
