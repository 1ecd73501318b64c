//! Detects words of a command that only a shell understands, because commands run without one.
//!
//! A user who writes `["sort", "{in}", ">", "{out}"]` means a redirection of the shell, but `sort`
//! would look for a file named `>`. Only words that no program takes otherwise are refused: `grep
//! -c > {in}` counts the sequences in a FASTA file, and `cut -d |` names a separator. A word that a
//! program may take is only a warning ([`warnings`]).

use crate::tool::{ParamKind, Tool};
use base::Problem;

/// Programs that interpret such words themselves: ten shells, and three that compare.
const INTERPRETERS: [&str; 13] =
    ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh", "busybox", "expr", "test", "["];

const REDIRECTIONS: [&str; 8] = ["2>>", "&>", "1>", "2>", ">>", ">|", ">", "<"];

/// A shell word in a command: its description, and a hint what to write in its place.
pub(crate) struct ShellWord {
    /// The index of the item in the command.
    pub item: usize,
    pub message: String,
    pub hint: String,
}

/// The first word of the command of `tool` that cannot be meant for its program.
pub(crate) fn find_refused(tool: &Tool) -> Option<ShellWord> {
    if interprets_words(tool) {
        return None;
    }
    (1..tool.command.len()).find_map(|item| find_refused_at(tool, item))
}

fn find_refused_at(tool: &Tool, item: usize) -> Option<ShellWord> {
    let word = tool.command[item].as_str();
    let found = |what: &str, hint: String| {
        Some(ShellWord { item, message: format!("no shell reads a command, so `{what}` would be passed on"), hint })
    };
    if let Some(sign) = redirection(tool, item) {
        return found(sign, redirection_hint(tool, item, sign));
    }
    let before = &tool.command[item - 1];
    let after = tool.command.get(item + 1);
    let is_program =
        |word: &String| word.len() > 1 && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    match word {
        "&&" | "||" => found(word, "make a tool of each step, or run a shell: [\"sh\", \"-c\", \"...\"]".to_owned()),
        "2>&1" => found(word, "both streams are kept for the report".to_owned()),
        "|" if item > 1
            && !before.starts_with('-')
            && after.is_some_and(|next| is_program(next) && !next.starts_with('-')) =>
        {
            found(word, "make a tool of each step, or run a shell: [\"sh\", \"-c\", \"...\"]".to_owned())
        }
        _ if word.starts_with("$(") && word.ends_with(')') => {
            found(word, "run a shell: [\"sh\", \"-c\", \"...\"], or pass the text as a config".to_owned())
        }
        _ => None,
    }
}

/// The redirection operator that item `item` is or begins with, if a file parameter of the right
/// kind comes behind it, or if a file name ends a command that names a parameter before.
fn redirection<'a>(tool: &Tool, item: usize) -> Option<&'a str> {
    let word = tool.command[item].as_str();
    let sign = REDIRECTIONS.into_iter().find(|sign| word.starts_with(sign))?;
    let glued = &word[sign.len()..];
    let target = if glued.is_empty() { tool.command.get(item + 1)?.as_str() } else { glued };
    let is_last = item + usize::from(glued.is_empty()) + 1 == tool.command.len();
    let kind = param_of(target).and_then(|name| tool.param(name)).map(|index| &tool.params[index].kind);
    let is_redirection = match kind {
        Some(ParamKind::Output { .. }) => sign != "<",
        Some(ParamKind::Input { .. }) => sign == "<",
        Some(ParamKind::Config { .. }) => false,
        None => glued.is_empty() && is_last && tool.command[1..item].iter().any(|item| item.contains('{')),
    };
    is_redirection.then_some(sign)
}

/// The hint for a redirection.
fn redirection_hint(tool: &Tool, item: usize, sign: &str) -> String {
    let glued = &tool.command[item][sign.len()..];
    let target = if glued.is_empty() { tool.command.get(item + 1).map_or("", String::as_str) } else { glued };
    let is_param = param_of(target).is_some();
    match sign {
        "<" => format!("use `stdin = \"{}\"`", if is_param { target } else { "{INPUT}" }),
        "2>" | "2>>" => format!("use `stderr = \"{}\"`", if is_param { target } else { "{OUTPUT}" }),
        _ => format!("use `stdout = \"{}\"`", if is_param { target } else { "{OUTPUT}" }),
    }
}

/// The name in `{name}`.
fn param_of(item: &str) -> Option<&str> {
    item.strip_prefix('{')?.strip_suffix('}')
}

/// Returns whether the program interprets such words itself.
fn interprets_words(tool: &Tool) -> bool {
    let name = |item: &String| item.rsplit('/').next().unwrap_or_default().to_owned();
    // `env A=1 sh -c ...`, `time bash ...`: a shell anywhere before an option counts.
    let shells = |item: &String| INTERPRETERS[..10].contains(&name(item).as_str());
    tool.command.first().is_some_and(|first| INTERPRETERS.contains(&name(first).as_str()))
        || tool.command.windows(2).any(|pair| shells(&pair[0]) && pair[1].starts_with('-'))
}

/// Warnings about items of a command that look like file name patterns, which only a shell would
/// expand. They are not errors, because some programs take patterns themselves (`rsync`, `find`).
pub fn warnings(tool: &Tool) -> Vec<Problem> {
    const PATTERN_PROGRAMS: [&str; 12] =
        ["find", "rsync", "tar", "unzip", "zip", "grep", "egrep", "sed", "awk", "perl", "git", "make"];
    let program = tool.command.first().map_or("", |first| first.rsplit('/').next().unwrap_or_default());
    if interprets_words(tool) || PATTERN_PROGRAMS.contains(&program) {
        return Vec::new();
    }
    let warned = |(item, word): (usize, &String)| {
        let message = format!(
            "tool `{}`, command item {}: no shell reads a command, so `{word}` is passed on as it is",
            tool.name,
            item + 1
        );
        let hint = "declare an input with `array`, and pass Data.get(NAME, \"all\") to it";
        Problem::new(message).hint(hint)
    };
    let items = tool.command.iter().enumerate().skip(1);
    items.filter(|(item, word)| is_glob(word) && !tool.command[item - 1].starts_with('-')).map(warned).collect()
}

/// Returns whether `word` is a path with stars and without signs of a regular expression, such as
/// `*.csv` or `/data/*`.
fn is_glob(word: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || "*?/._-{}".contains(c);
    let regular = word.contains(".*") && !word.contains('/') && !word.ends_with(".*");
    word.len() > 1 && word.contains('*') && !word.starts_with('-') && !regular && word.chars().all(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{input, output};

    fn tool(command: &[&str]) -> Tool {
        let command = command.iter().map(|item| (*item).to_owned()).collect();
        Tool::new("T", command, vec![input("in"), output("out", "")])
    }

    fn refusal(command: &[&str]) -> Option<(usize, String)> {
        find_refused(&tool(command)).map(|word| (word.item, word.hint))
    }

    #[test]
    fn a_redirection_is_refused_with_the_key_to_use() {
        let stdout = |item| Some((item, "use `stdout = \"{out}\"`".to_owned()));
        assert_eq!(refusal(&["sort", "{in}", ">", "{out}"]), stdout(2));
        assert_eq!(refusal(&["sort", "{in}", ">{out}"]), stdout(2));
        assert_eq!(refusal(&["sort", "{in}", ">>", "{out}"]), stdout(2));
        assert_eq!(refusal(&["tr", "a", "b", "<", "{in}"]), Some((3, "use `stdin = \"{in}\"`".to_owned())));
        assert_eq!(refusal(&["sort", "{in}", ">", "x.txt"]), Some((2, "use `stdout = \"{OUTPUT}\"`".to_owned())));
        assert_eq!(refusal(&["x", "{in}", "2>", "{out}"]), Some((2, "use `stderr = \"{out}\"`".to_owned())));
    }

    #[test]
    fn steps_and_substitutions_of_a_shell_are_refused() {
        for command in [
            &["sort", "{in}", "|", "uniq", "-c"][..],
            &["a", "{in}", "&&", "b", "{out}"],
            &["a", "{in}", "||", "true"],
            &["a", "{in}", "$(nproc)"],
            &["a", "{in}", "2>&1"],
        ] {
            assert!(refusal(command).is_some(), "{command:?}");
        }
    }

    #[test]
    fn what_a_program_takes_itself_is_let_be() {
        for command in [
            &["sh", "-c", "sort $1 > $2", "sh", "{in}", "{out}"][..],
            &["env", "A=1", "bash", "-c", "x | y", ">", "{out}"],
            &["grep", "-c", ">", "{in}"],
            &["grep", ">", "{in}"],
            &["cut", "-d", "|", "-f1", "{in}"],
            &["tr", "|", ","],
            &["awk", "$(NF-1) > 3", "{in}"],
            &["expr", "1", ">", "{out}"],
            &["python3", "-c", "print(1 < 2)", "{in}"],
        ] {
            assert_eq!(refusal(command), None, "{command:?}");
            assert!(warnings(&tool(command)).is_empty(), "{command:?}");
        }
    }

    #[test]
    fn a_pattern_of_file_names_is_a_warning_unless_a_program_takes_it() {
        for pattern in ["*.csv", "/data/*", "{here}/refs/*.fa", "Train.*"] {
            assert_eq!(warnings(&tool(&["wc", pattern])).len(), 1, "{pattern}");
        }
        for command in [&["find", "{in}", "-name", "*.c"][..], &["x", "--exclude", "*.o"], &["x", "a.*b"], &["x", "*"]]
        {
            assert!(warnings(&tool(command)).is_empty(), "{command:?}");
        }
    }
}
