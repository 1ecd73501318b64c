//! Flags of `tidemill run` for clusters, and the cluster that they name.

use crate::cluster_target::{self, Allocation};
use base::Problem;
use clap::Args;
use pool::NodeLimits;
use run::ClusterSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `tidemill run` for clusters.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "On a cluster")]
pub struct ClusterArgs {
    /// Run tasks on the workers of a Dask cluster: dask://HOST:PORT, the address of its scheduler;
    /// or of one that the run starts and ends: ssh:HOST,HOST, slurm, kubernetes
    #[arg(long, value_name = "CLUSTER", conflicts_with = "slots")]
    pub on: Option<String>,
    /// Give Dask's class for the cluster this option; VALUE is JSON or text, and a.b=VALUE gives a
    /// the field b; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "on")]
    pub on_option: Vec<String>,
    /// Wait for this number of workers, or start it [default: take those that are there, or start
    /// one on each host; with --elastic, MIN]
    #[arg(long, value_name = "N", requires = "on", conflicts_with = "elastic", value_parser = clap::value_parser!(u32).range(1..))]
    pub workers: Option<u32>,
    /// How long to wait for the scheduler and for workers, in seconds
    #[arg(long, value_name = "SECONDS", requires = "on", default_value_t = 60)]
    pub wait: u64,
    /// Give tasks this variable of this environment, beside those of their worker; may be repeated
    #[arg(long, value_name = "NAME", requires = "on")]
    pub env: Vec<String>,
    /// The Python that has Dask
    #[arg(long, value_name = "PATH", env = "TIDEMILL_PYTHON")]
    pub python: Option<PathBuf>,
    /// How long nothing may be heard of a host before its tasks run elsewhere, in seconds
    #[arg(long, value_name = "SECONDS", requires = "on", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..))]
    pub lease: u64,
    /// How long nodes wait for a run that is gone before they end, in seconds
    #[arg(long, value_name = "SECONDS", requires = "on", default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..))]
    pub orphan_wait: u64,
    /// Run tasks a second time elsewhere that take much longer than others of their tool
    #[arg(long, requires = "on")]
    pub stragglers: bool,
}

impl ClusterArgs {
    /// The cluster; `None` without `--on`. With `elastic` its pool grows and shrinks by itself.
    pub fn spec(&self, elastic: Option<NodeLimits>) -> Result<Option<ClusterSpec>, Problem> {
        let Some(on) = &self.on else { return Ok(None) };
        let program = std::env::current_exe()
            .map_err(|error| Problem::new(format!("this program's own path is unknown: {error}")))?;
        let allocation = Allocation::of_environment();
        let target = match elastic {
            Some(limits) => cluster_target::parse_elastic(on, limits, &self.on_option, allocation)?,
            None => cluster_target::parse(on, self.workers, &self.on_option, allocation, false)?,
        };
        Ok(Some(ClusterSpec {
            workers: cluster_target::workers_of(&target).or(self.workers),
            target,
            python: self.python.clone().unwrap_or_else(|| "python3".into()),
            wait: Duration::from_secs(self.wait),
            lease: Duration::from_secs(self.lease),
            orphan_wait: Duration::from_secs(self.orphan_wait),
            environment: environment(&self.env)?,
            program,
        }))
    }
}

fn environment(names: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    let value = |name: &String| match std::env::var(name) {
        Ok(value) => Ok((name.clone(), value)),
        Err(_) => Err(Problem::new(format!("--env {name}: this environment has no such variable"))),
    };
    names.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_not_there_are_refused() {
        assert!(environment(&["PATH".into()]).unwrap().contains_key("PATH"));
        assert!(environment(&["TIDEMILL_NO_SUCH".into()]).unwrap_err().message.contains("TIDEMILL_NO_SUCH"));
    }
}
