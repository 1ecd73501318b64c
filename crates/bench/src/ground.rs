//! Where a case is measured: a pool that is made for it, on hosts that are made for it, or what is there already.

use crate::{
    Manner, Target,
    crew::{Crew, Phase, Plan},
    hosts::Hosts,
    order::Work,
    stores,
};
use base::{ByteSize, Problem};
use pool::{Memory, Places, PoolFile, Wanted};
use std::io::Write as _;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};
use tempfile::TempDir;

/// Writers wait so long for space.
const SPACE_WAIT: Duration = Duration::from_secs(10);
const PARTITIONS: u32 = 4096;

/// Links of hosts, Mbit/s in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Of each host of workers.
    pub workers: u32,
    /// Of each host of a node.
    pub nodes: u32,
}

/// What pool is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// So many nodes.
    pub nodes: u32,
    /// Each with so much memory.
    pub memory: ByteSize,
    /// Each on a host of its own, if links are given.
    pub links: Option<Links>,
    /// Those are the hosts of the workers too, which else have others.
    pub together: bool,
    /// Whether hosts speak within TLS.
    pub tls: bool,
}

/// Ready to be worked on, until dropped.
pub struct Ground {
    target: Target,
    // Dropped in this order: the pool ends before its hosts do.
    made: Option<MadePool>,
    hosts: Option<Hosts>,
    /// So many hosts have workers: the first ones.
    worker_hosts: u32,
}

struct MadePool {
    file: PathBuf,
    _folder: TempDir,
}

impl Drop for MadePool {
    fn drop(&mut self) {
        if let Err(problem) = pool::stop(&self.file, None) {
            // Standard error may be closed, and this is no place to panic.
            let _ = writeln!(std::io::stderr().lock(), "warning: {problem}");
        }
    }
}

impl Ground {
    /// A target that is there, or, if it is a pool without a file, one that is made so. Workers are on so many hosts.
    pub fn prepare(target: &Target, made: &Made, worker_hosts: u32, manner: &Manner) -> Result<Self, Problem> {
        if *target != Target::Pool(None) {
            return match made.links {
                None => Ok(Self { target: target.clone(), made: None, hosts: None, worker_hosts }),
                Some(_) => Err(Problem::new(format!("{target} has no links that could be shaped"))
                    .hint("--links is for pools that the benchmark makes")),
            };
        }
        let first = if made.together { 0 } else { worker_hosts };
        let links = |links: Links| {
            let workers = std::iter::repeat_n(links.workers, first as usize);
            workers.chain(std::iter::repeat_n(links.nodes, made.nodes as usize)).collect::<Vec<u32>>()
        };
        let hosts = made.links.map(|wanted| Hosts::new(&links(wanted))).transpose()?;
        let places = match &hosts {
            None => Places::Here(made.nodes),
            Some(hosts) => Places::Ssh {
                hosts: (first..first + made.nodes).map(|host| hosts.address(host)).collect(),
                ssh: hosts.ssh()?.display().to_string(),
            },
        };
        let folder = tempfile::tempdir().map_err(|error| Problem::new(format!("a folder for a pool: {error}")))?;
        let file = folder.path().join("pool");
        let wanted = Wanted {
            places,
            memory: Memory::typed(Some(made.memory)),
            slots: Some(0),
            port: None,
            max_nodes: None,
            partitions: PARTITIONS,
            space_wait: SPACE_WAIT,
            tls: made.tls,
            program: manner.program.clone(),
        };
        pool::start(&file, &wanted)?;
        let target = Target::Pool(Some(file.clone()));
        Ok(Self { target, made: Some(MadePool { file, _folder: folder }), hosts, worker_hosts })
    }

    /// Lets `per_host` workers on each of their hosts go through these phases together, once in each run; how each phase went, run by run.
    pub fn measure(
        &self,
        per_host: u32,
        work: &Work,
        phases: &[&str],
        manner: &Manner,
    ) -> Result<Vec<Vec<Phase>>, Problem> {
        let mut measured = vec![Vec::new(); phases.len()];
        for _ in 0..manner.runs {
            self.with_crew(per_host, work.clone(), manner, |crew| {
                phases.iter().zip(&mut measured).try_for_each(|(phase, runs)| {
                    runs.push(crew.phase(phase)?);
                    Ok(())
                })
            })?;
        }
        Ok(measured)
    }

    /// Does something with workers in a folder of their own, which is removed afterwards.
    fn with_crew(
        &self,
        per_host: u32,
        work: Work,
        manner: &Manner,
        does: impl FnOnce(&mut Crew) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("tidemill-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let store = stores::open(&self.target)?;
        store.make_folder(&folder)?;
        let hosts: Vec<u32> = (0..self.worker_hosts * per_host).map(|worker| worker % self.worker_hosts).collect();
        let plan = Plan {
            program: &manner.program,
            target: &self.target,
            folder: &folder,
            work,
            hosts: &hosts,
            on: self.hosts.as_ref(),
            nodes: self.nodes()?,
            interrupt: &manner.interrupt,
        };
        let done = Crew::start(plan).and_then(|mut crew| does(&mut crew));
        // The folder goes also where the work failed, which is the better thing to tell.
        let removed = store.remove_folder(&folder);
        done.and(removed)
    }

    /// Processes of the pool's nodes; they can be looked at where they are of this machine.
    fn nodes(&self) -> Result<Vec<u32>, Problem> {
        let Target::Pool(Some(path)) = &self.target else { return Ok(Vec::new()) };
        Ok(PoolFile::read(path)?.nodes.iter().map(pool::NodeEntry::pid).collect())
    }
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Ground({}, made: {}, {:?})", self.target, self.made.is_some(), self.hosts)
    }
}
