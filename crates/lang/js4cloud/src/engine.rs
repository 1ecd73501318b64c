//! Runs one script in the engine: its thread, its limits, and its outcome.

use crate::builder::Builder;
use crate::{Inputs, Limits, Script, exception, host, overrides};
use base::{Problem, SourceLocation};
use flow::Workflow;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Function;
use rquickjs::{Context, Ctx, Error, Runtime, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

/// The stack of the script's thread: the engine's part, and space for the native calls above it.
pub(crate) const THREAD_STACK_BYTES: usize = 8 << 20;

/// The number of steps between two calls of the engine's interrupt handler.
const STEPS_PER_INTERRUPT: u64 = 10_000;

/// The name of the script in the engine's stack traces.
pub(crate) const SCRIPT_NAME: &str = "<script>";
const PRELUDE_NAME: &str = "<prelude>";

/// The most uncaught errors of `async` functions that are kept; only the last one is reported.
const REJECTIONS_MAX: usize = 16;

/// All intrinsics but `Date`, `performance` and weak references, which would make a script's
/// outcome depend on chance.
type Intrinsics = (
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// Evaluates the script on a thread of its own, so that its stack size is known and its time is
/// limited.
///
/// If the script is still inside one engine call when its time is over, its thread is abandoned.
/// The thread uses only its own memory, and the caller is about to refuse the script and exit.
pub(crate) fn evaluate(script: Script, inputs: Inputs) -> Result<Workflow, Problem> {
    let (sender, receiver) = sync_channel(1);
    let timed_out = Arc::new(AtomicBool::new(false));
    let (file, time) = (script.file.clone(), inputs.limits.time);
    let seen = Arc::clone(&timed_out);
    let thread = std::thread::Builder::new().name("script".to_owned()).stack_size(THREAD_STACK_BYTES);
    let started = thread.spawn(move || {
        // The receiver is gone only if the time was over; then nobody waits for the outcome.
        let _ = sender.send(Evaluation::new(script, inputs, seen).evaluate());
    });
    if let Err(error) = started {
        return Err(Problem::new(format!("no thread for the script: {error}")).at(SourceLocation::file(&file)));
    }
    match receiver.recv_timeout(time) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            timed_out.store(true, Ordering::Relaxed);
            Err(Problem::new(format!("the script takes longer than {} s", time.as_secs_f64()))
                .at(SourceLocation::file(&file)))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Problem::new("the script broke its engine")
            .at(SourceLocation::file(&file))
            .hint("this is a fault of tidemill: please tell its authors, with the script")),
    }
}

/// A script and the engine that runs it.
struct Evaluation {
    script: Script,
    limits: Limits,
    inputs: Inputs,
    timed_out: Arc<AtomicBool>,
}

impl Evaluation {
    fn new(script: Script, inputs: Inputs, timed_out: Arc<AtomicBool>) -> Self {
        Self { script, limits: inputs.limits, inputs, timed_out }
    }

    fn evaluate(mut self) -> Result<Workflow, Problem> {
        let stopped = Rc::new(Cell::new(false));
        let runtime = self.runtime(&stopped).map_err(|error| self.engine_error(&error))?;
        if !self.inputs.overrides.is_empty() {
            let context = Context::custom::<Intrinsics>(&runtime).map_err(|error| self.engine_error(&error))?;
            context.with(|ctx| overrides::check(&ctx, &self.script, &self.inputs.overrides))?;
        }
        let context = Context::custom::<Intrinsics>(&runtime).map_err(|error| self.engine_error(&error))?;
        let builder = Rc::new(RefCell::new(Builder::new(&self.script, std::mem::take(&mut self.inputs))));
        let tools: Rc<[String]> = builder.borrow().tool_names().into();
        let rejected = self.track_rejections(&runtime, &tools);
        context.with(|ctx| self.run(&ctx, (&builder, &tools), &stopped))?;
        if let Some(problem) = rejected.borrow_mut().pop() {
            return Err(problem);
        }
        builder.borrow_mut().log_end();
        drop(context);
        drop(runtime);
        let workflow = builder.borrow_mut().take();
        Ok(workflow)
    }

    /// Collects errors of `async` functions that nobody catches, in order.
    fn track_rejections(&self, runtime: &Runtime, tools: &Rc<[String]>) -> Rc<RefCell<Vec<Problem>>> {
        let rejected = Rc::new(RefCell::new(Vec::new()));
        let (all, tools, script) = (Rc::clone(&rejected), Rc::clone(tools), self.script.clone());
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |ctx, _promise, reason, is_handled| {
            // A promise that is caught after its rejection was reported here just before.
            if is_handled {
                all.borrow_mut().pop();
            } else if all.borrow().len() < REJECTIONS_MAX {
                // Reading the reason may run code of the script, whose promises may be rejected in
                // turn.
                let problem = exception::to_problem(&ctx, &reason, &script, &tools);
                all.borrow_mut().push(problem);
            }
        })));
        rejected
    }

    fn runtime(&self, stopped: &Rc<Cell<bool>>) -> Result<Runtime, Error> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(self.limits.memory_bytes);
        runtime.set_max_stack_size(self.limits.stack_bytes.min(THREAD_STACK_BYTES / 4));
        let (timed_out, stopped, mut steps_left) = (Arc::clone(&self.timed_out), Rc::clone(stopped), self.limits.steps);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            steps_left = steps_left.saturating_sub(STEPS_PER_INTERRUPT);
            stopped.set(steps_left == 0);
            steps_left == 0 || timed_out.load(Ordering::Relaxed)
        })));
        Ok(runtime)
    }

    fn run(
        &self,
        ctx: &Ctx<'_>,
        (builder, tools): (&Rc<RefCell<Builder>>, &[String]),
        stopped: &Cell<bool>,
    ) -> Result<(), Problem> {
        let prelude = eval::<Function<'_>>(ctx, include_str!("prelude.js"), PRELUDE_NAME);
        let start = prelude.and_then(|prelude| host::start(ctx, builder, &prelude));
        start.map_err(|error| self.engine_error(&error))?;
        let outcome = eval::<Value<'_>>(ctx, &self.script.source, SCRIPT_NAME).map(drop);
        match outcome.and_then(|()| finish_jobs(ctx)) {
            Err(Error::Exception) => {
                let thrown = ctx.catch();
                if stopped.get() {
                    return Err(self.step_limit_error(&thrown));
                }
                Err(exception::to_problem(ctx, &thrown, &self.script, tools))
            }
            Err(error) => Err(self.engine_error(&error)),
            // Pending jobs may have been interrupted without an exception.
            Ok(()) if stopped.get() => Err(self.step_limit_error(&ctx.catch())),
            Ok(()) => Ok(()),
        }
    }

    fn step_limit_error(&self, thrown: &Value<'_>) -> Problem {
        let message = format!("the script takes more than {} steps", self.limits.steps);
        // The engine reports 1:1 for code whose position it did not record, such as a loop of plain
        // sums.
        let at = thrown.as_object().and_then(exception::error_position).filter(|at| *at != (1, 1));
        Problem::new(message).at(exception::location(&self.script, at)).hint("does a loop never end?")
    }

    /// A failure of the engine itself, usually because it has no more memory.
    fn engine_error(&self, error: &Error) -> Problem {
        Problem::new(format!("the script cannot be run: {error}")).at(SourceLocation::file(&self.script.file))
    }
}

/// Evaluates `source` as a script (not a module, not strict) under `name`.
pub(crate) fn eval<'js, V: rquickjs::FromJs<'js>>(ctx: &Ctx<'js>, source: &str, name: &str) -> Result<V, Error> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(name.to_owned());
    ctx.eval_with_options(source, options)
}

/// Runs the pending jobs of the script: the rest of its `async` functions.
fn finish_jobs(ctx: &Ctx<'_>) -> Result<(), Error> {
    while ctx.execute_pending_job() {}
    if ctx.has_exception() { Err(Error::Exception) } else { Ok(()) }
}
