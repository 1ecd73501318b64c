//! Checks that `--set` names variables that the script declares.
//!
//! JavaScript creates the global variables of a script before it runs the first statement. So the
//! script is started once in a separate context, with a statement before it that throws at once.
//! The variables that then exist were declared at the top level.

use crate::Script;
use crate::engine::eval;
use base::{Problem, SourceLocation};
use flow::ConfigValue;
use rquickjs::{Ctx, Value};

/// Refuses the first name that no top-level `var` of `script` declares.
pub(crate) fn check(ctx: &Ctx<'_>, script: &Script, overrides: &[(String, ConfigValue)]) -> Result<(), Problem> {
    let before = names(ctx);
    if eval::<Value<'_>>(ctx, &format!("throw 0;{}", script.source), "<declared>").is_err() {
        // The exception is the `throw` itself, or a syntax error, which the real run will report.
        let thrown = ctx.catch();
        if thrown.is_object() {
            return Ok(());
        }
    }
    let declared: Vec<String> = names(ctx).into_iter().filter(|name| !before.contains(name)).collect();
    match overrides.iter().find(|(name, _)| !declared.contains(name)) {
        Some((name, _)) => Err(refuse(ctx, script, name, &declared)),
        None => Ok(()),
    }
}

/// The names of the global object's own properties that are not functions.
fn names(ctx: &Ctx<'_>) -> Vec<String> {
    let code = "Object.getOwnPropertyNames(globalThis).filter((name) => typeof globalThis[name] !== 'function')";
    eval(ctx, code, "<names>").unwrap_or_default()
}

fn refuse(ctx: &Ctx<'_>, script: &Script, name: &str, declared: &[String]) -> Problem {
    let location = SourceLocation::file(&script.file);
    if is_lexical(ctx, name) {
        let message = format!("`{name}` is declared with `let`, `const` or `class`, and only a `var` can be set");
        return Problem::new(message).at(location).hint(format!("write `var {name} = ...` in the script"));
    }
    let message = format!("the script declares no top-level `var {name}` that could be set");
    Problem::new(message).at(location).nearest(name, declared.iter().map(String::as_str))
}

/// Returns whether `name` is declared by `let`, `const` or `class`: such a variable exists, but
/// cannot be read before it is initialized.
fn is_lexical(ctx: &Ctx<'_>, name: &str) -> bool {
    if !flow::is_identifier(name) {
        return false;
    }
    let code = format!("try {{ {name}; false }} catch (error) {{ !/not defined/.test(error.message) }}");
    eval(ctx, &code, "<lexical>").unwrap_or(false)
}
