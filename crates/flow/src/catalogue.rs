//! The files of a data folder, found by the names that scripts use.
//!
//! The caller lists the folder; here is only the meaning of names. A name that fits no file, or several, is refused with
//! what was there instead.

use base::{Problem, natural, nearest};

/// So many names are shown when a name is refused.
const SHOWN_MAX: usize = 5;

/// Relative paths of the files of a data folder, with `/` between folders.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// In natural order.
    paths: Vec<Box<str>>,
    /// Places in `paths`, in the order of their bytes: all that begin alike stand together.
    by_bytes: Vec<u32>,
}

/// A way in which several files belong to one name.
struct Group<'a> {
    /// Such as `Unlab/*`.
    pattern: String,
    paths: Vec<&'a str>,
}

impl Catalogue {
    /// The catalogue of `paths`, in any order.
    pub fn new(paths: impl IntoIterator<Item = String>) -> Self {
        let mut paths: Vec<Box<str>> = paths.into_iter().map(String::into_boxed_str).collect();
        paths.sort_by(|a, b| natural::compare(a, b));
        let mut by_bytes: Vec<u32> = (0..).take(paths.len()).collect();
        by_bytes.sort_by_key(|index| &paths[*index as usize]);
        Self { paths, by_bytes }
    }

    /// All paths in natural order.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.paths.iter().map(AsRef::as_ref)
    }

    /// The file that `name` means: the file of that name, or the only `name.*`.
    pub fn one(&self, name: &str) -> Result<&str, Problem> {
        if let Some(path) = self.from(name).next().filter(|path| *path == name) {
            return Ok(path);
        }
        let fits = self.beginning(name, ".");
        match fits[..] {
            [path] => Ok(path),
            [] => Err(self.refused_one(name)),
            _ => Err(Problem::new(format!("`{name}` may be any of {} files: {}", fits.len(), shown(&fits)))
                .hint("name the file in full, with its extension")),
        }
    }

    /// The `count` files that `name` means: `name/*`, `name.*` or `name_*`, in natural order.
    pub fn many(&self, name: &str, count: u32) -> Result<Vec<&str>, Problem> {
        let groups = self.groups(name);
        let mut fitting: Vec<&Group<'_>> = groups.iter().filter(|group| group.paths.len() == count as usize).collect();
        match fitting.len() {
            1 => Ok(fitting.remove(0).paths.clone()),
            0 => Err(self.refused_many(name, count, &groups)),
            _ => {
                let patterns: Vec<&str> = fitting.iter().map(|group| group.pattern.as_str()).collect();
                let message =
                    format!("`{name}` may be any of {}: each is {}", patterns.join(", "), files(count as usize));
                Err(Problem::new(message).hint("take them by a regular expression: Data.get(/.../)"))
            }
        }
    }

    /// The files for which `matches` holds, in natural order; `what` names the condition in messages.
    pub fn matching(&self, what: &str, matches: impl FnMut(&&str) -> bool) -> Result<Vec<&str>, Problem> {
        let found: Vec<&str> = self.paths().filter(matches).collect();
        if found.is_empty() {
            let message = format!("{what} matches none of the {}", self.told());
            return Err(Problem::new(message).hint("it is matched with paths relative to the data folder"));
        }
        Ok(found)
    }

    /// Paths from `start` on, in the order of their bytes.
    fn from(&self, start: &str) -> impl Iterator<Item = &str> {
        let path = |index: &u32| self.paths[*index as usize].as_ref();
        let first = self.by_bytes.partition_point(|index| path(index) < start);
        self.by_bytes[first..].iter().map(path)
    }

    /// Files whose path is `name`, then `between`, then more, in the same folder; hidden files do not count.
    fn beginning(&self, name: &str, between: &str) -> Vec<&str> {
        let start = format!("{name}{between}");
        let fits = |path: &&str| {
            let rest = &path[start.len()..];
            !rest.is_empty() && !rest.contains('/') && !rest.starts_with('.')
        };
        let mut found: Vec<&str> = self.from(&start).take_while(|path| path.starts_with(&start)).filter(fits).collect();
        found.sort_by(|a, b| natural::compare(a, b));
        found
    }

    fn groups(&self, name: &str) -> Vec<Group<'_>> {
        let group =
            |between: &&str| Group { pattern: format!("{name}{between}*"), paths: self.beginning(name, between) };
        ["/", ".", "_"].iter().map(group).filter(|group| !group.paths.is_empty()).collect()
    }

    fn refused_one(&self, name: &str) -> Problem {
        let groups = self.groups(name);
        if let Some(group) = groups.first() {
            let there = files(group.paths.len());
            let hint = format!("take them all: Data.get(\"{name}\", {})", group.paths.len());
            let message = format!("no file `{name}` or `{name}.*`; `{}` is {there}", group.pattern);
            return Problem::new(message).hint(hint);
        }
        let message = format!("no file `{name}` or `{name}.*` among the {}", self.told());
        self.near(Problem::new(message), name)
    }

    fn refused_many(&self, name: &str, count: u32, groups: &[Group<'_>]) -> Problem {
        let wanted = files(count as usize);
        if groups.is_empty() {
            let message = format!(
                "`{name}` needs {wanted} `{name}/*`, `{name}.*` or `{name}_*`, and none is among the {}",
                self.told()
            );
            return self.near(Problem::new(message), name);
        }
        let there = groups
            .iter()
            .map(|group| format!("`{}` is {}: {}", group.pattern, files(group.paths.len()), shown(&group.paths)));
        let there: Vec<String> = there.collect();
        Problem::new(format!("`{name}` needs {wanted}, and {}", there.join("; ")))
    }

    /// With the nearest name that stands for a file or a folder, if any is near.
    fn near(&self, problem: Problem, name: &str) -> Problem {
        match nearest::name(name, self.paths().flat_map(names_of)) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    fn told(&self) -> String {
        let paths: Vec<&str> = self.paths().take(SHOWN_MAX + 1).collect();
        if paths.is_empty() {
            return "0 files of the data folder".to_owned();
        }
        let more = if self.paths.len() > SHOWN_MAX { ", ..." } else { "" };
        let first = paths[..paths.len().min(SHOWN_MAX)].join(", ");
        format!("{} of the data folder: {first}{more}", files(self.paths.len()))
    }
}

/// Names that a script may use for a path: itself, without its extension, and its folder.
fn names_of(path: &str) -> impl Iterator<Item = &str> {
    let folder = path.rsplit_once('/').map(|(folder, _)| folder);
    let file = path.rsplit('/').next().unwrap_or(path);
    let dot = file.find('.').filter(|at| *at > 0).map_or(0, |at| file.len() - at);
    let stem = (dot > 0).then(|| &path[..path.len() - dot]);
    stem.into_iter().chain([path]).chain(folder)
}

fn shown(paths: &[&str]) -> String {
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
    fn a_name_that_is_none_or_several_is_refused_with_what_is_there() {
        let files = catalogue(&["T.a", "T.b", "Unlab/1", "Unlab/2", "Train.csv"]);
        assert_eq!(
            refused(files.one("T")),
            "`T` may be any of 2 files: T.a, T.b\n  hint: name the file in full, with its extension"
        );
        assert_eq!(
            refused(files.one("Tran")),
            "no file `Tran` or `Tran.*` among the 5 files of the data folder: T.a, T.b, Train.csv, Unlab/1, Unlab/2\n  \
             hint: did you mean `Train`?"
        );
        assert_eq!(
            refused(files.one("Unlab")),
            "no file `Unlab` or `Unlab.*`; `Unlab/*` is 2 files\n  hint: take them all: Data.get(\"Unlab\", 2)"
        );
        assert_eq!(refused(catalogue(&[]).one("T")), "no file `T` or `T.*` among the 0 files of the data folder");
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
    fn a_condition_takes_its_files_in_natural_order_and_some() {
        let files = catalogue(&["a10", "a2", "b"]);
        assert_eq!(files.matching("/a/", |path| path.contains('a')), Ok(vec!["a2", "a10"]));
        assert_eq!(
            refused(files.matching("/z/", |path| path.contains('z'))),
            "/z/ matches none of the 3 files of the data folder: a2, a10, b\n  \
             hint: it is matched with paths relative to the data folder"
        );
    }
}
