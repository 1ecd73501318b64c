//! A builder of workflows for tests.

use crate::model::{ConfigBinding, DataId, DataRefs, Element, FileBinding, Source, Task, TaskId, ToolId, Workflow};
use crate::reference;
use crate::tool::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Tool};

/// A workflow under construction. A tool must be declared before it is called.
#[derive(Default)]
pub(crate) struct WorkflowBuilder {
    pub workflow: Workflow,
}

impl WorkflowBuilder {
    /// Adds a tool with a command in words, and parameters such as `input("in")`.
    pub fn tool(mut self, name: &str, command: &str, params: Vec<Param>) -> Self {
        self.workflow.tools.push(Tool {
            here: "/here".to_owned(),
            ..Tool::new(name, command.split(' ').map(str::to_owned).collect(), params)
        });
        self
    }

    /// Changes the last tool.
    pub fn with(mut self, change: impl FnOnce(&mut Tool)) -> Self {
        change(self.workflow.tools.last_mut().expect("a tool was declared"));
        self
    }

    /// Adds an input of one file.
    pub fn input(self, name: &str, path: &str) -> Self {
        self.element(name, &[], Source::Input(vec![path.into()]))
    }

    /// Adds an input of several files.
    pub fn inputs(self, name: &str, paths: &[&str]) -> Self {
        let count = u32::try_from(paths.len()).expect("few paths");
        self.element(name, &[count], Source::Input(paths.iter().map(|&path| path.into()).collect()))
    }

    pub fn define(self, name: &str, shape: &[u32]) -> Self {
        self.element(name, shape, Source::Defined)
    }

    fn element(mut self, name: &str, shape: &[u32], source: Source) -> Self {
        let first = DataId(self.workflow.data_count());
        let count = shape.iter().product();
        self.workflow.elements.push(Element {
            name: name.to_owned(),
            shape: shape.to_vec(),
            first,
            count,
            source,
            file: None,
        });
        self
    }

    /// Adds a call of `tool`, with parameters such as `in=A[0] out=B depth=3`; several references
    /// of an array are joined by `+`.
    pub fn call(mut self, tool: &str, params: &str) -> Self {
        let index = self.workflow.tools.iter().position(|known| known.name == tool).expect("the tool is declared");
        let (mut files, mut configs) = (Vec::new(), Vec::new());
        for (name, text) in params.split_whitespace().map(|pair| pair.split_once('=').expect("a name and a value")) {
            let tool = &self.workflow.tools[index];
            let at = tool.param(name).expect("the parameter is declared");
            let param = u16::try_from(at).expect("few parameters");
            match &tool.params[at].kind {
                ParamKind::Config { of, .. } => configs.push(ConfigBinding { param, value: value(*of, text) }),
                kind => files.push(FileBinding { param, data: self.data(text, kind.array().is_some()) }),
            }
        }
        files.sort_by_key(|binding| binding.param);
        configs.sort_by_key(|binding| binding.param);
        let line = u32::try_from(self.workflow.tasks.len() + 1).expect("few tasks");
        let tool = ToolId(u32::try_from(index).expect("few tools"));
        self.workflow.tasks.push(Task {
            tool,
            files: files.into(),
            configs: configs.into(),
            after: Box::default(),
            line,
            placing: None,
        });
        self
    }

    /// Makes the last task come after `other`.
    pub fn after(mut self, other: u32) -> Self {
        self.workflow.tasks.last_mut().expect("a task was called").after = [TaskId(other)].into();
        self
    }

    pub fn data(&self, text: &str, is_array: bool) -> DataRefs {
        let mut members = Vec::new();
        for reference in text.split('+') {
            let (name, indices) = reference::parse(reference).expect("a reference");
            let element = self.workflow.elements.iter().find(|element| element.name == name).expect("an element");
            let span = reference::resolve(element, &indices).expect("within bounds");
            members.extend((span.first.0..span.first.0 + span.count).map(DataId));
        }
        if is_array || members.len() > 1 { DataRefs::array(&members) } else { DataRefs::One(members[0]) }
    }
}

fn value(of: ConfigType, text: &str) -> ConfigValue {
    match of {
        ConfigType::Integer => ConfigValue::Integer(text.parse().expect("an integer")),
        ConfigType::Number => ConfigValue::Number(text.parse().expect("a number")),
        ConfigType::Boolean => ConfigValue::Boolean(text.parse().expect("a boolean")),
        ConfigType::String => ConfigValue::String(text.to_owned()),
        ConfigType::Strings => ConfigValue::Strings(text.split(',').map(str::to_owned).collect()),
    }
}

pub(crate) fn input(name: &str) -> Param {
    param(name, ParamKind::Input { array: None, optional: false, implicit: false })
}

pub(crate) fn optional(name: &str) -> Param {
    param(name, ParamKind::Input { array: None, optional: true, implicit: false })
}

pub(crate) fn inputs(name: &str, form: ArrayForm) -> Param {
    param(name, ParamKind::Input { array: Some(form), optional: false, implicit: false })
}

pub(crate) fn output(name: &str, extension: &str) -> Param {
    let extension = extension.to_owned();
    param(name, ParamKind::Output { array: None, file: None, extension, implicit: false })
}

pub(crate) fn outputs(name: &str, form: ArrayForm) -> Param {
    param(name, ParamKind::Output { array: Some(form), file: None, extension: String::new(), implicit: false })
}

pub(crate) fn named(name: &str, array: Option<ArrayForm>, file: &str) -> Param {
    param(name, ParamKind::Output { array, file: Some(file.to_owned()), extension: String::new(), implicit: false })
}

pub(crate) fn config(name: &str, of: ConfigType, default: Option<ConfigValue>) -> Param {
    param(name, ParamKind::Config { of, default })
}

fn param(name: &str, kind: ParamKind) -> Param {
    Param { name: name.to_owned(), kind }
}

/// A workflow with the tools that many tests need: `Copy`, `Split` (into arguments), `Merge` (from
/// a list).
pub(crate) fn builder() -> WorkflowBuilder {
    WorkflowBuilder::default()
        .tool("Copy", "cp {in} {out}", vec![input("in"), output("out", "")])
        .tool("Split", "split {in} {parts}", vec![input("in"), outputs("parts", ArrayForm::Args)])
        .tool("Merge", "merge {parts} {out}", vec![inputs("parts", ArrayForm::List), output("out", ".all")])
}
