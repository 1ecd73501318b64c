//! Converts a JavaScript exception to a problem with its position in the script.

use crate::Script;
use crate::engine::SCRIPT_NAME;
use base::{Problem, SourceLocation};
use rquickjs::{Coerced, Ctx, Object, Value};

/// The problem for a thrown value; `tools` are the names of the tools that the script may call.
/// Reading the value may run code of the script, so the caller must not hold a borrow that the
/// host's functions need.
pub(crate) fn to_problem<'js>(ctx: &Ctx<'js>, thrown: &Value<'js>, script: &Script, tools: &[String]) -> Problem {
    let Some(error) = thrown.as_object().filter(|object| object.is_error()) else {
        let problem = if thrown.is_null() {
            // The engine throws null if it has no memory left for an error.
            Problem::new("the script needs more memory than it may have, or threw null")
        } else {
            Problem::new(format!("the script threw {}", describe(thrown)))
        };
        return problem.at(SourceLocation::file(&script.file));
    };
    let message = truncate(&text(error, "message").unwrap_or_default());
    let at = error_position(error);
    let problem = match error.get::<_, Option<Object<'_>>>("hostDetails").ok().flatten() {
        Some(details) => Problem { hint: text(&details, "hint"), ..Problem::new(message) },
        None => native_error(ctx, script, tools, (&text(error, "name").unwrap_or_default(), &message), at),
    };
    problem.at(location(script, at))
}

/// The line and column of an error: those that the host set, or else the engine's position.
pub(crate) fn error_position(error: &Object<'_>) -> Option<(u32, u32)> {
    let details = error.get::<_, Option<Object<'_>>>("hostDetails").ok().flatten();
    let number = |key| details.as_ref()?.get::<_, Option<u32>>(key).ok().flatten();
    number("line").zip(number("column")).or_else(|| script_position(&text(error, "stack")?))
}

/// The position of an error; only the file if no line is known.
pub(crate) fn location(script: &Script, at: Option<(u32, u32)>) -> SourceLocation {
    match at {
        Some(at) => SourceLocation::at_line(&script.file, &script.source, at),
        None => SourceLocation::file(&script.file),
    }
}

/// The problem for an error that JavaScript itself raised.
fn native_error(
    ctx: &Ctx<'_>,
    script: &Script,
    tools: &[String],
    (name, message): (&str, &str),
    at: Option<(u32, u32)>,
) -> Problem {
    let undefined = message.strip_suffix(" is not defined").filter(|_| name == "ReferenceError");
    match (name, message) {
        _ if undefined.is_some() => undefined_name(ctx, script, tools, undefined.unwrap_or_default(), at),
        ("SyntaxError", _) => Problem::new(format!("syntax error: {message}")),
        (_, "out of memory") => Problem::new("the script needs more memory than it may have"),
        ("RangeError" | "InternalError", message)
            if message.contains("call stack") || message.contains("stack overflow") =>
        {
            Problem::new("the script's calls nest too deep").hint("does a function call itself without an end?")
        }
        ("" | "Error", _) => Problem::new(format!("the script threw: {message}")),
        _ => Problem::new(format!("{name}: {message}")),
    }
}

/// The problem for an undefined name, as the name of a tool if it is called.
fn undefined_name(ctx: &Ctx<'_>, script: &Script, tools: &[String], name: &str, at: Option<(u32, u32)>) -> Problem {
    let line = at.and_then(|(line, _)| script.source.lines().nth(line.saturating_sub(1) as usize)).unwrap_or_default();
    let is_called = line.match_indices(name).any(|(at, _)| line[at + name.len()..].trim_start().starts_with('('));
    if is_called {
        let known = tools.iter().map(String::as_str).chain(["Data"]);
        return Problem::new(format!("unknown tool `{name}`")).nearest(name, known);
    }
    let variables: Vec<String> = ctx.globals().keys::<String>().flatten().collect();
    let known = variables.iter().chain(tools).map(String::as_str).chain(["Data"]);
    Problem::new(format!("unknown name `{name}`")).nearest(name, known)
}

/// The line and column of the innermost frame of the script in a stack trace.
pub(crate) fn script_position(stack: &str) -> Option<(u32, u32)> {
    let at = stack.lines().find_map(|frame| frame.split_once(SCRIPT_NAME)?.1.strip_prefix(':'))?;
    let mut numbers = at.trim_end_matches(')').split(':').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn text(error: &Object<'_>, key: &str) -> Option<String> {
    let value = error.get::<_, Value<'_>>(key).ok().filter(|value| !value.is_undefined() && !value.is_null())?;
    value.get::<Coerced<String>>().ok().map(|text| text.0)
}

/// The text of a thrown value that is not an error.
fn describe(thrown: &Value<'_>) -> String {
    let text = thrown.get::<Coerced<String>>().map_or_else(|_| thrown.type_name().to_owned(), |text| text.0);
    truncate(&text)
}

/// Shortens text from a script to a readable length.
fn truncate(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 1_000;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
