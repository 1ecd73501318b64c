//! Processes that become nodes: on this machine, over SSH, or by `srun`.

use crate::{
    order::{Reach, Said, hear, say},
    process::Held,
};
use base::Problem;
use serde::Serialize;
use std::{
    ffi::OsString,
    io::{self, BufReader},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

/// Who was not ended by the end of its input by then is killed: a node looks at that at once, a network may not.
const END_WAIT: Duration = Duration::from_secs(5);

/// Where the nodes of a pool run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// So many on this machine.
    Here(u32),
    /// One on each of these hosts, over SSH. The same may be named again.
    Ssh {
        /// As `ssh` takes them.
        hosts: Vec<String>,
        /// The command that brings one there, words between blanks.
        ssh: String,
    },
    /// One on each of so many hosts of the Slurm allocation that this process is in.
    Slurm {
        /// How many.
        hosts: u32,
        /// The command, words between blanks.
        srun: String,
    },
}

impl Places {
    /// How many nodes.
    pub fn count(&self) -> u32 {
        match self {
            Self::Here(count) | Self::Slurm { hosts: count, .. } => *count,
            Self::Ssh { hosts, .. } => u32::try_from(hosts.len()).unwrap_or(u32::MAX),
        }
    }

    /// From where the node at a place is reached; and how many nodes share its host.
    pub(crate) fn reach(&self, place: usize) -> (Reach, u32) {
        match self {
            Self::Here(count) => (Reach::Here, *count),
            Self::Slurm { .. } => (Reach::OwnName, 1),
            Self::Ssh { hosts, .. } => {
                // `ada@host` is a login; what is listened at is the host.
                let name = |host: &str| host.rsplit_once('@').map_or(host, |(_, name)| name).to_owned();
                let host = name(&hosts[place]);
                let same = hosts.iter().filter(|other| name(other) == host).count();
                (Reach::Named(host), u32::try_from(same).unwrap_or(u32::MAX))
            }
        }
    }
}

/// How nodes are called: the program and the pool file, which their command lines name.
#[derive(Clone, Debug)]
pub struct Call {
    pub program: PathBuf,
    pub file: PathBuf,
}

/// The processes of a start, and what they say. Those that it is not told to let go of end with it.
#[derive(Debug)]
pub struct Launched {
    processes: Vec<Process>,
    said: Receiver<(usize, io::Result<Option<Said>>)>,
    let_go: bool,
}

#[derive(Debug)]
struct Process {
    /// For messages.
    what: String,
    child: Child,
    stdin: Option<ChildStdin>,
    /// It is there as long as its nodes are.
    stays: bool,
}

impl Launched {
    /// Starts a process for each node, or one that starts them all.
    pub fn begin(places: &Places, call: &Call) -> Result<Self, Problem> {
        let (tell, said) = mpsc::channel();
        let mut launched = Self { processes: Vec::new(), said, let_go: false };
        match places {
            Places::Here(count) => {
                for id in 1..=*count {
                    launched.add(format!("node {id}"), here(call, id), &tell)?;
                }
            }
            Places::Ssh { hosts, ssh } => {
                for (id, host) in (1..).zip(hosts) {
                    launched.add(format!("node {id} at {host}"), over_ssh(call, id, host, ssh)?, &tell)?;
                }
            }
            Places::Slurm { hosts, srun } => {
                let mut command = by_srun(call, *hosts, srun)?;
                // It outlives its starter, which may not be waited for through a pipe that it holds, nor end it by Ctrl-C.
                command.stderr(Stdio::piped()).process_group(0);
                launched.add("srun".to_owned(), command, &tell)?;
                launched.processes.iter_mut().for_each(Process::pass_on);
            }
        }
        Ok(launched)
    }

    fn add(
        &mut self,
        what: String,
        mut command: Command,
        tell: &Sender<(usize, io::Result<Option<Said>>)>,
    ) -> Result<(), Problem> {
        let program = command.get_program().to_string_lossy().into_owned();
        let no_start = |error| {
            Problem::new(format!("{what} cannot be started: {program}: {error}")).hint("nothing was left running")
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(no_start)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let (index, tell) = (self.processes.len(), tell.clone());
        self.processes.push(Process { what, child, stdin, stays: false });
        let listen = move || {
            let mut lines = BufReader::new(stdout);
            loop {
                let line = hear(&mut lines);
                let last = !matches!(line, Ok(Some(_)));
                // Nobody listens when the start is over.
                if tell.send((index, line)).is_err() || last {
                    return;
                }
            }
        };
        let no_thread = |error| Problem::new(format!("no thread for a node that starts: {error}"));
        thread::Builder::new().name("starting".into()).spawn(listen).map(drop).map_err(no_thread)
    }

    /// Tells all processes. One that has gone is found by what it does not say.
    pub fn tell(&mut self, what: &impl Serialize) {
        for process in &mut self.processes {
            if let Some(stdin) = &mut process.stdin {
                let _ = say(stdin, what);
            }
        }
    }

    /// The next thing that a node says; none if none says anything until then, a problem when one cannot start.
    pub fn hear(&mut self, until: Instant) -> Result<Option<Said>, Problem> {
        match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((_, Ok(Some(Said::Refused(id, message, hint))))) => {
                let problem = Problem::new(format!("node {id} cannot start: {message}"));
                Err(hint.map_or(problem.clone(), |hint| problem.hint(hint)))
            }
            Ok((_, Ok(Some(said)))) => Ok(Some(said)),
            Ok((index, Ok(None))) => Err(self.ended(index)),
            Ok((index, Err(error))) => Err(Problem::new(format!("{}: {error}", self.processes[index].what))
                .hint("what its shell prints at the start of a session must not go to standard output")),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    fn ended(&mut self, index: usize) -> Problem {
        let process = &mut self.processes[index];
        let how = match wait(&mut process.child, Duration::from_secs(1)) {
            Some(status) => status.to_string(),
            None => "it closed its output".to_owned(),
        };
        Problem::new(format!("{} ended before it was ready: {how}", process.what))
            .hint("what it printed stands above; a host needs the same tidemill at the same path")
    }

    /// They stay. Waits until those have ended that only brought nodes elsewhere.
    pub fn let_go(mut self, until: Instant) {
        self.let_go = true;
        let mut open = self.processes.iter().filter(|process| !process.stays).count();
        while open > 0 {
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((_, Ok(Some(_)))) => {}
                Ok(_) => open -= 1,
                Err(_) => return,
            }
        }
    }
}

impl Process {
    /// It stays; as long as we are here, what it says on standard error is said on ours.
    fn pass_on(&mut self) {
        self.stays = true;
        let Some(mut stderr) = self.child.stderr.take() else { return };
        // Without it the words are lost, nothing else.
        let _ = thread::Builder::new().name("srun".into()).spawn(move || io::copy(&mut stderr, &mut io::stderr()));
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.let_go {
            return;
        }
        self.processes.iter_mut().for_each(|process| process.stdin = None);
        for process in &mut self.processes {
            if wait(&mut process.child, END_WAIT).is_none() {
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
        }
    }
}

/// Waits for a child's end.
fn wait(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    match child.try_wait() {
        Ok(None) => {
            let ended = Held::of(child.id())?.wait(most);
            ended.then(|| child.wait().ok()).flatten()
        }
        // One that was waited for already has given up its number.
        ended => ended.ok().flatten(),
    }
}

/// The arguments of a node.
fn arguments(call: &Call) -> Vec<OsString> {
    vec!["node".into(), "--pool".into(), call.file.clone().into()]
}

fn here(call: &Call, id: u32) -> Command {
    let mut command = Command::new(&call.program);
    command.args(arguments(call)).args(["--id".into(), id.to_string()]);
    command
}

/// A shell of the other host takes the words apart again, so each is quoted.
fn over_ssh(call: &Call, id: u32, host: &str, ssh: &str) -> Result<Command, Problem> {
    if host.is_empty() || host.starts_with('-') {
        return Err(Problem::new(format!("`{host}` is no host")).hint("--hosts takes names, a comma between two"));
    }
    let mut command = words(ssh, "ssh")?;
    let mut remote = quoted(&call.program.to_string_lossy());
    for word in arguments(call) {
        remote = format!("{remote} {}", quoted(&word.to_string_lossy()));
    }
    command.args(["-o", "BatchMode=yes", host, &format!("{remote} --id {id} --detach")]);
    Ok(command)
}

fn by_srun(call: &Call, hosts: u32, srun: &str) -> Result<Command, Problem> {
    let mut command = words(srun, "srun")?;
    command.args([format!("--nodes={hosts}"), format!("--ntasks={hosts}"), "--ntasks-per-node=1".to_owned()]);
    // Its standard input goes to all tasks; the step lives beside others of the job.
    command.args(["--overlap", "--unbuffered"]).arg(&call.program).args(arguments(call)).arg("--slurm");
    Ok(command)
}

fn words(text: &str, usual: &str) -> Result<Command, Problem> {
    let mut words = text.split_whitespace();
    let none = || Problem::new(format!("the command for `{usual}` is empty"));
    let mut command = Command::new(words.next().ok_or_else(none)?);
    command.args(words);
    Ok(command)
}

/// As one word of a POSIX shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_through_a_shell_stays_one_word() {
        let call = Call { program: "/opt/tide mill".into(), file: "/tmp/it's".into() };
        let command = over_ssh(&call, 3, "ada@b", "ssh -p 22").unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let remote = r"'/opt/tide mill' 'node' '--pool' '/tmp/it'\''s' --id 3 --detach";
        assert_eq!(words, ["-p", "22", "-o", "BatchMode=yes", "ada@b", remote]);
    }

    #[test]
    fn a_host_that_would_be_an_option_is_refused() {
        let call = Call { program: "t".into(), file: "p".into() };
        assert!(over_ssh(&call, 1, "-oProxyCommand=x", "ssh").is_err());
    }

    #[test]
    fn nodes_know_how_many_share_their_host() {
        let hosts = ["a", "ada@b", "a", "ada@a"].map(str::to_owned).to_vec();
        let places = Places::Ssh { hosts, ssh: "ssh".into() };
        let reached = |host: &str, nodes| (Reach::Named(host.into()), nodes);
        assert_eq!([0, 1, 2].map(|at| places.reach(at)), [reached("a", 3), reached("b", 1), reached("a", 3)]);
    }
}
