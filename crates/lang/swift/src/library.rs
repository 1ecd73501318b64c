//! The library: what scripts may call without defining it.
//!
//! Its functions are declared in the language itself, in `library/modules/`: a string in place of
//! the body names a [`PureFunction`] or an [`Effect`] here.

mod arrays;
mod clock;
mod format;
mod number_functions;
mod texts;

use crate::value::SwiftValue;

pub use arrays::{float_range, int_range};
pub use format::{plain, sprintf};

/// A function without effects. What it returns depends on its arguments alone.
#[derive(Debug, Clone, Copy)]
pub struct PureFunction {
    /// The name in declarations.
    pub name: &'static str,
    /// Computes the value, or says why it cannot.
    pub call: fn(&[SwiftValue]) -> Result<SwiftValue, String>,
    /// Its need of arrays.
    pub arrays: ArrayNeed,
}

/// The need of a function of the arrays that it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayNeed {
    /// They get no more members.
    Closed,
    /// The same, and all members have values.
    Members,
}

/// A function that does something, or asks for what the script does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Trace,
    Printf,
    Assert,
    AssertEqual,
    AssertLess,
    AssertAtMost,
    Input,
    Filename,
    Exists,
    Workers,
    Environment,
    LocationOf,
    HostList,
    HostRank,
    HostLeaders,
    RandomWorker,
    Random,
    RandomInt,
    Read,
    Lines,
    Glob,
    FileExists,
    FileType,
    PathType,
    ModifiedTime,
    Chunks,
    Write,
    Sleep,
    SleepTrace,
    Clock,
    ClockSeconds,
    Run,
    RunShell,
    Arguments(ArgumentQuery),
}

/// A question about the arguments of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentQuery {
    All,
    Count,
    Flag,
    Position,
    HasFlag,
    Accept,
}

/// The modules, with their declarations.
const MODULES: [(&str, &str); 11] = [
    ("builtins", include_str!("library/modules/builtins.swift")),
    ("io", include_str!("library/modules/io.swift")),
    ("string", include_str!("library/modules/string.swift")),
    ("math", include_str!("library/modules/math.swift")),
    ("stats", include_str!("library/modules/stats.swift")),
    ("assert", include_str!("library/modules/assert.swift")),
    ("files", include_str!("library/modules/files.swift")),
    ("sys", include_str!("library/modules/sys.swift")),
    ("random", include_str!("library/modules/random.swift")),
    ("unix", include_str!("library/modules/unix.swift")),
    ("location", include_str!("library/modules/location.swift")),
];

/// Modules of Swift/T that are not here, with what they do.
const REFUSED_MODULES: [(&str, &str); 14] = [
    ("python", "runs Python within Swift/T; call a program from an app function instead"),
    ("R", "runs R within Swift/T; call a program from an app function instead"),
    ("julia", "runs Julia within Swift/T; call a program from an app function instead"),
    ("jvm", "runs code of the Java machine within Swift/T; call a program from an app function instead"),
    ("groovy", "runs Groovy within Swift/T; call a program from an app function instead"),
    ("launch", "starts programs of MPI; call them from an app function instead"),
    ("job", "gives jobs to a queue; run the workflow in a job instead"),
    ("blob", "is for bytes in memory; use files instead"),
    ("matrix", "is for bytes in memory; use files instead"),
    ("json", "takes JSON apart; call a program from an app function instead"),
    ("mpe", "writes logs of MPI; a run has a report of its own"),
    ("gemtc", "runs code on graphics cards; call a program from an app function instead"),
    ("turbine", "is for Turbine itself"),
    ("reductions", "reduces arrays with functions of Tcl; use stats instead"),
];
/// Functions of those modules, with the modules.
const REFUSED_FUNCTIONS: [(&str, &str); 16] = [
    ("python", "python"),
    ("python_persist", "python"),
    ("python_exec", "python"),
    ("python_parallel_persist", "python"),
    ("R", "R"),
    ("r", "R"),
    ("r_persist", "R"),
    ("julia", "julia"),
    ("launch", "launch"),
    ("json_get", "json"),
    ("json_type", "json"),
    ("blob_size", "blob"),
    ("blob_read", "blob"),
    ("blob_from_string", "blob"),
    ("string2blob", "blob"),
    ("blob2string", "blob"),
];

/// The names of modules of Swift/T that are not here.
#[cfg(test)]
pub fn refused_names() -> impl Iterator<Item = &'static str> {
    REFUSED_MODULES.iter().map(|(name, _)| *name)
}

/// The reason why there is no module of this name, if Swift/T has one.
pub fn refused_module(name: &str) -> Option<String> {
    let (_, why) = REFUSED_MODULES.iter().find(|(module, _)| *module == name)?;
    Some(format!("the module `{name}` is not supported: it {why}"))
}

/// The reason why there is no function of this name, if Swift/T has one.
pub fn refused_function(name: &str) -> Option<String> {
    let (_, module) = REFUSED_FUNCTIONS.iter().find(|(function, _)| *function == name)?;
    let (_, why) = REFUSED_MODULES.iter().find(|(found, _)| found == module)?;
    Some(format!("`{name}` is not supported: the module `{module}` {why}"))
}

/// The declarations of a module of the library.
pub fn module(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|(module, _)| *module == name).map(|(_, text)| *text)
}

/// The module that declares a function.
pub fn module_of(function: &str) -> Option<&'static str> {
    let name = format!(" {function}(");
    let declares = |line: &str| line.find(&name).is_some_and(|at| !line[..at].contains(['\"', '{', '=']));
    MODULES.iter().find(|(_, text)| text.lines().any(declares)).map(|(module, _)| *module)
}

/// The names of the modules.
pub fn module_names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}

/// The function without effects of this name.
pub fn pure(name: &str) -> Option<PureFunction> {
    [number_functions::FUNCTIONS, texts::FUNCTIONS, arrays::FUNCTIONS, clock::FUNCTIONS]
        .into_iter()
        .flatten()
        .find(|found| found.name == name)
        .copied()
}

/// The function with effects of this name.
pub fn effect(name: &str) -> Option<Effect> {
    Some(match name {
        "trace" => Effect::Trace,
        "printf" => Effect::Printf,
        "assert" => Effect::Assert,
        "assert_equal" => Effect::AssertEqual,
        "assert_less" => Effect::AssertLess,
        "assert_at_most" => Effect::AssertAtMost,
        "input" => Effect::Input,
        "filename" => Effect::Filename,
        "exists" => Effect::Exists,
        "turbine_workers" => Effect::Workers,
        "getenv" => Effect::Environment,
        "location_of" => Effect::LocationOf,
        "host_list" => Effect::HostList,
        "host_rank" => Effect::HostRank,
        "host_leaders" => Effect::HostLeaders,
        "random_worker" => Effect::RandomWorker,
        "random" => Effect::Random,
        "randint" => Effect::RandomInt,
        "read" => Effect::Read,
        "file_lines" => Effect::Lines,
        "glob" => Effect::Glob,
        "file_exists" => Effect::FileExists,
        "write" => Effect::Write,
        "file_type" => Effect::FileType,
        "file_type_string" => Effect::PathType,
        "file_mtime" => Effect::ModifiedTime,
        "file_chunks" => Effect::Chunks,
        "sleep" => Effect::Sleep,
        "sleep_trace" => Effect::SleepTrace,
        "clock" => Effect::Clock,
        "clock_seconds" => Effect::ClockSeconds,
        "system" => Effect::Run,
        "system1" => Effect::RunShell,
        "args" => Effect::Arguments(ArgumentQuery::All),
        "argc" => Effect::Arguments(ArgumentQuery::Count),
        "argv" => Effect::Arguments(ArgumentQuery::Flag),
        "argp" => Effect::Arguments(ArgumentQuery::Position),
        "argv_contains" => Effect::Arguments(ArgumentQuery::HasFlag),
        "argv_accept" => Effect::Arguments(ArgumentQuery::Accept),
        _ => return None,
    })
}

/// A function that needs the members of its arrays.
const fn function(name: &'static str, call: fn(&[SwiftValue]) -> Result<SwiftValue, String>) -> PureFunction {
    PureFunction { name, call, arrays: ArrayNeed::Members }
}

#[cfg(test)]
#[path = "library/library_test.rs"]
mod tests;
