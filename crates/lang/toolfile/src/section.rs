//! Reads a table of the file key by key. Problems are recorded with their positions, and reading
//! goes on.

use base::{Problem, SourceLocation};
use std::cell::RefCell;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The problems found so far in one text.
pub(crate) struct Diagnostics<'a> {
    file: &'a str,
    text: &'a str,
    /// Each problem with the byte offset of its position, so that they can be sorted in the order
    /// of the text.
    found: RefCell<Vec<(usize, Problem)>>,
}

impl<'a> Diagnostics<'a> {
    pub fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, found: RefCell::default() }
    }

    pub fn add(&self, offset: usize, problem: Problem) {
        let location = SourceLocation::at_offset(self.file, self.text, offset);
        self.found.borrow_mut().push((offset, problem.at(location)));
    }

    pub fn into_problems(self) -> Vec<Problem> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|(offset, _)| *offset);
        found.into_iter().map(|(_, problem)| problem).collect()
    }
}

/// A table, with its name for messages.
pub(crate) struct Section<'a> {
    diagnostics: &'a Diagnostics<'a>,
    /// The name, such as ``tool `C45` ``; empty for the file as a whole.
    subject: String,
    table: &'a DeTable<'a>,
    /// The offset of the key that names the table; 0 for the whole file.
    offset: usize,
}

impl<'a> Section<'a> {
    pub fn new(diagnostics: &'a Diagnostics<'a>, subject: String, table: &'a DeTable<'a>, offset: usize) -> Self {
        Self { diagnostics, subject, table, offset }
    }

    /// Refuses keys other than `known`.
    pub fn check_keys(&self, known: &[&str]) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let problem = Problem::new(self.with_subject(&format!("unknown key `{name}`")));
                self.diagnostics.add(key.span().start, problem.nearest(name, known.iter().copied()));
            }
        }
    }

    pub fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    /// The offset of the value of `key`; that of the section if there is no such key.
    pub fn offset_of(&self, key: &str) -> usize {
        self.get(key).map_or(self.offset, |value| value.span().start)
    }

    pub fn string(&self, key: &str) -> Option<String> {
        self.typed(key, "text in quotes", DeValue::as_str).map(str::to_owned)
    }

    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.typed(key, "true or false", DeValue::as_bool)
    }

    pub fn integer(&self, key: &str) -> Option<i64> {
        self.typed(key, "a whole number", integer)
    }

    /// A whole number within `range`.
    pub fn count(&self, key: &str, range: Range<u32>) -> Option<u32> {
        let value = self.integer(key)?;
        let fits = u32::try_from(value).ok().filter(|value| range.contains(value));
        if fits.is_none() {
            self.refuse_at(key, format!("`{key}` is between {} and {}, not {value}", range.start, range.end - 1));
        }
        fits
    }

    /// A list of texts, each with its offset.
    pub fn strings(&self, key: &str) -> Vec<(usize, String)> {
        let Some(items) = self.typed(key, "a list of texts", DeValue::as_array) else { return Vec::new() };
        let text = |item: &Spanned<DeValue<'_>>| {
            let text = item.get_ref().as_str();
            if text.is_none() {
                let message = format!("`{key}` is a list of texts, and this is {}", kind(item.get_ref()));
                self.diagnostics.add(item.span().start, Problem::new(self.with_subject(&message)));
            }
            text.map(|text| (item.span().start, text.to_owned()))
        };
        items.iter().filter_map(text).collect()
    }

    /// The keys and values of the table `key`, with the offsets of the keys, in the order of the
    /// text.
    pub fn pairs(&self, key: &str) -> Vec<(&'a str, &'a Spanned<DeValue<'a>>, usize)> {
        let Some(table) = self.typed(key, "a table", DeValue::as_table) else { return Vec::new() };
        let mut pairs: Vec<_> =
            table.iter().map(|(name, value)| (name.get_ref().as_ref(), value, name.span().start)).collect();
        pairs.sort_by_key(|(_, _, offset)| *offset);
        pairs
    }

    /// The tables under `key`, in the order of the text; `subject` names each within this section.
    pub fn tables(&self, key: &str, subject: impl Fn(&str) -> String) -> Vec<(&'a str, Section<'a>)> {
        let section = |(name, value, offset): (&'a str, &'a Spanned<DeValue<'a>>, usize)| {
            let subject =
                if self.subject.is_empty() { subject(name) } else { format!("{}, {}", self.subject, subject(name)) };
            let Some(table) = value.get_ref().as_table() else {
                let message = format!("{subject}: needs a table, and this is {}", kind(value.get_ref()));
                self.diagnostics.add(value.span().start, Problem::new(message));
                return None;
            };
            Some((name, Section::new(self.diagnostics, subject, table, offset)))
        };
        self.pairs(key).into_iter().filter_map(section).collect()
    }

    fn typed<T>(&self, key: &str, wanted: &str, take: impl Fn(&'a DeValue<'a>) -> Option<T>) -> Option<T> {
        let value = self.get(key)?;
        let taken = take(value.get_ref());
        if taken.is_none() {
            self.refuse_at(key, format!("`{key}` needs {wanted}, and this is {}", kind(value.get_ref())));
        }
        taken
    }

    /// Records a problem of the section as a whole.
    pub fn refuse(&self, message: &str, hint: Option<String>) {
        let problem = Problem { hint, ..Problem::new(self.with_subject(message)) };
        self.diagnostics.add(self.offset, problem);
    }

    /// Records a problem of the value of `key`.
    pub fn refuse_at(&self, key: &str, message: impl AsRef<str>) {
        self.add_problem(self.offset_of(key), Problem::new(self.with_subject(message.as_ref())));
    }

    /// Records a problem whose message is complete.
    pub fn add_problem(&self, offset: usize, problem: Problem) {
        self.diagnostics.add(offset, problem);
    }

    /// `message` with the name of the section before it.
    pub fn with_subject(&self, message: &str) -> String {
        if self.subject.is_empty() { message.to_owned() } else { format!("{}: {message}", self.subject) }
    }

    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// The whole number that `value` is, in any base of TOML.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<i64> {
    let digits = value.as_integer()?;
    i64::from_str_radix(digits.as_str(), digits.radix()).ok()
}

/// The kind of a value, in words for messages.
pub(crate) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(digits) if i64::from_str_radix(digits.as_str(), digits.radix()).is_err() => {
            "a whole number beyond 64 bits"
        }
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
