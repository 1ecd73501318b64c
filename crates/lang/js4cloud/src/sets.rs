//! Whether `--set` names variables that the script declares.
//!
//! JavaScript makes the global variables of a script before it runs its first statement. So the script is started once in a
//! context of its own, with a statement before it that throws at once: what is there then was declared at the top level.

use crate::Script;
use crate::engine::eval;
use base::{Place, Problem};
use flow::ConfigValue;
use rquickjs::{Ctx, Value};

/// Refuses the first name that no top-level `var` of `script` declares.
pub(crate) fn check(ctx: &Ctx<'_>, script: &Script, sets: &[(String, ConfigValue)]) -> Result<(), Problem> {
    let before = names(ctx);
    if eval::<Value<'_>>(ctx, &format!("throw 0;{}", script.source), "<declared>").is_err() {
        // The throw itself, or a syntax error, which the run will tell.
        let thrown = ctx.catch();
        if thrown.is_object() {
            return Ok(());
        }
    }
    let declared: Vec<String> = names(ctx).into_iter().filter(|name| !before.contains(name)).collect();
    match sets.iter().find(|(name, _)| !declared.contains(name)) {
        Some((name, _)) => Err(refused(ctx, script, name, &declared)),
        None => Ok(()),
    }
}

/// The names of the global object's own values that are not functions.
fn names(ctx: &Ctx<'_>) -> Vec<String> {
    let code = "Object.getOwnPropertyNames(globalThis).filter((name) => typeof globalThis[name] !== 'function')";
    eval(ctx, code, "<names>").unwrap_or_default()
}

fn refused(ctx: &Ctx<'_>, script: &Script, name: &str, declared: &[String]) -> Problem {
    let place = Place::file(&script.file);
    if is_lexical(ctx, name) {
        let message = format!("`{name}` is declared with `let`, `const` or `class`, and only a `var` can be set");
        return Problem::new(message).at(place).hint(format!("write `var {name} = ...` in the script"));
    }
    let message = format!("the script declares no top-level `var {name}` that could be set");
    Problem::new(message).at(place).nearest(name, declared.iter().map(String::as_str))
}

/// Whether `name` is declared by `let` or `const`: such a variable exists, and cannot be read before its value is given.
fn is_lexical(ctx: &Ctx<'_>, name: &str) -> bool {
    if !flow::is_identifier(name) {
        return false;
    }
    let code = format!("try {{ {name}; false }} catch (error) {{ !/not defined/.test(error.message) }}");
    eval(ctx, &code, "<lexical>").unwrap_or(false)
}
