//! Declarations of apps: the command line of an app function, and its parameters.

use crate::source::Span;

/// The number of an app in [`crate::Program::apps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub u32);

impl AppId {
    /// The copy of a file to another one, which every program has.
    pub const COPY: Self = Self(0);
}

/// An app function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppDeclaration {
    /// Its name; of overloads the same.
    pub name: String,
    /// The position of its definition; `None` for [`AppId::COPY`].
    pub span: Option<Span>,
    /// Its parameters.
    pub params: Vec<AppParam>,
    /// The program and its arguments.
    pub command: Vec<AppTemplate>,
    /// The parameters of standard input, output and error, by their positions in `params`.
    pub streams: [Option<usize>; 3],
}

/// A parameter of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppParam {
    /// Its name in the script; of an expression `word` and the position.
    pub name: String,
    /// Its kind.
    pub kind: AppParamKind,
}

/// The kind of a parameter of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppParamKind {
    /// Files that are read; true if there may be several.
    Input(bool),
    /// Files that are written; true if there may be several.
    Output(bool),
    /// Values in the command; true if there may be several.
    Value(bool),
}

/// A word of a command line, or the words of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppTemplate {
    /// This text.
    Text(String),
    /// A parameter, by its position.
    Param(usize),
}

impl AppDeclaration {
    /// The copy of a file to another one.
    pub fn copy() -> Self {
        let param = |name: &str, kind| AppParam { name: name.to_owned(), kind };
        Self {
            name: "copy".to_owned(),
            span: None,
            params: vec![param("from", AppParamKind::Input(false)), param("to", AppParamKind::Output(false))],
            command: vec![AppTemplate::Text("cp".to_owned()), AppTemplate::Param(0), AppTemplate::Param(1)],
            streams: [None; 3],
        }
    }
}
