//! Annotations: the priority and location of a call, and hints of another compiler.
//!
//! Hints (`@pure`, `@unroll=4`) tell Swift/T's compiler what it may do to be faster. They are read
//! and change nothing.

use super::Checker;
use super::calls::{Implementation, Signature};
use crate::ast::{Annotation, SourceName};
use crate::program::{CallPlacing, Operations};
use crate::types::TypeId;

/// A place of hints.
#[derive(Debug, Clone, Copy)]
pub enum HintPlace {
    /// Before the definition of a function.
    Definition,
    /// Before a loop.
    Loop,
}

/// The hints of definitions.
const DEFINITION_HINTS: [&str; 15] = [
    "pure",
    "sideeffectfree",
    "deterministic",
    "assertion",
    "copy",
    "minmax",
    "commutative",
    "sync",
    "builtin_op",
    "stc_intrinsic",
    "implements",
    "dispatch",
    "deprecated",
    "checkpoint",
    "suppress",
];
/// The hints of loops.
const LOOP_HINTS: [&str; 6] = ["unroll", "splitdegree", "leafdegree", "sync", "async", "nosplit"];
/// The annotations of calls, with those that change nothing at the end.
const CALL_ANNOTATIONS: [&str; 5] = ["prio", "location", "soft_location", "dispatch", "suppress"];
/// The reason why `@par` is refused.
const PAR: &str = "`@par` runs a function on several processes of MPI, which is not supported";

impl Checker<'_> {
    /// Refuses annotations before a definition or a loop that are no hints there.
    pub(super) fn check_hints(&mut self, annotations: &[Annotation], place: HintPlace) {
        let (known, what) = match place {
            HintPlace::Definition => (&DEFINITION_HINTS[..], "functions"),
            HintPlace::Loop => (&LOOP_HINTS[..], "loops"),
        };
        for Annotation { name, .. } in annotations {
            if &*name.text == "par" {
                self.problem(name.span, PAR);
            } else if CALL_ANNOTATIONS[..3].contains(&&*name.text) {
                let message = format!("`@{}` is for the call of an app function, not for {what}", name.text);
                self.problem(name.span, message);
            } else if !known.contains(&&*name.text) {
                self.unknown_annotation(name, (what, known));
            }
        }
    }

    fn unknown_annotation(&mut self, name: &SourceName, (what, known): (&str, &[&str])) {
        let message = format!("there is no annotation `@{}` of {what}", name.text);
        let problem = self.sources.problem(name.span, message).nearest(&name.text, known.iter().copied());
        self.problems.push(problem);
    }

    /// The priority and location of a call, from its annotations.
    pub(super) fn placing(
        &mut self,
        annotations: &[Annotation],
        signature: &Signature,
        operations: &mut Operations,
    ) -> CallPlacing {
        let mut placing = CallPlacing::default();
        for Annotation { name, value } in annotations {
            let type_ = match &*name.text {
                "prio" => TypeId::INT,
                "location" | "soft_location" => TypeId::LOCATION,
                "par" => {
                    self.problem(name.span, PAR);
                    continue;
                }
                other if CALL_ANNOTATIONS.contains(&other) => continue,
                _ => {
                    self.unknown_annotation(name, ("calls", &CALL_ANNOTATIONS));
                    continue;
                }
            };
            let Some(value) = value else {
                self.problem(name.span, format!("`@{}` needs a value", name.text));
                continue;
            };
            let formula = self.formula_of_type(value, type_, "the value of this annotation", operations);
            if type_ == TypeId::INT {
                placing.priority = Some(formula);
            } else {
                (placing.location, placing.is_soft) = (Some(formula), &*name.text == "soft_location");
            }
            if !matches!(signature.implementation, Implementation::Script(_, true)) {
                let message = format!("`@{}` changes nothing: `{}` runs no program itself", name.text, signature.name);
                self.warn(name.span, message);
            }
        }
        placing
    }
}
