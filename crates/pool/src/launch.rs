//! Launches the processes that become nodes: on this machine, over SSH, or by `srun`; or uses those
//! that the caller has launched.

use crate::{
    bootstrap::{AddressSource, Memory, NodeMessage, read_message, write_message},
    process::ProcessHandle,
};
use base::Problem;
use serde::Serialize;
use std::{
    ffi::OsString,
    fmt,
    io::{self, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

/// Grace period for launched processes to exit after their input was closed; then they are killed.
/// A node notices the end of its input at once, but a network may not.
const END_WAIT: Duration = Duration::from_secs(5);

/// Hosts on which the nodes of a pool run, and how they are launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchTarget {
    /// This number of nodes on this machine.
    Local(u32),
    /// One node for each of these hosts, over SSH. A host may be named more than once.
    Ssh {
        /// Host names, as `ssh` takes them.
        hosts: Vec<String>,
        /// The SSH command and its options, separated by blanks.
        ssh: String,
    },
    /// One node on each of this number of hosts of the Slurm allocation that contains this process.
    Slurm {
        /// The number of hosts.
        hosts: u32,
        /// The `srun` command and its options, separated by blanks.
        srun: String,
    },
    /// One node on each of these hosts, whose processes the caller has started.
    Linked(Vec<LinkedHost>),
}

/// A host on which the caller has started a process that becomes a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedHost {
    /// Address or name at which the other hosts reach it.
    pub address: String,
    /// Memory of its node.
    pub memory: Memory,
    /// Task slots of its node; 0 for a node that only stores.
    pub slots: Option<u32>,
    /// The name of its node, if it has one.
    pub name: Option<String>,
}

/// Standard input and output of a process that becomes a node and that the caller has started:
/// `tidemill node`, maybe on another host.
pub struct BootstrapLink {
    /// Leads to its standard input. The node ends if this is closed before the pool is complete.
    pub input: Box<dyn Write + Send>,
    /// Comes from its standard output.
    pub output: Box<dyn Read + Send>,
}

impl fmt::Debug for BootstrapLink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BootstrapLink").finish_non_exhaustive()
    }
}

impl LaunchTarget {
    /// The number of nodes.
    pub fn count(&self) -> u32 {
        match self {
            Self::Local(count) | Self::Slurm { hosts: count, .. } => *count,
            Self::Ssh { hosts, .. } => u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            Self::Linked(hosts) => u32::try_from(hosts.len()).unwrap_or(u32::MAX),
        }
    }

    /// Memory and slots of the node at an index; `None` if they are those of the pool's
    /// specification.
    pub(crate) fn resources(&self, index: usize) -> Option<(Memory, Option<u32>)> {
        let Self::Linked(hosts) = self else { return None };
        hosts.get(index).map(|host| (host.memory, host.slots))
    }

    /// Name of the node at an index, if it has one.
    pub(crate) fn name(&self, index: usize) -> Option<String> {
        let Self::Linked(hosts) = self else { return None };
        hosts.get(index).and_then(|host| host.name.clone())
    }

    /// Address source of the node at an index, and the number of nodes that share its host.
    pub(crate) fn address_source(&self, index: usize) -> (AddressSource, u32) {
        match self {
            Self::Local(count) => (AddressSource::LocalHost, *count),
            Self::Slurm { .. } => (AddressSource::HostName, 1),
            Self::Linked(hosts) => {
                let address = &hosts[index].address;
                let same = hosts.iter().filter(|other| other.address == *address).count();
                (AddressSource::Named(address.clone()), u32::try_from(same).unwrap_or(u32::MAX))
            }
            Self::Ssh { hosts, .. } => {
                // `ada@host` names a login; the node listens at the host alone.
                let name = |host: &str| host.rsplit_once('@').map_or(host, |(_, name)| name).to_owned();
                let host = name(&hosts[index]);
                let same = hosts.iter().filter(|other| name(other) == host).count();
                (AddressSource::Named(host), u32::try_from(same).unwrap_or(u32::MAX))
            }
        }
    }
}

/// Command line of a node: the program and the pool file.
#[derive(Clone, Debug)]
pub struct NodeCommandLine {
    pub program: PathBuf,
    pub file: PathBuf,
}

/// The launched processes and the messages from their nodes. Unless they are released with
/// [`Self::release`], dropping this ends them.
pub struct Launched {
    processes: Vec<LaunchedProcess>,
    messages: Receiver<(usize, io::Result<Option<NodeMessage>>)>,
    released: bool,
}

struct LaunchedProcess {
    /// Description for messages.
    description: String,
    /// The process; `None` if the caller has started it.
    child: Option<Child>,
    stdin: Option<Box<dyn Write + Send>>,
    /// True for `srun`, which runs as long as its nodes do.
    outlives_starter: bool,
}

impl Launched {
    /// Starts one process for each node, or for Slurm a single process that starts them all.
    /// `links` leads to processes that the caller has started.
    pub fn spawn(
        target: &LaunchTarget,
        command_line: &NodeCommandLine,
        links: Vec<BootstrapLink>,
    ) -> Result<Self, Problem> {
        let (sender, messages) = mpsc::channel();
        let mut launched = Self { processes: Vec::new(), messages, released: false };
        match target {
            LaunchTarget::Local(count) => {
                for id in 1..=*count {
                    launched.spawn_one(format!("node {id}"), local_command(command_line, id), &sender)?;
                }
            }
            LaunchTarget::Ssh { hosts, ssh } => {
                for (id, host) in (1..).zip(hosts) {
                    launched.spawn_one(
                        format!("node {id} at {host}"),
                        ssh_command(command_line, id, host, ssh)?,
                        &sender,
                    )?;
                }
            }
            LaunchTarget::Slurm { hosts, srun } => {
                let mut command = srun_command(command_line, *hosts, srun)?;
                // `srun` outlives the starter. Ctrl-C of the starter must not end it, and a caller
                // must not wait for a standard error that `srun` holds.
                command.stderr(Stdio::piped()).process_group(0);
                launched.spawn_one("srun".to_owned(), command, &sender)?;
                launched.processes.iter_mut().for_each(LaunchedProcess::forward_stderr);
            }
            LaunchTarget::Linked(hosts) => {
                for ((id, host), link) in (1..).zip(hosts).zip(links) {
                    launched.listen(format!("node {id} at {}", host.address), link, None, &sender)?;
                }
            }
        }
        Ok(launched)
    }

    fn spawn_one(
        &mut self,
        description: String,
        mut command: Command,
        sender: &Sender<(usize, io::Result<Option<NodeMessage>>)>,
    ) -> Result<(), Problem> {
        let program = command.get_program().to_string_lossy().into_owned();
        let no_start = |error| {
            Problem::new(format!("{description} cannot be started: {program}: {error}"))
                .hint("nothing was left running")
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(no_start)?;
        let input = Box::new(child.stdin.take().expect("it is piped"));
        let output = Box::new(child.stdout.take().expect("it is piped"));
        self.listen(description, BootstrapLink { input, output }, Some(child), sender)
    }

    /// Adds a process, and starts a thread that reads its messages.
    fn listen(
        &mut self,
        description: String,
        link: BootstrapLink,
        child: Option<Child>,
        sender: &Sender<(usize, io::Result<Option<NodeMessage>>)>,
    ) -> Result<(), Problem> {
        let (index, sender) = (self.processes.len(), sender.clone());
        let process = LaunchedProcess { description, child, stdin: Some(link.input), outlives_starter: false };
        self.processes.push(process);
        let listen = move || {
            let mut lines = BufReader::new(link.output);
            loop {
                let line = read_message(&mut lines);
                let last = !matches!(line, Ok(Some(_)));
                // Sending fails when the start is over and the receiver is gone.
                if sender.send((index, line)).is_err() || last {
                    return;
                }
            }
        };
        let no_thread = |error| Problem::new(format!("no thread for a node that starts: {error}"));
        thread::Builder::new().name("starting".into()).spawn(listen).map(drop).map_err(no_thread)
    }

    /// Sends a message to all processes. A process that has exited is detected by its missing
    /// replies.
    pub fn send(&mut self, message: &impl Serialize) {
        for process in &mut self.processes {
            if let Some(stdin) = &mut process.stdin {
                let _ = write_message(stdin, message);
            }
        }
    }

    /// Receives the next message of a node; `None` at the deadline. An error if a node cannot
    /// start.
    pub fn recv(&mut self, until: Instant) -> Result<Option<NodeMessage>, Problem> {
        match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((_, Ok(Some(NodeMessage::Refused(id, message, hint))))) => {
                let problem = Problem::new(format!("node {id} cannot start: {message}"));
                Err(hint.map_or(problem.clone(), |hint| problem.hint(hint)))
            }
            Ok((_, Ok(Some(message)))) => Ok(Some(message)),
            Ok((index, Ok(None))) => Err(self.exit_problem(index)),
            Ok((index, Err(error))) => Err(Problem::new(format!("{}: {error}", self.processes[index].description))
                .hint("what its shell prints at the start of a session must not go to standard output")),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    fn exit_problem(&mut self, index: usize) -> Problem {
        let process = &mut self.processes[index];
        let status = process.child.as_mut().and_then(|child| wait(child, Duration::from_secs(1)));
        let how = match status {
            Some(status) => status.to_string(),
            None => "it closed its standard output".to_owned(),
        };
        Problem::new(format!("{} ended before it was ready: {how}", process.description))
            .hint("its output is above; every host needs the same tidemill at the same path")
    }

    /// Releases the processes, which keep running. Waits until all but `srun` have closed their
    /// output, at most until the deadline: a local node closes it when it detaches, `ssh` when it
    /// ends.
    pub fn release(mut self, until: Instant) {
        self.released = true;
        let mut open = self.processes.iter().filter(|process| !process.outlives_starter).count();
        while open > 0 {
            match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((_, Ok(Some(_)))) => {}
                Ok(_) => open -= 1,
                Err(_) => return,
            }
        }
    }
}

impl LaunchedProcess {
    /// Marks the process as one that keeps running. Copies its standard error to ours as long as
    /// this process lives.
    fn forward_stderr(&mut self) {
        self.outlives_starter = true;
        let Some(mut stderr) = self.child.as_mut().and_then(|child| child.stderr.take()) else { return };
        // Without this thread only the output is lost.
        let _ = thread::Builder::new().name("srun".into()).spawn(move || io::copy(&mut stderr, &mut io::stderr()));
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        self.processes.iter_mut().for_each(|process| process.stdin = None);
        for child in self.processes.iter_mut().filter_map(|process| process.child.as_mut()) {
            if wait(child, END_WAIT).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Waits for a child to exit, up to a limit.
pub fn wait(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    match child.try_wait() {
        Ok(None) => {
            let ended = ProcessHandle::from_pid(child.id())?.wait(most);
            ended.then(|| child.wait().ok()).flatten()
        }
        // A child that was already waited for has no process id any more.
        ended => ended.ok().flatten(),
    }
}

/// Arguments of a node.
fn node_arguments(command_line: &NodeCommandLine) -> Vec<OsString> {
    vec!["node".into(), "--pool".into(), command_line.file.clone().into()]
}

fn local_command(command_line: &NodeCommandLine, id: u32) -> Command {
    let mut command = Command::new(&command_line.program);
    command.args(node_arguments(command_line)).args(["--id".into(), id.to_string()]);
    command
}

/// The remote shell splits the command line again, so each word is quoted.
fn ssh_command(command_line: &NodeCommandLine, id: u32, host: &str, ssh: &str) -> Result<Command, Problem> {
    if host.is_empty() || host.starts_with('-') {
        return Err(
            Problem::new(format!("`{host}` is not a host name")).hint("--hosts takes names, a comma between two")
        );
    }
    let mut command = parse_command(ssh, "ssh")?;
    let mut remote = shell_quote(&command_line.program.to_string_lossy());
    for word in node_arguments(command_line) {
        remote = format!("{remote} {}", shell_quote(&word.to_string_lossy()));
    }
    command.args(["-o", "BatchMode=yes", host, &format!("{remote} --id {id} --detach")]);
    Ok(command)
}

fn srun_command(command_line: &NodeCommandLine, hosts: u32, srun: &str) -> Result<Command, Problem> {
    let mut command = parse_command(srun, "srun")?;
    command.args([format!("--nodes={hosts}"), format!("--ntasks={hosts}"), "--ntasks-per-node=1".to_owned()]);
    // `srun` copies its standard input to all tasks. `--overlap` lets the step run beside other
    // steps of the job.
    command
        .args(["--overlap", "--unbuffered"])
        .arg(&command_line.program)
        .args(node_arguments(command_line))
        .arg("--slurm");
    Ok(command)
}

fn parse_command(text: &str, usual: &str) -> Result<Command, Problem> {
    let mut words = text.split_whitespace();
    let none = || Problem::new(format!("the command for `{usual}` is empty"));
    let mut command = Command::new(words.next().ok_or_else(none)?);
    command.args(words);
    Ok(command)
}

/// Quotes a word for a POSIX shell.
pub fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_through_a_shell_stays_one_word() {
        let command_line = NodeCommandLine { program: "/opt/tide mill".into(), file: "/tmp/it's".into() };
        let command = ssh_command(&command_line, 3, "ada@b", "ssh -p 22").unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let remote = r"'/opt/tide mill' 'node' '--pool' '/tmp/it'\''s' --id 3 --detach";
        assert_eq!(words, ["-p", "22", "-o", "BatchMode=yes", "ada@b", remote]);
    }

    #[test]
    fn a_host_that_would_be_an_option_is_refused() {
        let command_line = NodeCommandLine { program: "t".into(), file: "p".into() };
        assert!(ssh_command(&command_line, 1, "-oProxyCommand=x", "ssh").is_err());
    }

    #[test]
    fn nodes_know_how_many_share_their_host() {
        let hosts = ["a", "ada@b", "a", "ada@a"].map(str::to_owned).to_vec();
        let target = LaunchTarget::Ssh { hosts, ssh: "ssh".into() };
        let reached = |host: &str, nodes| (AddressSource::Named(host.into()), nodes);
        assert_eq!([0, 1, 2].map(|at| target.address_source(at)), [reached("a", 3), reached("b", 1), reached("a", 3)]);
    }
}
