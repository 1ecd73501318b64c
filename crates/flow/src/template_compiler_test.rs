//! Tools that `check_tool` refuses, and the parts that it reports.

use super::*;

/// A tool `T` with an input `a`, array inputs `many` (args), `more` (args) and `all` (dir), an
/// optional input `mask`, an output `out`, and configs `depth` and `fast`. `command` is followed by
/// the two configs, so that both are used.
fn tool(command: &[&str]) -> Tool {
    let input = |array, optional| ParamKind::Input { array, optional, implicit: true };
    let params = vec![
        param("a", input(None, false)),
        param("many", input(Some(ArrayForm::Args), false)),
        param("more", input(Some(ArrayForm::Args), false)),
        param("all", input(Some(ArrayForm::Dir), false)),
        param("mask", input(None, true)),
        param("out", ParamKind::Output { array: None, file: None, extension: String::new(), implicit: true }),
        param("depth", ParamKind::Config { of: ConfigType::Integer, default: None }),
        param("fast", ParamKind::Config { of: ConfigType::Boolean, default: None }),
    ];
    let mut command: Vec<String> = command.iter().map(|&item| item.to_owned()).collect();
    command.extend(["{depth}".to_owned(), "{fast}".to_owned()]);
    Tool { params, ..bare(command) }
}

fn bare(command: Vec<String>) -> Tool {
    Tool::new("T", command, vec![])
}

fn param(name: &str, kind: ParamKind) -> Param {
    Param { name: name.to_owned(), kind }
}

fn messages(tool: &Tool) -> Vec<String> {
    check_tool(tool).into_iter().map(|found| found.problem.to_string()).collect()
}

/// The only message about `tool`.
fn message(tool: &Tool) -> String {
    let mut messages = messages(tool);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

#[test]
fn a_tool_that_makes_sense_is_not_refused() {
    let mut full_workflow =
        tool(&["{here}/run", "--in={a}", "{a.name}{a.ext}", "x{many}y", "{many.file}", "{all}", "{mask?-m}", "{mask}"]);
    full_workflow.stdin = Some("{a}".to_owned());
    full_workflow.stdout = Some("{out}".to_owned());
    full_workflow.env = vec![("ALL".to_owned(), "{all}:{depth}".to_owned())];
    assert_eq!(messages(&full_workflow), Vec::<String>::new());
}

#[test]
fn names_that_do_not_fit_are_refused_with_the_item() {
    for (item, expected) in [
        ("{aa}", "tool `T`, command item 2: unknown name `aa`\n  hint: did you mean `a`?"),
        ("{a.nam}", "tool `T`, command item 2: unknown part `.nam` of a path\n  hint: did you mean `name`?"),
        ("{depth.stem}", "tool `T`, command item 2: config `depth` is a value, it has no parts; write `{depth}`"),
        (
            "{all.name}",
            "tool `T`, command item 2: `all` is passed as a directory, so its path has no parts; write `{all}`",
        ),
        ("{many}{more}", "tool `T`, command item 2: names two parameters of several arguments; an item takes one"),
        (
            "{depth?x}",
            "tool `T`, command item 2: `{depth?...}` needs a boolean config or an optional input, and `depth` is neither",
        ),
        ("{", "tool `T`, command item 2: a `{` without its `}`; a plain brace is written twice: `{{`"),
    ] {
        assert_eq!(message(&tool(&["run", item])), expected, "{item}");
    }
    assert_eq!(
        message(&tool(&["{many}"])),
        "tool `T`, command item 1: the program cannot be the array or optional parameter `many`"
    );
}

#[test]
fn a_stream_is_one_single_file_of_its_direction() {
    for (stdin, expected) in [
        ("{out}", "tool `T`, stdin: needs an input without `array`"),
        ("{many}", "tool `T`, stdin: needs an input without `array`"),
        ("x{a}", "tool `T`, stdin: is one file parameter in braces, such as `{p}`"),
        ("{depth}", "tool `T`, stdin: is one file parameter in braces, such as `{p}`"),
    ] {
        let wrong = Tool { stdin: Some(stdin.to_owned()), ..tool(&["run"]) };
        assert_eq!(message(&wrong), expected, "{stdin}");
    }
    let wrong = Tool { stdout: Some("{a}".to_owned()), ..tool(&["run"]) };
    assert_eq!(message(&wrong), "tool `T`, stdout: needs an output without `array`");
}

#[test]
fn a_file_name_is_made_of_single_names() {
    for (file, expected) in [
        ("{a}", "a file name is made of names: write `{a.name}` or `{a.file}`"),
        ("{a.dir}", "a file name is made of names: write `{a.name}` or `{a.file}`"),
        ("{out.stem}", "the name of `out` cannot be made of itself"),
        ("{many.name}", "`many` takes arrays, so it has no single name"),
        ("{mask.name}", "`mask` is optional: a file name cannot need it"),
        ("a/b", "a file name is not empty and holds no `/` and no line end"),
        ("", "a file name is not empty and holds no `/` and no line end"),
        ("{here}", "unknown name `here`"),
    ] {
        let mut wrong = tool(&["run"]);
        wrong.params[5].kind =
            ParamKind::Output { array: None, file: Some(file.to_owned()), extension: String::new(), implicit: true };
        let found = message(&wrong);
        assert!(found.starts_with(&format!("tool `T`, parameter `out`: {expected}")), "{file}: {found}");
    }
}

#[test]
fn a_command_that_only_a_shell_would_understand_is_refused_with_what_to_write() {
    let wrong = tool(&["sort", "{a}", ">", "{out}"]);
    assert_eq!(
        message(&wrong),
        "tool `T`, command item 3: no shell reads a command, so `>` would be passed on\n  hint: use `stdout = \"{out}\"`"
    );
}

#[test]
fn outputs_named_after_each_other_are_refused() {
    let output = |file: &str| ParamKind::Output {
        array: None,
        file: Some(file.to_owned()),
        extension: String::new(),
        implicit: false,
    };
    let mut wrong = bare(vec!["run".to_owned()]);
    wrong.params = vec![param("x", output("{y.stem}.x")), param("y", output("{x.stem}.y"))];
    assert_eq!(message(&wrong), "tool `T`, parameter `x`: the names of these outputs are made of each other");
}

#[test]
fn a_parameter_the_tool_cannot_see_is_refused_unless_it_is_implicit() {
    let mut wrong = bare(vec!["run".to_owned()]);
    wrong.params = vec![param("a", ParamKind::Input { array: None, optional: false, implicit: false })];
    assert_eq!(
        message(&wrong),
        "tool `T`, parameter `a`: no template names it, so the tool cannot see it\n  \
         hint: name it in the command: `{a}`; if the tool finds the file by itself say implicit = true"
    );
    wrong.params = vec![param("a", ParamKind::Input { array: None, optional: false, implicit: true })];
    assert_eq!(messages(&wrong), Vec::<String>::new());
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let extension = |extension: &str| ParamKind::Output {
        array: None,
        file: None,
        extension: extension.to_owned(),
        implicit: true,
    };
    let default = |of, value| ParamKind::Config { of, default: Some(value) };
    for (kind, expected) in [
        (extension("fits"), "an extension begins with its dot\n  hint: write `.fits`"),
        (extension("./x"), "an extension holds no `/` and no line end"),
        (default(ConfigType::Integer, ConfigValue::Number(1.5)), "the default 1.5 is no integer"),
        (default(ConfigType::Number, ConfigValue::Number(f64::NAN)), "the default NaN is no number"),
        (default(ConfigType::Boolean, ConfigValue::String("yes".into())), "the default \"yes\" is no boolean"),
    ] {
        let wrong = Tool { params: vec![param("p", kind)], ..bare(vec!["run".to_owned(), "{p}".to_owned()]) };
        assert_eq!(message(&wrong), format!("tool `T`, parameter `p`: {expected}"));
    }
    let wrong = Tool { params: vec![param("here", extension(""))], ..bare(vec!["run".to_owned()]) };
    assert_eq!(message(&wrong), "tool `T`, parameter `here`: templates already know another thing by this name");
    assert_eq!(message(&bare(vec![])), "tool `T`: `command` is empty; its first item is the program");
}
