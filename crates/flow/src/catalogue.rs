//! The catalogue of a data directory: finds its files by the names that scripts use.
//!
//! The caller lists the directory; this module only resolves names. If a name matches no file, or
//! several, the error lists the files that were found instead.

use base::{Problem, natural, nearest};
use std::collections::HashMap;

/// The most file names that an error message lists.
const SHOWN_MAX: usize = 5;

/// The relative paths of the files of a data directory, with `/` between directories.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// All paths in natural order.
    paths: Vec<Box<str>>,
    /// Indices into `paths` in byte order, so that paths with a common prefix are adjacent.
    by_bytes: Vec<u32>,
    /// The name of the directory in messages; if empty, "the data directory".
    directory: String,
    /// Files that only their full name finds, in byte order.
    set_aside: Vec<Box<str>>,
}

/// A file that a pattern of pairs matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mate {
    /// The index of the file in the catalogue.
    pub path: usize,
    /// The part of its path before `mate`.
    pub before: String,
    /// The part that distinguishes the two files of a pair, such as `1` or `2`.
    pub mate: String,
    /// The part of its path after `mate`.
    pub after: String,
}

/// Files that a name may stand for as an array.
struct Group<'a> {
    /// The pattern that they match, such as `Unlab/*`.
    pattern: String,
    paths: Vec<&'a str>,
}

impl Catalogue {
    /// A catalogue of `paths`, which may be in any order.
    pub fn new(paths: impl IntoIterator<Item = String>) -> Self {
        let mut paths: Vec<Box<str>> = paths.into_iter().map(String::into_boxed_str).collect();
        paths.sort_by(|a, b| natural::compare(a, b));
        let mut by_bytes: Vec<u32> = (0..).take(paths.len()).collect();
        by_bytes.sort_by_key(|index| &paths[*index as usize]);
        Self { paths, by_bytes, directory: String::new(), set_aside: Vec::new() }
    }

    /// Sets the name of the directory in messages.
    #[must_use]
    pub fn with_directory_name(self, directory: impl Into<String>) -> Self {
        Self { directory: directory.into(), ..self }
    }

    /// Adds files that only their full name finds: those that runs wrote into the data directory.
    #[must_use]
    pub fn set_aside(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        self.set_aside = paths.into_iter().map(String::into_boxed_str).collect();
        self.set_aside.sort();
        self
    }

    /// All paths in natural order.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.paths.iter().map(AsRef::as_ref)
    }

    /// The file that `name` stands for: the file with this name, or else the only `name.*`.
    pub fn one(&self, name: &str) -> Result<&str, Problem> {
        if let Some(path) = self.paths_from(name).next().filter(|path| *path == name) {
            return Ok(path);
        }
        if let Ok(place) = self.set_aside.binary_search_by(|path| path.as_ref().cmp(name)) {
            return Ok(&self.set_aside[place]);
        }
        let fits = self.with_prefix(name, ".");
        match fits[..] {
            [path] => Ok(path),
            [] => Err(self.one_error(name)),
            _ => Err(Problem::new(format!("`{name}` may be any of {} files: {}", fits.len(), list(&fits)))
                .hint("name the file in full, with its extension")),
        }
    }

    /// The `count` files that `name` stands for: `name/*`, `name.*` or `name_*`, in natural order.
    pub fn many(&self, name: &str, count: u32) -> Result<Vec<&str>, Problem> {
        let groups = self.groups(name);
        let mut fitting: Vec<&Group<'_>> = groups.iter().filter(|group| group.paths.len() == count as usize).collect();
        match fitting.len() {
            1 => Ok(fitting.remove(0).paths.clone()),
            0 => Err(self.many_error(name, count, &groups)),
            _ => {
                let patterns: Vec<&str> = fitting.iter().map(|group| group.pattern.as_str()).collect();
                let message =
                    format!("`{name}` may be any of {}: each is {}", patterns.join(", "), files(count as usize));
                Err(Problem::new(message).hint("take them by a regular expression: Data.get(/.../)"))
            }
        }
    }

    /// All files that `name` stands for: `name/*`, `name.*`, `name_*`, or else the file with this
    /// name, in natural order.
    pub fn all(&self, name: &str) -> Result<Vec<&str>, Problem> {
        let groups = self.groups(name);
        match &groups[..] {
            [group] => Ok(group.paths.clone()),
            [] => match self.paths_from(name).next().filter(|path| *path == name) {
                Some(path) => Ok(vec![path]),
                None => Err(self.all_error(name)),
            },
            _ => {
                let found_groups: Vec<String> =
                    groups.iter().map(|group| format!("`{}` ({})", group.pattern, files(group.paths.len()))).collect();
                let message = format!("`{name}` may be all of {}", found_groups.join(", or all of "));
                Err(Problem::new(message).hint("take them by a regular expression: Data.get(/.../)"))
            }
        }
    }

    /// The pairs among `mates`, the files that the pattern `what` matches. The paths of a pair
    /// differ only in the mate. Pairs are in the natural order of their first paths, with the
    /// lesser mate first. Fails if a file has no partner.
    pub fn pairs(&self, what: &str, mates: &[Mate]) -> Result<Vec<[&str; 2]>, Problem> {
        let count = mates.len();
        self.matching(what, |_| count > 0)?;
        let mut kinds: Vec<&str> = mates.iter().map(|mate| mate.mate.as_str()).collect();
        kinds.sort_by(|a, b| natural::compare(a, b));
        kinds.dedup();
        let &[one, other] = &kinds[..] else { return Err(mate_count_error(what, &kinds, count)) };
        let mut rows: Vec<[Option<&Mate>; 2]> = Vec::new();
        let mut row_of: HashMap<(&str, &str), usize> = HashMap::new();
        for mate in mates {
            let row = *row_of.entry((&mate.before, &mate.after)).or_insert_with(|| {
                rows.push([None, None]);
                rows.len() - 1
            });
            rows[row][usize::from(mate.mate == other)] = Some(mate);
        }
        let alone = rows.iter().filter_map(|row| match row {
            [Some(mate), None] => Some((mate, other)),
            [None, Some(mate)] => Some((mate, one)),
            _ => None,
        });
        let alone: Vec<String> = alone
            .map(|(Mate { path, before, after, .. }, mate)| {
                format!("`{}` has no partner `{before}{mate}{after}`", &self.paths[*path])
            })
            .collect();
        if !alone.is_empty() {
            let more = alone.len().saturating_sub(SHOWN_MAX);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let listed = alone[..alone.len().min(SHOWN_MAX)].join(", ");
            return Err(
                Problem::new(format!("{what}: {listed}{more}")).hint("add the missing file, or narrow the pattern")
            );
        }
        let path = |mate: &Mate| self.paths[mate.path].as_ref();
        Ok(rows.into_iter().filter_map(|[one, other]| Some([path(one?), path(other?)])).collect())
    }

    /// The files for which `matches` returns true, in natural order. `what` names the condition in
    /// messages.
    pub fn matching(&self, what: &str, matches: impl FnMut(&&str) -> bool) -> Result<Vec<&str>, Problem> {
        let found: Vec<&str> = self.paths().filter(matches).collect();
        if found.is_empty() {
            let message = format!("{what} matches none of the {}", self.summary());
            let apart = match self.set_aside.first() {
                Some(path) => format!("; what runs wrote, as {path}, is set aside: name such a file in full"),
                None => String::new(),
            };
            return Err(
                Problem::new(message).hint(format!("it is matched with paths relative to the data directory{apart}"))
            );
        }
        Ok(found)
    }

    /// The paths from `start` on, in byte order.
    fn paths_from(&self, start: &str) -> impl Iterator<Item = &str> {
        let path = |index: &u32| self.paths[*index as usize].as_ref();
        let first = self.by_bytes.partition_point(|index| path(index) < start);
        self.by_bytes[first..].iter().map(path)
    }

    /// The files whose path is `name`, then `between`, then more without a `/`. Hidden files do not
    /// count.
    fn with_prefix(&self, name: &str, between: &str) -> Vec<&str> {
        let start = format!("{name}{between}");
        let fits = |path: &&str| {
            let rest = &path[start.len()..];
            !rest.is_empty() && !rest.contains('/') && !rest.starts_with('.')
        };
        let mut found: Vec<&str> =
            self.paths_from(&start).take_while(|path| path.starts_with(&start)).filter(fits).collect();
        found.sort_by(|a, b| natural::compare(a, b));
        found
    }

    fn groups(&self, name: &str) -> Vec<Group<'_>> {
        let group =
            |between: &&str| Group { pattern: format!("{name}{between}*"), paths: self.with_prefix(name, between) };
        ["/", ".", "_"].iter().map(group).filter(|group| !group.paths.is_empty()).collect()
    }

    fn one_error(&self, name: &str) -> Problem {
        let groups = self.groups(name);
        if let Some(group) = groups.first() {
            let count = files(group.paths.len());
            let hint = format!("take them all: Data.get(\"{name}\", \"all\")");
            let message = format!("no file `{name}` or `{name}.*`; `{}` is {count}", group.pattern);
            return Problem::new(message).hint(hint);
        }
        let message = format!("no file `{name}` or `{name}.*` among the {}", self.summary());
        self.with_suggestion(Problem::new(message), name)
    }

    fn all_error(&self, name: &str) -> Problem {
        let message = format!("no file `{name}`, `{name}/*`, `{name}.*` or `{name}_*` among the {}", self.summary());
        self.with_suggestion(Problem::new(message), name)
    }

    fn many_error(&self, name: &str, count: u32, groups: &[Group<'_>]) -> Problem {
        let wanted = files(count as usize);
        if groups.is_empty() {
            let message = format!(
                "`{name}` needs {wanted} `{name}/*`, `{name}.*` or `{name}_*`, and none is among the {}",
                self.summary()
            );
            return self.with_suggestion(Problem::new(message), name);
        }
        let found_groups = groups
            .iter()
            .map(|group| format!("`{}` is {}: {}", group.pattern, files(group.paths.len()), list(&group.paths)));
        let found_groups: Vec<String> = found_groups.collect();
        Problem::new(format!("`{name}` needs {wanted}, and {}", found_groups.join("; ")))
    }

    /// Adds a hint with the nearest name that stands for a file or a directory, if any is near.
    fn with_suggestion(&self, problem: Problem, name: &str) -> Problem {
        match nearest::find(name, self.paths().flat_map(names_of)) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    fn summary(&self) -> String {
        let paths: Vec<&str> = self.paths().take(SHOWN_MAX + 1).collect();
        let directory = if self.directory.is_empty() { "the data directory" } else { &self.directory };
        if paths.is_empty() {
            return format!("0 files of {directory}");
        }
        let more = if self.paths.len() > SHOWN_MAX { ", ..." } else { "" };
        let first = paths[..paths.len().min(SHOWN_MAX)].join(", ");
        format!("{} of {directory}: {first}{more}", files(self.paths.len()))
    }
}

/// The names that a script may use for a path: the path itself, the path without its extension, and
/// its directory.
fn names_of(path: &str) -> impl Iterator<Item = &str> {
    let directory = path.rsplit_once('/').map(|(directory, _)| directory);
    let file = path.rsplit('/').next().unwrap_or(path);
    let dot = file.find('.').filter(|at| *at > 0).map_or(0, |at| file.len() - at);
    let stem = (dot > 0).then(|| &path[..path.len() - dot]);
    stem.into_iter().chain([path]).chain(directory)
}

/// The error that the files of a pattern of pairs do not have exactly two different mates.
fn mate_count_error(what: &str, kinds: &[&str], count: usize) -> Problem {
    let listed: Vec<String> = kinds.iter().take(SHOWN_MAX).map(|kind| format!("`{kind}`")).collect();
    let more = if kinds.len() > SHOWN_MAX { ", ..." } else { "" };
    let message = match kinds {
        [kind] => {
            format!("{what} matches {}, all with `{kind}` in its second group: every partner is missing", files(count))
        }
        _ => format!("the second group of {what} is {}{more}, and a pair is of two", listed.join(", ")),
    };
    Problem::new(message)
        .hint("the first group is the pair's name, the second tells its two files apart, such as ([12])")
}

fn list(paths: &[&str]) -> String {
    let more = if paths.len() > SHOWN_MAX { ", ..." } else { "" };
    format!("{}{more}", paths[..paths.len().min(SHOWN_MAX)].join(", "))
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(paths: &[&str]) -> Catalogue {
        Catalogue::new(paths.iter().map(|&path| path.to_owned()))
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, Problem>) -> String {
        result.expect_err("is refused").to_string()
    }

    #[test]
    fn a_name_is_the_file_or_the_only_one_with_an_extension() {
        let files = catalogue(&["Train.csv", "Test", "Test.txt", "a/Train.csv", "Trainer.csv"]);
        assert_eq!(files.one("Train"), Ok("Train.csv"));
        assert_eq!(files.one("Test"), Ok("Test"));
        assert_eq!(files.one("a/Train"), Ok("a/Train.csv"));
        assert_eq!(files.one("Train.csv"), Ok("Train.csv"));
    }

    #[test]
    fn what_is_set_aside_is_found_by_its_full_name_only() {
        let files = catalogue(&["in.txt"]).set_aside(["out/x.txt".to_owned(), "out/E.txt".to_owned()]);
        assert_eq!(files.one("out/x.txt"), Ok("out/x.txt"));
        assert!(files.one("out/x").is_err() && files.many("out", 2).is_err());
        let none = refused(files.matching("/csv/", |path| path.ends_with("csv")));
        assert!(none.contains("out/E.txt") && none.contains("name such a file in full"), "{none}");
    }

    #[test]
    fn a_name_that_is_none_or_several_is_refused_with_what_is_there() {
        let files = catalogue(&["T.a", "T.b", "Unlab/1", "Unlab/2", "Train.csv"]);
        assert_eq!(
            refused(files.one("T")),
            "`T` may be any of 2 files: T.a, T.b\n  hint: name the file in full, with its extension"
        );
        assert_eq!(
            refused(files.one("Tran")),
            "no file `Tran` or `Tran.*` among the 5 files of the data directory: T.a, T.b, Train.csv, Unlab/1, Unlab/2\n  \
             hint: did you mean `Train`?"
        );
        assert_eq!(
            refused(files.one("Unlab")),
            "no file `Unlab` or `Unlab.*`; `Unlab/*` is 2 files\n  hint: take them all: Data.get(\"Unlab\", \"all\")"
        );
        assert_eq!(refused(catalogue(&[]).one("T")), "no file `T` or `T.*` among the 0 files of the data directory");
    }

    #[test]
    fn an_array_is_exactly_its_files_in_natural_order() {
        let files = catalogue(&["U/10", "U/9", "U/.hidden", "U/sub/1", "P_2", "P_1", "Q.1.csv", "Q.0.csv", "P.txt"]);
        assert_eq!(files.many("U", 2), Ok(vec!["U/9", "U/10"]));
        assert_eq!(files.many("P", 2), Ok(vec!["P_1", "P_2"]));
        assert_eq!(files.many("P", 1), Ok(vec!["P.txt"]));
        assert_eq!(files.many("Q", 2), Ok(vec!["Q.0.csv", "Q.1.csv"]));
    }

    #[test]
    fn an_array_of_another_length_is_refused_with_what_is_there() {
        let files = catalogue(&["U/10", "U/9", "U_1", "P_2", "P.3"]);
        assert_eq!(
            refused(files.many("U", 3)),
            "`U` needs 3 files, and `U/*` is 2 files: U/9, U/10; `U_*` is 1 file: U_1"
        );
        assert_eq!(
            refused(files.many("P", 1)),
            "`P` may be any of P.*, P_*: each is 1 file\n  hint: take them by a regular expression: Data.get(/.../)"
        );
        let message = refused(files.many("X", 2));
        assert!(
            message.starts_with("`X` needs 2 files `X/*`, `X.*` or `X_*`, and none is among the 5 files"),
            "{message}"
        );
    }

    #[test]
    fn all_files_of_a_name_are_those_of_its_only_pattern() {
        let files = catalogue(&["U/10", "U/9", "P_2", "P_1", "P.txt", "One.csv", "Bare"]);
        assert_eq!(files.all("U"), Ok(vec!["U/9", "U/10"]));
        assert_eq!(files.all("One"), Ok(vec!["One.csv"]));
        assert_eq!(files.all("Bare"), Ok(vec!["Bare"]));
        assert_eq!(
            refused(files.all("P")),
            "`P` may be all of `P.*` (1 file), or all of `P_*` (2 files)\n  \
             hint: take them by a regular expression: Data.get(/.../)"
        );
        let message = refused(files.with_directory_name("/d (the current directory)").all("X"));
        assert!(message.starts_with("no file `X`, `X/*`, `X.*` or `X_*` among the 7 files of /d (the"), "{message}");
    }

    /// The mates of files named `KEY_MATE.fq`.
    fn mates(files: &Catalogue) -> Vec<Mate> {
        let mate = |(path, name): (usize, &str)| {
            let (before, rest) = name.split_at(name.rfind('_').expect("a name with _") + 1);
            let (mate, after) = rest.split_at(rest.find('.').expect("a name with ."));
            Mate { path, before: before.to_owned(), mate: mate.to_owned(), after: after.to_owned() }
        };
        files.paths().enumerate().map(mate).collect()
    }

    #[test]
    fn pairs_are_files_that_differ_in_the_mate_alone_in_natural_order() {
        let files = catalogue(&["b/x_2.fq", "a10_1.fq", "a10_2.fq", "a2_2.fq", "a2_1.fq", "b/x_1.fq"]);
        let pairs = files.pairs("/p/", &mates(&files));
        assert_eq!(pairs, Ok(vec![["a2_1.fq", "a2_2.fq"], ["a10_1.fq", "a10_2.fq"], ["b/x_1.fq", "b/x_2.fq"]]));
    }

    #[test]
    fn a_file_without_its_partner_is_refused_with_the_name_of_the_partner() {
        let files = catalogue(&["a_1.fq", "a_2.fq", "b_2.fq"]);
        let listed = refused(files.pairs("/p/", &mates(&files)));
        assert!(listed.starts_with("/p/: `b_2.fq` has no partner `b_1.fq`\n"), "{listed}");
        let files = catalogue(&["a_1.fq", "b_1.fq"]);
        let listed = refused(files.pairs("/p/", &mates(&files)));
        assert!(listed.starts_with("/p/ matches 2 files, all with `1` in its second group: every partner"), "{listed}");
        let files = catalogue(&["a_1.fq", "a_2.fq", "a_3.fq"]);
        let listed = refused(files.pairs("/p/", &mates(&files)));
        assert!(listed.starts_with("the second group of /p/ is `1`, `2`, `3`, and a pair is of two"), "{listed}");
        assert!(refused(files.pairs("/p/", &[])).starts_with("/p/ matches none of the 3 files"));
    }

    #[test]
    fn a_condition_takes_its_files_in_natural_order_and_some() {
        let files = catalogue(&["a10", "a2", "b"]);
        assert_eq!(files.matching("/a/", |path| path.contains('a')), Ok(vec!["a2", "a10"]));
        assert_eq!(
            refused(files.matching("/z/", |path| path.contains('z'))),
            "/z/ matches none of the 3 files of the data directory: a2, a10, b\n  \
             hint: it is matched with paths relative to the data directory"
        );
    }
}
