//! Layer 1: scripts in the language of Swift/T to calls of programs, as values become known.
//!
//! ```text
//!   text --> load (preprocessor, parser; modules) --> check --> Program --> Evaluator
//!                                                                            |    ^
//!                                                      ScriptStep: calls, lines   ends of calls
//! ```
//!
//! The text comes from the caller, as do the files that it includes: nothing here reads files,
//! knows a clock or starts a process. The design is in `docs/design/2026-11-28-swift-scripts.md`.
#![forbid(unsafe_code)]

mod app_declaration;
mod ast;
mod check;
#[cfg(test)]
mod docs_test;
mod escapes;
mod eval;
#[cfg(test)]
mod fuzz_test;
mod lexer;
mod library;
mod loader;
mod parser;
mod preprocessor;
mod program;
mod source;
mod token;
mod types;
mod value;

pub use app_declaration::{AppDeclaration, AppId, AppParam, AppParamKind, AppTemplate};
pub use ast::SwiftModule;
pub use check::{CheckedScript, check};
pub use eval::{
    AppCall, AppFile, AppValue, CallId, Evaluator, ScriptAnswer, ScriptQuestion, ScriptQuestionId, ScriptStep,
    ScriptWorld,
};
pub use loader::{ScriptFolders, load};
pub use preprocessor::ScriptFiles;
pub use program::Program;
pub use source::{Sources, Span};
pub use value::{ScriptFileId, TaskLocation};
