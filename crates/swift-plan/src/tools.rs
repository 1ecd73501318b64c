//! Tools of app functions: the command line as a template, and what a tool file adds.

use base::Problem;
use flow::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, RESERVED_NAMES, Tool};
use std::collections::HashSet;
use std::path::Path;
use swift::{AppDeclaration, AppParamKind, AppTemplate};

/// The program that starts a program whose name only a call tells.
const LAUNCHER: &str = "env";

/// The tools of apps, in their order. A tool of an app's name among `given` gives it resources,
/// retries, a time-out, files and an environment. Relative paths of programs start from `data_dir`.
///
/// # Errors
/// Tools that no run could execute.
pub fn tools_of(apps: &[AppDeclaration], given: &[Tool], data_dir: &Path) -> Result<Vec<Tool>, Vec<Problem>> {
    let mut names = HashSet::new();
    let mut problems = Vec::new();
    let tools = apps.iter().map(|app| {
        let tool = tool_of(app, given.iter().find(|tool| tool.name == app.name), data_dir);
        let tool = Tool { name: free_name(&app.name, &mut names), ..tool };
        problems.extend(flow::check_tool(&tool).into_iter().map(|found| found.problem));
        tool
    });
    let tools = tools.collect();
    if problems.is_empty() { Ok(tools) } else { Err(problems) }
}

/// The name, or one with a number if another overload has it.
fn free_name(name: &str, names: &mut HashSet<String>) -> String {
    let others = (2..).map(|number| format!("{name}_{number}"));
    let free = std::iter::once(name.to_owned()).chain(others).find(|name| !names.contains(name)).expect("it ends");
    names.insert(free.clone());
    free
}

fn tool_of(app: &AppDeclaration, given: Option<&Tool>, data_dir: &Path) -> Tool {
    let names = param_names(app);
    let named: HashSet<usize> = app
        .command
        .iter()
        .filter_map(|word| if let AppTemplate::Param(param) = word { Some(*param) } else { None })
        .chain(app.streams.into_iter().flatten())
        .collect();
    let params = (0..)
        .zip(app.params.iter().zip(&names))
        .map(|(at, (param, name))| Param { name: name.clone(), kind: param_kind(param.kind, !named.contains(&at)) });
    let mut params: Vec<Param> = params.collect();
    let mut command = Vec::new();
    for (position, word) in app.command.iter().enumerate() {
        match word {
            AppTemplate::Text(text) if position == 0 => command.push(escaped(&program_path(text, data_dir))),
            AppTemplate::Text(text) if text.chars().all(is_plain) => command.push(text.clone()),
            AppTemplate::Text(text) => {
                // No template takes it apart, and no check takes it for a word of a shell.
                let name = format!("literal{position}");
                let default = Some(ConfigValue::String(text.clone()));
                command.push(format!("{{{name}}}"));
                params.push(Param { name, kind: ParamKind::Config { of: ConfigType::String, default } });
            }
            AppTemplate::Param(param) => {
                if position == 0 {
                    command.push(LAUNCHER.to_owned());
                }
                command.push(format!("{{{}}}", names[*param]));
            }
        }
    }
    let [stdin, stdout, stderr] = app.streams.map(|stream| stream.map(|param| format!("{{{}}}", names[param])));
    let here = data_dir.display().to_string();
    let tool = Tool { stdin, stdout, stderr, here, ..Tool::new(app.name.clone(), command, params) };
    let Some(given) = given else { return tool };
    Tool {
        description: given.description.clone(),
        resources: given.resources,
        retries: given.retries,
        timeout_ms: given.timeout_ms,
        files: given.files.clone(),
        path: given.path.clone(),
        here: given.here.clone(),
        version: given.version.clone(),
        workdir: given.workdir,
        env: given.env.iter().filter(|(_, value)| !value.contains('{')).cloned().collect(),
        ..tool
    }
}

/// Names of parameters that templates can have. `literal` and a number is for words of the command.
fn param_names(app: &AppDeclaration) -> Vec<String> {
    let is_taken = |name: &str| RESERVED_NAMES.contains(&name) || name.starts_with("literal");
    app.params
        .iter()
        .map(|param| if is_taken(&param.name) { format!("_{}", param.name) } else { param.name.clone() })
        .collect()
}

fn param_kind(kind: AppParamKind, implicit: bool) -> ParamKind {
    let form = |is_array: bool| is_array.then_some(ArrayForm::Words);
    match kind {
        AppParamKind::Input(is_array) => ParamKind::Input { array: form(is_array), optional: is_array, implicit },
        AppParamKind::Output(is_array) => {
            ParamKind::Output { array: form(is_array), file: None, extension: String::new(), implicit }
        }
        AppParamKind::Value(false) => ParamKind::Config { of: ConfigType::String, default: None },
        AppParamKind::Value(true) => ParamKind::Config { of: ConfigType::Strings, default: None },
    }
}

/// The path of a program: one that is relative starts from the data directory.
pub fn program_path(program: &str, data_dir: &Path) -> String {
    if program.contains('/') { data_dir.join(program).display().to_string() } else { program.to_owned() }
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-_./=:,@%+ ".contains(c)
}

/// A text as a template.
fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use swift::AppParam;

    fn app(command: Vec<AppTemplate>, params: &[(&str, AppParamKind)]) -> AppDeclaration {
        let param = |(name, kind): &(&str, AppParamKind)| AppParam { name: (*name).to_owned(), kind: *kind };
        let params = params.iter().map(param).collect();
        AppDeclaration { name: "dock".to_owned(), span: None, params, command, streams: [None; 3] }
    }

    fn text(text: &str) -> AppTemplate {
        AppTemplate::Text(text.to_owned())
    }

    #[test]
    fn words_become_templates_and_odd_ones_pass_as_they_are() {
        let params = [("index", AppParamKind::Value(false)), ("out", AppParamKind::Output(false))];
        let command = vec![text("./dock"), text("-n"), AppTemplate::Param(0), text("{a} > b"), AppTemplate::Param(1)];
        let tools = tools_of(&[app(command, &params)], &[], Path::new("/data")).expect("valid");
        assert_eq!(tools[0].command, ["/data/./dock", "-n", "{_index}", "{literal3}", "{out}"]);
        let literal = tools[0].params.iter().find(|param| param.name == "literal3").expect("it is there");
        let default = Some(ConfigValue::String("{a} > b".to_owned()));
        assert_eq!(literal.kind, ParamKind::Config { of: ConfigType::String, default });
    }

    #[test]
    fn a_program_that_a_call_names_is_started_by_env_and_overloads_have_names_of_their_own() {
        let params = [("program", AppParamKind::Value(false)), ("words", AppParamKind::Value(true))];
        let one = app(vec![AppTemplate::Param(0), AppTemplate::Param(1)], &params);
        let two = app(vec![text("true")], &[("ready", AppParamKind::Input(false))]);
        let tools = tools_of(&[one, two], &[], Path::new("/data")).expect("valid");
        assert_eq!(tools[0].command, ["env", "{program}", "{words}"]);
        assert_eq!((tools[0].name.as_str(), tools[1].name.as_str()), ("dock", "dock_2"));
    }

    #[test]
    fn a_tool_file_gives_resources_by_the_name_of_the_app() {
        let given = Tool {
            retries: 3,
            timeout_ms: Some(5),
            resources: flow::Resources { cpus: 2, memory: 7 },
            here: "/tools".to_owned(),
            path: vec!["bin".to_owned()],
            ..Tool::new("dock", vec!["other".to_owned()], Vec::new())
        };
        let tools = tools_of(&[app(vec![text("dock")], &[])], &[given], Path::new("/data")).expect("valid");
        assert_eq!((tools[0].retries, tools[0].timeout_ms, tools[0].resources.cpus), (3, Some(5), 2));
        assert_eq!((&tools[0].command[..], tools[0].here.as_str()), (&["dock".to_owned()][..], "/tools"));
    }
}
