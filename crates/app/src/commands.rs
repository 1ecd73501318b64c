//! `flow show --commands`: the commands of a run, as a shell script.
//!
//! Paths are those of a run, with `$POOL` in place of the pool's directory, which exists only in a
//! run; inputs are the files of the data directory. Tasks are in an order in which they can run, so
//! the script does what the run does, one task after another.

use crate::flow_command::format_call;
use crate::source::LoadedWorkflow;
use base::printable;
use flow::{DataId, TaskCommand, TaskId};
use std::path::Path;

/// Placeholder of the pool's directory until a line is quoted; no path and no value contains a zero
/// byte.
const POOL: &str = "\0";

/// Beginning of the script: creates the parent of the tasks' directories.
const OPENING: &str = "# What `tidemill run` starts, with $POOL in place of the pool's directory.\nPOOL=$(mktemp -d)\n";

/// The commands of all tasks.
pub fn listing(loaded: &LoadedWorkflow) -> String {
    let tasks = loaded.flow.order().iter().map(|task| of_task(loaded, *task));
    std::iter::once(OPENING.to_owned()).chain(tasks).collect()
}

fn of_task(loaded: &LoadedWorkflow, task: TaskId) -> String {
    let flow = &loaded.flow;
    let tool = flow.tool_of(task);
    let path_of = |id: DataId| match flow.workflow().input_path(id) {
        Some(path) => loaded.data_dir.join(path).display().to_string(),
        None => Path::new(POOL).join(run::member_place(flow, id)).display().to_string(),
    };
    let dir = Path::new(POOL).join(run::task_dir(flow, task)).display().to_string();
    let command = flow.command(task, &dir, &path_of);
    let mut steps = Vec::new();
    if tool.needs_workdir() {
        steps.push(format!("mkdir -p {0} && cd {0}", quote(&dir)));
    }
    steps.extend(layout_commands(&command));
    steps.push(started(&command));
    let line = flow.task(task).line;
    let line = if line > 0 { format!(", line {line}") } else { String::new() };
    let title = format!("task {}{line}: {}", task.0, format_call(flow, task, &tool.name));
    format!("\n# {}\n{}\n", printable::line(&title), steps.join(" &&\n  "))
}

/// Commands that make lists and directories of links before the tool starts.
fn layout_commands(command: &TaskCommand) -> Vec<String> {
    let mut steps = Vec::new();
    for (path, text) in &command.lists {
        let lines: Vec<String> = text.lines().map(quote).collect();
        steps.push(format!("printf '%s\\n' {} > {}", lines.join(" "), quote(path)));
    }
    for dir in &command.dirs {
        steps.push(format!("mkdir -p {}", quote(&dir.path)));
        let link = |(name, target): &(String, String)| {
            format!("ln -s {} {}", quote(target), quote(&format!("{}/{name}", dir.path)))
        };
        steps.extend(dir.links.iter().map(link));
    }
    steps
}

/// The command line with variables, arguments and redirections.
fn started(command: &TaskCommand) -> String {
    let mut words = Vec::new();
    let is_variable = |name: &str| flow::is_identifier(name);
    if !command.path.is_empty() {
        words.push(format!("PATH={}:\"$PATH\"", quote(&command.path.join(":"))));
    }
    let (plain, odd): (Vec<_>, Vec<_>) = command.env.iter().partition(|(name, _)| is_variable(name));
    words.extend(plain.iter().map(|(name, value)| format!("{name}={}", quote(value))));
    if !odd.is_empty() {
        words.push("env".to_owned());
        words.extend(odd.iter().map(|(name, value)| quote(&format!("{name}={value}"))));
    }
    words.push(quote(&command.program));
    words.extend(command.args.iter().map(|argument| quote(argument)));
    words.push(command.stdin.as_ref().map_or("< /dev/null".to_owned(), |path| format!("< {}", quote(path))));
    words.extend(command.stdout.as_ref().map(|path| format!("> {}", quote(path))));
    words.extend(command.stderr.as_ref().map(|path| format!("2> {}", quote(path))));
    words.join(" ")
}

/// Quotes `text` as one word of a shell; unprintable characters are written by their numbers.
fn quote(text: &str) -> String {
    if text.is_empty() {
        return "''".to_owned();
    }
    text.split(POOL).map(word).collect::<Vec<_>>().join("\"$POOL\"")
}

fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    if printable::lines(text) == text && !text.contains('\t') {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    // Use `printf` with octal bytes, which every shell has. Command substitution drops trailing
    // line ends, so they are added behind it.
    let shown = text.trim_end_matches('\n');
    let bytes: Vec<String> = shown.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let ends = &text[shown.len()..];
    let ends = if ends.is_empty() { String::new() } else { format!("'{ends}'") };
    format!("\"$(printf '{}')\"{ends}", bytes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_so_that_a_shell_reads_it_back() {
        for text in [
            "plain-1.txt",
            "a b",
            "it's",
            "$HOME `x` \"q\" \\",
            "*",
            "~",
            "a\tb",
            "\u{202e}x%s\x1b[2J\n",
            "a\nb\n",
            "é",
            "",
        ] {
            let line = format!("printf %s {}", quote(text));
            assert_eq!(printable::lines(&line), line, "nothing in it commands a terminal");
            let out = std::process::Command::new("sh").args(["-c", &line]).output().expect("sh is there");
            assert_eq!(String::from_utf8_lossy(&out.stdout), text, "{line}");
        }
        assert_eq!(quote("--in=\0/C45.3/x y"), "--in=\"$POOL\"'/C45.3/x y'");
        assert_eq!(quote("\0/a"), "\"$POOL\"/a");
    }
}
