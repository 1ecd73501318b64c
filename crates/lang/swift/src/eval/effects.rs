//! Functions of the library that do something.

use super::frames::VariableFrame;
use super::{Evaluator, ScriptStep, formulas};
use crate::library::{self, ArgumentQuery, Effect};
use crate::program::{ComparisonOperation, OperationId, VariablePlace};
use crate::value::{ArrayKey, FileSource, Mapping, SwiftValue, TaskLocation};
use base::Problem;
use std::rc::Rc;

/// A call of such a function.
#[derive(Debug)]
pub struct EffectCall<'a> {
    /// The frame of the call.
    pub frame: &'a Rc<VariableFrame>,
    /// The operation.
    pub operation: OperationId,
    /// The inputs.
    pub inputs: &'a [SwiftValue],
    /// The variables of the outputs.
    pub outputs: &'a [VariablePlace],
}

impl Evaluator {
    pub(super) fn call_effect(&mut self, effect: Effect, call: &EffectCall) -> Result<(), Problem> {
        let inputs = call.inputs;
        let failed = |evaluator: &Self, message: String| evaluator.problem(call.frame, call.operation, message);
        let value = match effect {
            Effect::Trace => {
                self.trace(inputs);
                SwiftValue::Void
            }
            Effect::Printf => {
                let text = library::sprintf(inputs[0].str(), &inputs[1..]);
                let text = text.map_err(|message| failed(self, message))?;
                self.steps.push_back(ScriptStep::Print(text));
                SwiftValue::Void
            }
            Effect::Assert | Effect::AssertEqual | Effect::AssertLess | Effect::AssertAtMost => {
                assertion(effect, inputs).map_err(|message| failed(self, format!("assertion failed: {message}")))?;
                SwiftValue::Void
            }
            Effect::Filename => {
                let file = inputs[0].file().resolve();
                let state = file.state.borrow();
                match (&state.source, &state.mapping) {
                    (Some(FileSource::Input(path)), _) | (_, Mapping::Path(path)) => SwiftValue::Text(path.clone()),
                    _ => return Err(failed(self, "this file has no path of its own: it is temporary".to_owned())),
                }
            }
            Effect::Exists => SwiftValue::Boolean(inputs[0].array().members.borrow().has(&ArrayKey::of(&inputs[1]))),
            Effect::LocationOf => {
                let is_hard = inputs.get(1).is_some_and(|word| matches!(word, SwiftValue::Word("HARD")));
                SwiftValue::FileLocation(inputs[0].file().clone(), is_hard)
            }
            Effect::HostList | Effect::HostLeaders => {
                let members = if effect == Effect::HostList {
                    self.world.hosts.iter().map(|(name, _)| SwiftValue::text(name)).collect()
                } else {
                    self.leaders().into_iter().map(SwiftValue::Int).collect()
                };
                self.fill(call.frame, call.outputs[0], members);
                return Ok(());
            }
            Effect::FileType if !inputs[0].file().resolve().is_input() => SwiftValue::text("file"),
            Effect::Input
            | Effect::Read
            | Effect::Lines
            | Effect::Chunks
            | Effect::Glob
            | Effect::FileExists
            | Effect::FileType
            | Effect::PathType
            | Effect::ModifiedTime
            | Effect::Write
            | Effect::Sleep
            | Effect::SleepTrace
            | Effect::Clock
            | Effect::ClockSeconds
            | Effect::Run
            | Effect::RunShell => return self.ask(effect, call),
            Effect::Arguments(query) => self.argument(query, inputs).map_err(|message| failed(self, message))?,
            other => self.ask_world(other, inputs).map_err(|message| failed(self, message))?,
        };
        self.set(call.frame, call.outputs[0], value, call.operation)
    }

    /// Prints values.
    pub(super) fn trace(&mut self, values: &[SwiftValue]) {
        let texts: Vec<String> = values.iter().map(library::plain).collect();
        self.steps.push_back(ScriptStep::Print(format!("trace: {}\n", texts.join(","))));
    }

    /// Answers of the world that come at once: hosts, random numbers, the environment.
    fn ask_world(&mut self, effect: Effect, inputs: &[SwiftValue]) -> Result<SwiftValue, String> {
        Ok(match effect {
            Effect::Workers => SwiftValue::Int(self.workers()),
            Effect::Environment => {
                SwiftValue::text(self.world.environment.get(inputs[0].str()).map_or("", String::as_str))
            }
            Effect::HostRank => {
                let host = inputs[0].str();
                let position = self.world.hosts.iter().position(|(name, _)| name == host);
                let Some(position) = position else {
                    let names: Vec<&str> = self.world.hosts.iter().map(|(name, _)| name.as_str()).collect();
                    let message = format!("there is no host `{host}`; hosts are {}", names.join(", "));
                    return Err(message);
                };
                // Any slot of the host, so that tasks do not queue for its first one.
                let slots = u64::from(self.world.hosts[position].1).max(1);
                SwiftValue::Int(self.leaders()[position] + self.random.below(slots).cast_signed())
            }
            Effect::RandomWorker => {
                let workers = u64::try_from(self.workers()).unwrap_or(0).max(1);
                SwiftValue::Int(self.random.below(workers).cast_signed())
            }
            Effect::Random => SwiftValue::Float(self.random_fraction()),
            Effect::RandomInt => {
                let (start, end) = (inputs[0].int(), inputs[1].int());
                let count =
                    end.checked_sub(start).and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0);
                let Some(count) = count else {
                    return Err(format!("randint({start}, {end}) has no number to choose from"));
                };
                SwiftValue::Int(start + self.random.below(count).cast_signed())
            }
            other => unreachable!("{other:?} was answered before"),
        })
    }

    /// Refuses a rank that is none of the run.
    pub(super) fn check_rank(&self, location: TaskLocation) -> Result<(), String> {
        let (TaskLocation::Slot { rank, .. }, workers) = (location, self.workers()) else { return Ok(()) };
        if (0..workers).contains(&rank) {
            return Ok(());
        }
        let plural = if workers == 1 { "slot" } else { "slots" };
        Err(format!("there is no rank {rank}: this run has {workers} {plural}, with ranks from 0 on"))
    }

    /// The number of slots.
    fn workers(&self) -> i64 {
        self.world.hosts.iter().map(|(_, slots)| i64::from(*slots)).sum()
    }

    /// The first rank of each host.
    fn leaders(&self) -> Vec<i64> {
        let mut rank = 0;
        let first = |(_, slots): &(String, u32)| {
            rank += i64::from(*slots);
            rank - i64::from(*slots)
        };
        self.world.hosts.iter().map(first).collect()
    }

    /// A number from 0 to 1, without 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn random_fraction(&mut self) -> f64 {
        self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }

    /// An answer about the arguments of the script. Those that begin with `-` have names.
    fn argument(&self, query: ArgumentQuery, inputs: &[SwiftValue]) -> Result<SwiftValue, String> {
        let all = &self.world.arguments;
        let named = |argument: &str| -> Option<(String, String)> {
            let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
            let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
            Some((name.to_owned(), value.to_owned()))
        };
        let mut positional = all.iter().filter(|argument| named(argument).is_none());
        let find = |key: &str| all.iter().filter_map(|argument| named(argument)).find(|(name, _)| name == key);
        Ok(match query {
            ArgumentQuery::All => SwiftValue::text(&all.join(" ")),
            ArgumentQuery::Count => {
                SwiftValue::Int(i64::try_from(positional.count()).map_err(|error| error.to_string())?)
            }
            ArgumentQuery::HasFlag => SwiftValue::Boolean(find(inputs[0].str()).is_some()),
            ArgumentQuery::Flag => {
                let key = inputs[0].str();
                let found = find(key).map(|(_, value)| SwiftValue::text(&value)).or_else(|| inputs.get(1).cloned());
                found.ok_or_else(|| {
                    format!("the argument --{key}=... is missing: tidemill run W.swift -- --{key}=VALUE")
                })?
            }
            ArgumentQuery::Position => {
                let position = inputs[0].int();
                if position == 0 {
                    return Ok(SwiftValue::text(&self.world.script));
                }
                let found = usize::try_from(position).ok().and_then(|position| positional.nth(position - 1));
                let found = found.map(|text| SwiftValue::text(text)).or_else(|| inputs.get(1).cloned());
                found.ok_or_else(|| format!("there is no argument {position}: tidemill run W.swift -- ARGUMENTS"))?
            }
            ArgumentQuery::Accept => {
                let accepted: Vec<&str> = inputs.iter().map(SwiftValue::str).collect();
                let names = all.iter().filter_map(|argument| named(argument)).map(|(name, _)| name);
                if let Some(other) = names.into_iter().find(|name| !accepted.contains(&name.as_str())) {
                    return Err(format!(
                        "the argument --{other} is not accepted; those that are: {}",
                        accepted.join(", ")
                    ));
                }
                SwiftValue::Void
            }
        })
    }
}

/// The message of an assertion that does not hold.
fn assertion(effect: Effect, inputs: &[SwiftValue]) -> Result<(), String> {
    if effect == Effect::Assert {
        return if inputs[0].boolean() { Ok(()) } else { Err(inputs[1].str().to_owned()) };
    }
    let (one, two) = (&inputs[0], &inputs[1]);
    let (comparison, words) = match effect {
        Effect::AssertLess => (ComparisonOperation::Less, "not less than"),
        Effect::AssertAtMost => (ComparisonOperation::AtMost, "more than"),
        _ => (ComparisonOperation::Equal, "not"),
    };
    if formulas::compare(comparison, one, two) {
        return Ok(());
    }
    Err(format!("{} is {words} {}: {}", library::plain(one), library::plain(two), inputs[2].str()))
}
