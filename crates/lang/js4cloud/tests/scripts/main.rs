//! Evaluates whole scripts through the public API.

mod arrays;
mod files;
mod hostile;
mod limits;
mod listing;
mod messages;
mod overrides;
mod patterns;

use base::Problem;
use flow::{ArrayForm, Catalogue, ConfigType, ConfigValue, Param, ParamKind, Tool, Workflow};
use js4cloud::{Inputs, Script, evaluate};

/// A tool whose parameters are written `<name` for an input, `>name` for an output, `name` for an
/// integer config with a default, `name!` for one without, and `name?` for a boolean config.
/// `<name[]` and `>name[]` take arrays; `<name~` is optional.
pub(crate) fn tool(name: &str, params: &[&str]) -> Tool {
    let params: Vec<Param> = params.iter().map(|text| param(text)).collect();
    let configs = params.iter().filter(|param| matches!(param.kind, ParamKind::Config { .. }));
    let values = configs.map(|param| format!("{{{}}}", param.name));
    Tool::new(name, std::iter::once("run".to_owned()).chain(values).collect(), params)
}

fn param(text: &str) -> Param {
    let name = text.trim_matches(['<', '>', '[', ']', '!', '?', '~']).to_owned();
    let array = text.ends_with("[]").then_some(ArrayForm::Args);
    let kind = match text.as_bytes()[0] {
        b'<' => ParamKind::Input { array, optional: text.ends_with('~'), implicit: true },
        b'>' => ParamKind::Output { array, file: None, extension: String::new(), implicit: true },
        _ if text.ends_with('?') => {
            ParamKind::Config { of: ConfigType::Boolean, default: Some(ConfigValue::Boolean(false)) }
        }
        _ => {
            let default = (!text.ends_with('!')).then_some(ConfigValue::Integer(1));
            ParamKind::Config { of: ConfigType::Integer, default }
        }
    };
    Param { name, kind }
}

/// The tools of the classification workflow, and `Any` and `Copy` for other tests.
pub(crate) fn tools() -> Vec<Tool> {
    vec![
        tool("Shuffler", &["<dataset", ">sDataset"]),
        tool("Partitioner", &["<dataset", ">datasetPart[]"]),
        tool("C45", &["<dataset", ">model", "depth", "verbose?"]),
        tool("SVM", &["<dataset", ">model"]),
        tool("NaiveBayes", &["<dataset", ">model"]),
        tool("ModelSelector", &["<dataset", "<models[]", ">bestModel"]),
        tool("Filter", &["<dataset", ">fDataset"]),
        tool("Predictor", &["<dataset", "<model", ">classDataset"]),
        tool("Any", &["<in[]", ">out[]"]),
        tool("Copy", &["<in", "<mask~", ">out"]),
    ]
}

/// `Train.csv`, `Test.csv`, `Unlab/0.csv` to `Unlab/79.csv`.
pub(crate) fn catalogue() -> Catalogue {
    let unlabelled = (0..80).map(|index| format!("Unlab/{index}.csv"));
    Catalogue::new(["Train.csv".to_owned(), "Test.csv".to_owned()].into_iter().chain(unlabelled))
}

pub(crate) fn inputs() -> Inputs {
    Inputs { tools: tools(), catalogue: catalogue(), ..Inputs::default() }
}

pub(crate) fn run(source: &str) -> Result<Workflow, Problem> {
    run_with(source, inputs())
}

pub(crate) fn run_with(source: &str, inputs: Inputs) -> Result<Workflow, Problem> {
    evaluate(Script { file: "dir/w.js".to_owned(), source: source.to_owned() }, inputs)
}

/// Each task as `Tool(param=member,...)`, in order.
pub(crate) fn calls(workflow: &Workflow) -> Vec<String> {
    let call = |task: &flow::Task| {
        let tool = workflow.tool_of(task);
        let files = task.files.iter().map(|binding| {
            let members: Vec<String> = binding.data.iter().map(|id| workflow.data_name(id)).collect();
            let members = members.join(" ");
            let shown = if binding.data.is_array() { format!("[{members}]") } else { members };
            format!("{}={shown}", tool.params[usize::from(binding.param)].name)
        });
        let configs = task
            .configs
            .iter()
            .map(|binding| format!("{}={}", tool.params[usize::from(binding.param)].name, binding.value.quoted()));
        format!("{}({})", tool.name, files.chain(configs).collect::<Vec<_>>().join(","))
    };
    workflow.tasks.iter().map(call).collect()
}
