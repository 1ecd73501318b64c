//! Fixture of a case: a pool that is started for it, on hosts that are made for it, or a target
//! that exists already.

use crate::{
    BenchOptions, BenchTarget,
    hosts::Hosts,
    messages::Work,
    stores,
    worker_pool::{PhaseResult, WorkerPool, WorkerPoolSpec},
};
use base::{ByteSize, Problem};
use pool::{LaunchTarget, Memory, PoolFile, PoolSpec};
use std::io::Write as _;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};
use tempfile::TempDir;

/// Time that writers wait for space.
const SPACE_WAIT: Duration = Duration::from_secs(10);
const PARTITIONS: u32 = 4096;

/// Rates of the hosts' links, Mbit/s in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Link of each host with workers.
    pub workers: u32,
    /// Link of each host with a node.
    pub nodes: u32,
}

/// Specification of the pool to start.
#[derive(Clone, Copy, Debug)]
pub struct FixtureSpec {
    /// Number of nodes.
    pub nodes: u32,
    /// Memory of each node.
    pub memory: ByteSize,
    /// Rates of the links; every node gets its own host if given.
    pub links: Option<LinkSpec>,
    /// Runs the workers on the hosts of the nodes. Otherwise they have their own hosts.
    pub together: bool,
    /// Encrypts the traffic between hosts by TLS.
    pub tls: bool,
}

/// A target that is ready to be measured, until dropped.
pub struct Fixture {
    target: BenchTarget,
    // Dropped in this order: the pool ends before its hosts do.
    pool: Option<FixturePool>,
    hosts: Option<Hosts>,
    /// Number of hosts with workers: the first ones.
    worker_hosts: u32,
}

struct FixturePool {
    file: PathBuf,
    _directory: TempDir,
}

impl Drop for FixturePool {
    fn drop(&mut self) {
        if let Err(problem) = pool::stop(&self.file, None) {
            // Standard error may be closed, and a destructor must not panic.
            let _ = writeln!(std::io::stderr().lock(), "warning: {problem}");
        }
    }
}

impl Fixture {
    /// Prepares a target: an existing one, or a pool that is started if it is a pool without a
    /// file. The workers will be on `worker_hosts` hosts.
    pub fn prepare(
        target: &BenchTarget,
        spec: &FixtureSpec,
        worker_hosts: u32,
        options: &BenchOptions,
    ) -> Result<Self, Problem> {
        if *target != BenchTarget::Pool(None) {
            return match spec.links {
                None => Ok(Self { target: target.clone(), pool: None, hosts: None, worker_hosts }),
                Some(_) => Err(Problem::new(format!("{target} has no links that could be shaped"))
                    .hint("--links is for pools that the benchmark makes")),
            };
        }
        let first = if spec.together { 0 } else { worker_hosts };
        let links = |links: LinkSpec| {
            let workers = std::iter::repeat_n(links.workers, first as usize);
            workers.chain(std::iter::repeat_n(links.nodes, spec.nodes as usize)).collect::<Vec<u32>>()
        };
        let hosts = spec.links.map(|wanted| Hosts::new(&links(wanted))).transpose()?;
        let target = match &hosts {
            None => LaunchTarget::Local(spec.nodes),
            Some(hosts) => LaunchTarget::Ssh {
                hosts: (first..first + spec.nodes).map(|host| hosts.address(host)).collect(),
                ssh: hosts.ssh()?.display().to_string(),
            },
        };
        let directory =
            tempfile::tempdir().map_err(|error| Problem::new(format!("a directory for a pool: {error}")))?;
        let file = directory.path().join("pool");
        let wanted = PoolSpec {
            target,
            memory: Memory::typed(Some(spec.memory)),
            slots: Some(0),
            port: None,
            metrics: None,
            max_nodes: None,
            partitions: PARTITIONS,
            space_wait: SPACE_WAIT,
            tls: spec.tls,
            program: options.program.clone(),
        };
        pool::start(&file, &wanted)?;
        let target = BenchTarget::Pool(Some(file.clone()));
        Ok(Self { target, pool: Some(FixturePool { file, _directory: directory }), hosts, worker_hosts })
    }

    /// Leads `per_host` workers on each of their hosts through the phases together, once in each
    /// run. Returns for each phase its results, run by run.
    pub fn measure(
        &self,
        per_host: u32,
        work: &Work,
        phases: &[&str],
        options: &BenchOptions,
    ) -> Result<Vec<Vec<PhaseResult>>, Problem> {
        let mut measured = vec![Vec::new(); phases.len()];
        for _ in 0..options.runs {
            self.with_worker_pool(per_host, work.clone(), options, |worker_pool| {
                phases.iter().zip(&mut measured).try_for_each(|(phase, runs)| {
                    runs.push(worker_pool.phase(phase)?);
                    Ok(())
                })
            })?;
        }
        Ok(measured)
    }

    /// Runs `does` with workers in a separate directory, which is removed afterwards.
    fn with_worker_pool(
        &self,
        per_host: u32,
        work: Work,
        options: &BenchOptions,
        does: impl FnOnce(&mut WorkerPool) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = format!("tidemill-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let store = stores::open(&self.target)?;
        store.make_directory(&directory)?;
        let hosts: Vec<u32> = (0..self.worker_hosts * per_host).map(|worker| worker % self.worker_hosts).collect();
        let spec = WorkerPoolSpec {
            program: &options.program,
            target: &self.target,
            directory: &directory,
            work,
            hosts: &hosts,
            on: self.hosts.as_ref(),
            nodes: self.nodes()?,
            interrupt: &options.interrupt,
        };
        let done = WorkerPool::start(spec).and_then(|mut worker_pool| does(&mut worker_pool));
        // Remove the directory even if the work failed; the error of the work takes precedence.
        let removed = store.remove_directory(&directory);
        done.and(removed)
    }

    /// Process ids of the pool's nodes. Their processor time is known only if they run on this
    /// machine.
    fn nodes(&self) -> Result<Vec<u32>, Problem> {
        let BenchTarget::Pool(Some(path)) = &self.target else { return Ok(Vec::new()) };
        Ok(PoolFile::read(path)?.nodes.iter().map(pool::NodeEntry::pid).collect())
    }
}

impl std::fmt::Debug for Fixture {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Ground({}, made: {}, {:?})", self.target, self.pool.is_some(), self.hosts)
    }
}
