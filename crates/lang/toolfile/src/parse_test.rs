//! Valid tool files, and a table of invalid ones with their error messages.

use super::*;
use flow::{ArrayForm, ConfigType, ConfigValue, ParamKind, Resources};

const WHOLE: &str = r#"version = 1

[tools.C45]
description = "Decision tree by information gain"
command = ["python3", "{here}/train.py", "tree", "{dataset}", "{model}", "--depth={depth}", "{verbose?--verbose}"]
files = ["train.py", "rows.py"]
path = ["../.venv/bin"]
cpus = 2
memory = "512MiB"
retries = 1
timeout = "10min"
version = ["python3", "--version"]
env = { OMP_NUM_THREADS = "1" }

[tools.C45.inputs]
dataset = {}

[tools.C45.outputs]
model = { extension = ".model" }

[tools.C45.config]
depth = { type = "integer", default = 12 }
verbose = { type = "boolean", default = false }

[tools.Merge]
command = ["cat", "{parts}"]
stdout = "{whole}"
inputs = { parts = { array = "args" } }
outputs = { whole = {} }
"#;

fn read(text: &str) -> Result<Vec<Tool>, Vec<Problem>> {
    parse(&ToolFile { name: "tools.toml", text, here: Path::new("/t") }, &|path| !path.ends_with("missing.py"))
}

/// The problems of a file with one tool: `[tools.T]` on line 2, followed by `lines`.
fn problem_text(lines: &str) -> String {
    let text = format!("version = 1\n[tools.T]\n{lines}\n");
    let problems = read(&text).expect_err("the file is wrong");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_whole_file_becomes_its_tools() {
    let tools = read(WHOLE).expect("the file is right");
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["C45", "Merge"]);
    let tool = &tools[0];
    assert_eq!(tool.command.len(), 7);
    assert_eq!(tool.resources, Resources { cpus: 2, memory: 512 << 20 });
    assert_eq!((tool.retries, tool.timeout_ms, tool.here.as_str()), (1, Some(600_000), "/t"));
    assert_eq!(tool.files, ["train.py", "rows.py"]);
    assert_eq!(tool.version, ["python3", "--version"]);
    assert_eq!(tool.env, [("OMP_NUM_THREADS".to_owned(), "1".to_owned())]);
    let params: Vec<&str> = tool.params.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(params, ["dataset", "model", "depth", "verbose"]);
    let depth = ParamKind::Config { of: ConfigType::Integer, default: Some(ConfigValue::Integer(12)) };
    assert_eq!(tool.params[2].kind, depth);
    assert_eq!(tools[1].params[0].kind.array(), Some(ArrayForm::Args));
    assert_eq!(tools[1].stdout.as_deref(), Some("{whole}"));
}

#[test]
fn parameters_keep_the_order_of_the_text() {
    let text = "version = 1\n[tools.T]\ncommand = [\"{z}\", \"{a}\", \"{m}\"]\n\
                inputs.z = {}\ninputs.a = {}\n[tools.T.outputs.m]\n[tools.A]\ncommand = [\"x\"]\n";
    let tools = read(text).expect("the file is right");
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["T", "A"]);
    assert_eq!(tools[0].params.iter().map(|param| param.name.as_str()).collect::<Vec<_>>(), ["z", "a", "m"]);
}

/// Checks the messages for invalid tools: pairs of the lines of a tool and the expected message.
fn check_messages(wrong: &[(&str, &str)]) {
    for (lines, expected) in wrong {
        assert_eq!(problem_text(lines), *expected, "{lines}");
    }
}

#[test]
fn what_is_wrong_with_a_tool_is_reported_with_place_and_nearest_name() {
    let run = "command = [\"run\"]\n";
    check_messages(&[
        (
            "comand = [\"run\"]\ncommand = [\"run\"]",
            "tools.toml:3:1: tool `T`: unknown key `comand`\n    3 | comand = [\"run\"]\n      | ^\n  hint: did you mean `command`?",
        ),
        (
            "command = [\"run\", \"{datset}\"]\ninputs.dataset = { implicit = true }",
            "tools.toml:3:19: tool `T`, command item 2: unknown name `datset`\n    3 | command = [\"run\", \"{datset}\"]\n      |                   ^\n  hint: did you mean `dataset`?",
        ),
        (
            &format!("{run}[tools.T.inputs]\na = {{ optionl = true, implicit = true }}"),
            "tools.toml:5:7: tool `T`, parameter `a`: unknown key `optionl`\n    5 | a = { optionl = true, implicit = true }\n      |       ^\n  hint: did you mean `optional`?",
        ),
        (
            &format!("{run}cpus = 0"),
            "tools.toml:4:8: tool `T`: `cpus` is between 1 and 4096, not 0\n    4 | cpus = 0\n      |        ^",
        ),
        (
            &format!("{run}timeout = 10"),
            "tools.toml:4:11: tool `T`: `timeout` is a time such as \"10min\"; units are ms, s, min, h\n    4 | timeout = 10\n      |           ^",
        ),
        (
            &format!("{run}memory = \"lots\""),
            "tools.toml:4:10: tool `T`: `memory` is a size such as \"512MiB\"\n    4 | memory = \"lots\"\n      |          ^",
        ),
        (
            &format!("{run}files = [\"missing.py\"]"),
            "tools.toml:4:10: tool `T`: the file `missing.py` does not exist\n    4 | files = [\"missing.py\"]\n      |          ^\n  hint: `files` are found from the tool file's directory, /t",
        ),
        (
            &format!("{run}env = {{ A = 1 }}"),
            "tools.toml:4:13: tool `T`: variable `A` needs text in quotes, and this is a whole number\n    4 | env = { A = 1 }\n      |             ^",
        ),
        (
            "command = \"run\"",
            "tools.toml:3:11: tool `T`: `command` needs a list of texts, and this is text\n    3 | command = \"run\"\n      |           ^",
        ),
        (
            "command = [\"run\", 1]",
            "tools.toml:3:19: tool `T`: `command` is a list of texts, and this is a whole number\n    3 | command = [\"run\", 1]\n      |                   ^",
        ),
        (
            "retries = 1",
            "tools.toml:2:8: tool `T`: `command` is missing\n    2 | [tools.T]\n      |        ^\n  hint: say what to run: command = [\"program\", \"{input}\"]",
        ),
        (
            &format!("{run}inputs.a = {{}}"),
            "tools.toml:4:8: tool `T`, parameter `a`: no template names it, so the tool cannot see it\n    4 | inputs.a = {}\n      |        ^\n  hint: name it in the command: `{a}`; if the tool finds the file by itself say implicit = true",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_a_parameter_is_reported_with_place_and_nearest_name() {
    let run = "command = [\"run\"]\n";
    check_messages(&[
        (
            "command = [\"run\", \"{a}\"]\ninputs.a = {}\noutputs.a = {}",
            "tools.toml:5:9: tool `T`, parameter `a`: declared twice\n    5 | outputs.a = {}\n      |         ^",
        ),
        (
            "command = [\"run\", \"{a}\"]\ninputs.a = { array = \"arg\" }",
            "tools.toml:4:22: tool `T`, parameter `a`: unknown form of array `arg`\n    4 | inputs.a = { array = \"arg\" }\n      |                      ^\n  hint: did you mean `args`?",
        ),
        (
            "command = [\"run\", \"{c}\"]\nconfig.c = { type = \"int\" }",
            "tools.toml:4:21: tool `T`, parameter `c`: unknown type `int`\n    4 | config.c = { type = \"int\" }\n      |                     ^\n  hint: did you mean `integer`?",
        ),
        (
            "command = [\"run\", \"{c}\"]\nconfig.c = { default = 1 }",
            "tools.toml:4:8: tool `T`, parameter `c`: `type` is missing\n    4 | config.c = { default = 1 }\n      |        ^\n  hint: one of integer, number, string, boolean",
        ),
        (
            "command = [\"run\", \"{c}\"]\nconfig.c = { type = \"integer\", default = \"8\" }",
            "tools.toml:4:42: tool `T`, parameter `c`: the default \"8\" is no integer\n    4 | config.c = { type = \"integer\", default = \"8\" }\n      |                                          ^",
        ),
        (
            "command = [\"run\", \"{o}\"]\noutputs.o = { file = \"{x.name}.y\" }",
            "tools.toml:4:22: tool `T`, parameter `o`: unknown name `x`\n    4 | outputs.o = { file = \"{x.name}.y\" }\n      |                      ^\n  hint: known: o, element, index, number",
        ),
        (
            "command = [\"run\", \"{o}\"]\noutputs.o = { extension = \"fits\" }",
            "tools.toml:4:27: tool `T`, parameter `o`: an extension begins with its dot\n    4 | outputs.o = { extension = \"fits\" }\n      |                           ^\n  hint: write `.fits`",
        ),
        (
            &format!("{run}stdin = \"a\""),
            "tools.toml:4:9: tool `T`, stdin: is one file parameter in braces, such as `{p}`\n    4 | stdin = \"a\"\n      |         ^",
        ),
        (
            &format!("{run}inputs = 3"),
            "tools.toml:4:10: tool `T`: `inputs` needs a table, and this is a whole number\n    4 | inputs = 3\n      |          ^",
        ),
        (
            &format!("{run}inputs.a = 3"),
            "tools.toml:4:12: tool `T`, parameter `a`: needs a table, and this is a whole number\n    4 | inputs.a = 3\n      |            ^",
        ),
    ]);
}

#[test]
fn the_file_as_a_whole_is_checked() {
    for (text, expected) in [
        ("", "tools.toml:1:1: `version` is missing\n  hint: begin the file with `version = 1`"),
        (
            "version = 2\n[tools.T]\ncommand = [\"x\"]",
            "tools.toml:1:11: version 2 is not known; this program reads version 1",
        ),
        ("version = 1", "tools.toml:1:1: no tools are declared"),
        ("version = 1\ntool.T = 1\ntools.T.command=[\"x\"]", "tools.toml:2:1: unknown key `tool`"),
        (
            "version = 1\n[tools.Data]\ncommand = [\"x\"]",
            "tools.toml:2:8: tool `Data`: scripts know another thing by this name",
        ),
        (
            "version = 1\n[tools.\"a b\"]\ncommand = [\"x\"]",
            "tools.toml:2:8: tool `a b`: a tool's name is made of letters",
        ),
        ("version = 1\n[tools.T\n", "tools.toml:2:9: this is not TOML: "),
        ("version = 1\nversion = 1\n", "tools.toml:2:1: this is not TOML: duplicate key"),
    ] {
        let problems = read(text).expect_err("the file is wrong");
        assert!(problems[0].to_string().starts_with(expected), "{text:?} has the message:\n{}", problems[0]);
    }
}

#[test]
fn every_problem_of_a_file_is_reported_at_once_and_in_order() {
    let text = "version = 1\n[tools.A]\ncpus = 0\ncommand = [\"{x}\"]\n[tools.B]\nretries = -1\ncommand = [\"y\"]\n";
    let problems = read(text).expect_err("the file is wrong");
    let lines: Vec<u32> =
        problems.iter().filter_map(|problem| problem.location.as_ref()).map(|location| location.line).collect();
    assert_eq!(lines, [3, 4, 6]);
}

#[test]
fn the_tool_files_of_the_examples_are_right() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let directories = std::fs::read_dir(examples).expect("the examples are there").flatten();
    let files = directories.map(|directory| directory.path().join("tools.toml")).filter(|file| file.exists());
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("is readable");
        let here = file.parent().expect("is in a directory");
        let tools = parse(&ToolFile { name: &file.to_string_lossy(), text: &text, here }, &|path| path.exists());
        count += tools.unwrap_or_else(|problems| panic!("{}", problems[0])).len();
    }
    assert!(count > 8, "{count} tools");
}

/// Cuts a few bytes at every position, and swaps bytes: each text is read or refused, without a
/// panic.
#[test]
fn no_damage_makes_it_panic() {
    for at in 0..WHOLE.len() {
        for length in 1..4 {
            let end = (at + length).min(WHOLE.len());
            let cut = format!("{}{}", &WHOLE[..at], &WHOLE[end..]);
            let _ = read(&cut);
        }
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes.swap(at, (at + 7) % WHOLE.len());
        let _ = read(&String::from_utf8_lossy(&bytes));
    }
}
