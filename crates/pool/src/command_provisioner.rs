//! Starts and ends machines by commands: those of a batch system, a cloud, or `ssh`.
//!
//! ```text
//!   start command, once for each node: {name}, {pool} --> a machine runs
//!       tidemill pool join --pool FILE --name NAME      --> a node of that name joins
//!   stop command: {name}, {output} of the start command, for a node that has left or never came
//! ```
//! A start command may end at once (`sbatch`) or live as long as its node (`ssh HOST tidemill pool
//! join`).

use crate::{
    NodePhase,
    connect::{parse_entry, runtime},
    launch::{shell_quote, wait},
    provisioner::Provisioner,
    resize::{CHANGE_PATIENCE, ResizedPool},
};
use base::{Problem, printable};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Interval of looks whether a node has joined.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Time that a stop command gets, and a start command to end after its node has left.
const STOP_WAIT: Duration = Duration::from_secs(20);
/// Time that a command gets to end after a signal.
const END_WAIT: Duration = Duration::from_secs(5);
/// Characters of a command's output that a message has.
const SHOWN_CHARS: usize = 400;
/// Bytes of a command's output that are kept.
const KEPT_BYTES: u64 = 64 << 10;

/// The commands that start and end the machine of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCommands {
    /// Starts a machine: words for a shell, with `{name}` and `{pool}`.
    pub start: String,
    /// Ends it: words for a shell, with `{name}` and `{output}`, the first line that the start
    /// command has printed.
    pub stop: Option<String>,
    /// Time from the start command to a node that has joined.
    pub time_out: Duration,
}

impl MachineCommands {
    /// Checks the templates.
    ///
    /// # Errors
    /// If the start command lacks `{name}` or `{pool}`, or a template has an unknown place.
    pub fn check(&self) -> Result<(), Problem> {
        let example = "for example: --start-command 'sbatch --parsable --wrap \"tidemill pool join --pool {pool} --name {name}\"'";
        for place in ["{name}", "{pool}"] {
            if !self.start.contains(place) {
                return Err(Problem::new(format!("the start command has no {place}: its node would not be known"))
                    .hint(example));
            }
        }
        let templates = [(&self.start, &["name", "pool"][..])];
        let stop = self.stop.as_ref().map(|stop| (stop, &["name", "output", "pool"][..]));
        for (template, known) in templates.into_iter().chain(stop) {
            if let Some(unknown) = places(template).find(|place| !known.contains(place)) {
                return Err(Problem::new(format!("`{template}`: there is no {{{unknown}}}"))
                    .hint(format!("a template may have {{{}}}", known.join("}, {"))));
            }
        }
        Ok(())
    }
}

/// The places `{word}` of a template.
fn places(template: &str) -> impl Iterator<Item = &str> {
    let is_word = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
    template.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(word, _)| word)).filter(is_word)
}

/// Starts and ends machines by commands.
#[derive(Debug)]
pub struct CommandProvisioner {
    path: PathBuf,
    commands: MachineCommands,
    machines: Mutex<Vec<StartedMachine>>,
    /// The number of the next machine, for its name.
    next: Mutex<u32>,
    is_cancelled: AtomicBool,
}

/// A machine that a command has started, and its node if that has joined.
#[derive(Debug)]
struct StartedMachine {
    name: String,
    node: Option<u32>,
    child: Child,
    output: Arc<Mutex<CommandOutput>>,
    ended: Option<ExitStatus>,
}

/// What a command has printed so far.
#[derive(Debug, Default)]
struct CommandOutput {
    first_line: Option<String>,
    /// The end of its standard error.
    errors: String,
}

impl CommandProvisioner {
    /// For the pool of the pool file at `path`.
    ///
    /// # Errors
    /// Those of [`MachineCommands::check`].
    pub fn new(path: PathBuf, commands: MachineCommands) -> Result<Self, Problem> {
        commands.check()?;
        Ok(Self {
            path,
            commands,
            machines: Mutex::default(),
            next: Mutex::new(1),
            is_cancelled: AtomicBool::new(false),
        })
    }

    fn start_one(&self) -> Result<StartedMachine, Problem> {
        let number = {
            let mut next = self.next.lock();
            *next += 1;
            *next - 1
        };
        let name = format!("elastic-{}-{number}", std::process::id());
        let text = fill(&self.commands.start, &[("name", &name), ("pool", &self.path.to_string_lossy())]);
        let mut child = shell(&text)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Problem::new(format!("no shell for the start command: {error}")))?;
        let output = Arc::new(Mutex::new(CommandOutput::default()));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (first, last) = (output.clone(), output.clone());
        let read = [
            thread::Builder::new().name("start-output".into()).spawn(move || keep_first_line(stdout, &first)),
            thread::Builder::new().name("start-errors".into()).spawn(move || keep_errors(stderr, &last)),
        ];
        for thread in read {
            thread.map_err(|error| Problem::new(format!("no thread for the start command: {error}")))?;
        }
        Ok(StartedMachine { name, node: None, child, output, ended: None })
    }

    /// Waits until the nodes of these machines have joined, the commands have failed, or the time
    /// is over. The reason is that of the last one that will not come.
    fn wait_for(&self, machines: &mut [StartedMachine]) -> Option<String> {
        let until = Instant::now() + self.commands.time_out;
        let mut why = None;
        loop {
            match self.joined() {
                Ok(joined) => {
                    for machine in machines.iter_mut() {
                        machine.node = joined.iter().find(|(name, _)| *name == machine.name).map(|(_, node)| *node);
                    }
                }
                Err(problem) => why = Some(problem.message),
            }
            for machine in machines.iter_mut().filter(|machine| machine.node.is_none()) {
                if let Some(reason) = machine.failure() {
                    why = Some(reason);
                }
            }
            let is_open = |machine: &StartedMachine| {
                machine.node.is_none() && machine.ended.is_none_or(|status| status.success())
            };
            if !machines.iter().any(is_open) {
                return why;
            }
            if self.is_cancelled.load(Relaxed) {
                return Some("it was not waited for any more".to_owned());
            }
            if Instant::now() >= until {
                let seconds = self.commands.time_out.as_secs_f64();
                return Some(why.unwrap_or_else(|| format!("no node has joined within {seconds} s")));
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// The named nodes that take partitions.
    fn joined(&self) -> Result<Vec<(String, u32)>, Problem> {
        let status = runtime()?.block_on(ResizedPool::open(&self.path, CHANGE_PATIENCE)?.status())?;
        let serving = status.state.nodes().iter().filter(|(_, node)| node.phase == NodePhase::Serving);
        let named = serving.filter_map(|(id, node)| Some((parse_entry(*id, &node.address).ok()?.name?, id.0)));
        Ok(named.collect())
    }

    /// Ends a machine: by the stop command, and by the end of the start command, if that lives.
    fn end(&self, mut machine: StartedMachine) {
        if let Some(stop) = &self.commands.stop {
            let output = machine.output.lock().first_line.clone().unwrap_or_default();
            let pool = self.path.to_string_lossy();
            let text = fill(stop, &[("name", &machine.name), ("output", &output), ("pool", &pool)]);
            let spawned = shell(&text).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            match spawned {
                Ok(mut child) => {
                    if wait(&mut child, STOP_WAIT).is_none() {
                        tracing::warn!("the stop command of {} does not end: {text}", machine.name);
                        end_group(&mut child);
                    }
                }
                Err(error) => tracing::warn!("no shell for the stop command: {error}"),
            }
        }
        let has_left = machine.node.is_some();
        if machine.ended.is_none() && !(has_left && wait(&mut machine.child, STOP_WAIT).is_some()) {
            end_group(&mut machine.child);
        }
    }
}

impl StartedMachine {
    /// Why its node will not come, if the start command has failed.
    fn failure(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        let status = self.ended.filter(|status| !status.success())?;
        let errors = printable::line(self.output.lock().errors.trim()).into_owned();
        let shown: String = errors.chars().take(SHOWN_CHARS).collect();
        let told = if shown.is_empty() { String::new() } else { format!(": {shown}") };
        Some(format!("the start command has failed ({status}){told}"))
    }
}

impl Provisioner for CommandProvisioner {
    fn start(&self, nodes: u32) -> Result<Vec<u32>, Problem> {
        let mut machines = Vec::new();
        for _ in 0..nodes {
            match self.start_one() {
                Ok(machine) => machines.push(machine),
                Err(problem) if machines.is_empty() => return Err(problem),
                // Fewer nodes are better than none.
                Err(problem) => {
                    tracing::warn!("{problem}");
                    break;
                }
            }
        }
        let why = self.wait_for(&mut machines);
        let (joined, missing): (Vec<_>, Vec<_>) = machines.into_iter().partition(|machine| machine.node.is_some());
        for machine in missing {
            self.end(machine);
        }
        let ids: Vec<u32> = joined.iter().filter_map(|machine| machine.node).collect();
        self.machines.lock().extend(joined);
        if ids.is_empty() {
            let why = why.unwrap_or_else(|| "no node has joined".to_owned());
            return Err(
                Problem::new(why).hint("a start command has a machine run `tidemill pool join`; try it by hand")
            );
        }
        Ok(ids)
    }

    fn release(&self, nodes: &[u32]) {
        let is_released = |machine: &mut StartedMachine| machine.node.is_some_and(|node| nodes.contains(&node));
        let released: Vec<StartedMachine> = self.machines.lock().extract_if(.., is_released).collect();
        for machine in released {
            self.end(machine);
        }
    }

    fn started(&self) -> Vec<u32> {
        self.machines.lock().iter().rev().filter_map(|machine| machine.node).collect()
    }

    fn time_out(&self) -> Duration {
        self.commands.time_out
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Relaxed);
    }
}

/// Fills the places of a template with words that a shell takes as they are.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let quoted = values.iter().map(|(place, value)| (format!("{{{place}}}"), shell_quote(value)));
    quoted.fold(template.to_owned(), |text, (place, value)| text.replace(&place, &value))
}

/// A shell that runs this, with a process group of its own.
fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(text).stdin(Stdio::null()).process_group(0);
    command
}

/// Ends a command with all that it has started: SIGTERM, and SIGKILL if that takes long.
fn end_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
        if wait(child, END_WAIT).is_some() {
            return;
        }
    }
}

fn keep_first_line(from: Option<impl Read>, to: &Mutex<CommandOutput>) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from).lines().map_while(Result::ok);
    to.lock().first_line = lines.next().map(|line| line.trim().to_owned());
    // A pipe that nobody empties would hold the command.
    lines.for_each(drop);
}

fn keep_errors(from: Option<impl Read>, to: &Mutex<CommandOutput>) {
    let Some(from) = from else { return };
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        let errors = &mut to.lock().errors;
        errors.push_str(&line);
        errors.push('\n');
        let surplus = errors.len().saturating_sub(usize::try_from(KEPT_BYTES).unwrap_or(usize::MAX));
        let cut = (surplus..errors.len()).find(|at| errors.is_char_boundary(*at)).unwrap_or(0);
        errors.drain(..cut);
    }
}
