//! Cluster that `--on` names: what the words of the command line mean, without starting anything.

use base::Problem;
use pool::NodeLimits;
use run::{ClusterKind, ClusterTarget, StartedCluster};
use serde_json::{Map, Value};

/// What is known of `--on`.
const KNOWN: &str = "--on takes dask://HOST:PORT (`dask scheduler` prints it), ssh:HOST,HOST, slurm or kubernetes";

/// The Slurm allocation around this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Number of its hosts.
    pub hosts: u32,
}

impl Allocation {
    /// The one that the environment tells; `None` outside of a job.
    pub fn of_environment() -> Option<Self> {
        std::env::var_os("SLURM_JOB_ID")?;
        let hosts = std::env::var("SLURM_JOB_NUM_NODES").ok().and_then(|count| count.parse().ok());
        Some(Self { hosts: hosts.unwrap_or(1) })
    }
}

/// The cluster that `--on` and `--on-option` name, with the fewest workers that `--elastic` wants,
/// and as a cluster that may grow.
pub fn parse_elastic(
    on: &str,
    limits: NodeLimits,
    options: &[String],
    allocation: Option<Allocation>,
) -> Result<ClusterTarget, Problem> {
    let wrong = |why: &str, hint: &str| Err(Problem::new(format!("--on {on} with --elastic: {why}")).hint(hint));
    let NodeLimits { min, max } = limits;
    match parse(on, Some(min), options, allocation, true)? {
        ClusterTarget::Scheduler(_) => wrong(
            "this cluster runs already, and is not the run's to grow and shrink",
            "leave out --elastic, or have the run start its cluster: ssh:HOST,HOST or slurm",
        ),
        ClusterTarget::Start(started) if started.kind == ClusterKind::Kubernetes => {
            wrong("Dask's operator chooses itself which pods end", "leave out --elastic, and give --workers")
        }
        ClusterTarget::Start(started) if started.kind == ClusterKind::Slurm && allocation.is_some() => wrong(
            "an allocation of Slurm neither grows nor shrinks",
            "leave out --elastic; to submit jobs from inside of a job, unset SLURM_JOB_ID",
        ),
        ClusterTarget::Start(started) if started.kind == ClusterKind::Ssh && (max as usize) > started.hosts.len() => {
            wrong(&format!("{max} nodes are more than hosts"), "name as many hosts as the pool may have nodes")
        }
        ClusterTarget::Start(started) => Ok(ClusterTarget::Start(StartedCluster { most: Some(max), ..started })),
    }
}

/// The cluster that `--on`, `--workers` and `--on-option` name. One that grows may have more hosts
/// than workers.
pub fn parse(
    on: &str,
    workers: Option<u32>,
    options: &[String],
    allocation: Option<Allocation>,
    grows: bool,
) -> Result<ClusterTarget, Problem> {
    if let Some((way, place)) = running(on) {
        if let Some(option) = options.first() {
            return Err(Problem::new(format!("--on-option {option}: {on} is a cluster that runs already"))
                .hint("options are for clusters that the run starts: ssh:HOST,HOST, slurm, kubernetes"));
        }
        return scheduler_address(on, (way, place)).map(ClusterTarget::Scheduler);
    }
    let (kind, hosts, default) = match on {
        "slurm" => (ClusterKind::Slurm, Vec::new(), allocation.map(|allocation| allocation.hosts)),
        "kubernetes" => (ClusterKind::Kubernetes, Vec::new(), None),
        _ => {
            let hosts = ssh_hosts(on, workers.filter(|_| !grows))?;
            let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
            (ClusterKind::Ssh, hosts, Some(count))
        }
    };
    let Some(workers) = workers.or(default) else {
        return Err(Problem::new(format!("--on {on}: the number of workers is missing"))
            .hint(format!("for example: --on {on} --workers 4")));
    };
    Ok(ClusterTarget::Start(StartedCluster {
        kind,
        hosts,
        workers: Some(workers),
        most: None,
        options: nested(options)?,
    }))
}

/// Number of workers of a cluster that the run starts.
pub fn workers_of(target: &ClusterTarget) -> Option<u32> {
    match target {
        ClusterTarget::Scheduler(_) => None,
        ClusterTarget::Start(started) => started.workers,
    }
}

/// The protocol and the place of a cluster that runs already.
fn running(on: &str) -> Option<(&'static str, &str)> {
    let kinds = [("dask://", "tcp"), ("dask+tls://", "tls")];
    kinds.into_iter().find_map(|(prefix, way)| Some((way, on.strip_prefix(prefix)?)))
}

/// The address of the scheduler as Dask takes it.
fn scheduler_address(on: &str, (way, place): (&str, &str)) -> Result<String, Problem> {
    let wrong = |why: &str| {
        Problem::new(format!("--on {on}: {why}"))
            .hint("for example: --on dask://127.0.0.1:8786 (`dask scheduler` prints it)")
    };
    let (host, port) = place.trim_end_matches('/').rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong("not HOST:PORT"));
    }
    Ok(format!("{way}://{host}:{port}"))
}

/// The hosts of `ssh:HOST,HOST`.
fn ssh_hosts(on: &str, workers: Option<u32>) -> Result<Vec<String>, Problem> {
    let wrong = |why: String, hint: &str| Problem::new(format!("--on {on}: {why}")).hint(hint);
    let Some(list) = on.strip_prefix("ssh:") else {
        return Err(wrong("not a cluster that Tidemill knows".into(), KNOWN));
    };
    let hosts: Vec<String> = list.split(',').map(|host| host.trim().to_owned()).collect();
    let example = "for example: --on ssh:10.0.0.7,10.0.0.8";
    for (index, host) in hosts.iter().enumerate() {
        if host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace) {
            return Err(wrong(format!("`{host}` is not the name of a host"), example));
        }
        if let Some((user, _)) = host.split_once('@') {
            let hint = format!("--on-option connect_options.username={user}, or ~/.ssh/config");
            return Err(wrong(format!("{host}: users are not part of a host's name"), &hint));
        }
        if hosts[..index].contains(host) {
            let hint = "--workers says how many workers there are; hosts get them in turn";
            return Err(wrong(format!("{host} is named twice"), hint));
        }
    }
    if let Some(workers) = workers.filter(|workers| (*workers as usize) < hosts.len()) {
        let why = format!("{} hosts are more than --workers {workers}", hosts.len());
        return Err(wrong(why, "name fewer hosts, or leave out --workers: each host gets one"));
    }
    Ok(hosts)
}

/// The options as one object; a dot in a key leads into an object.
fn nested(options: &[String]) -> Result<Map<String, Value>, Problem> {
    let mut all = Map::new();
    for option in options {
        let wrong = |why: &str| {
            Problem::new(format!("--on-option {option}: {why}"))
                .hint("for example: --on-option worker_options.nthreads=2")
        };
        let (key, text) = option.split_once('=').ok_or_else(|| wrong("not KEY=VALUE"))?;
        let mut words: Vec<&str> = key.split('.').collect();
        if words.iter().any(|word| word.is_empty()) {
            return Err(wrong("a part of the key is empty"));
        }
        let last = words.pop().expect("a split has a part");
        let mut place = &mut all;
        for word in words {
            let inner = place.entry(word).or_insert_with(|| Value::Object(Map::new()));
            place = inner.as_object_mut().ok_or_else(|| wrong("an option before it gave this key a value"))?;
        }
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        if place.insert(last.to_owned(), value).is_some() {
            return Err(wrong("an option before it gave this key a value"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(on: &str, workers: Option<u32>, allocation: Option<Allocation>) -> StartedCluster {
        match parse(on, workers, &[], allocation, false).unwrap() {
            ClusterTarget::Start(started) => started,
            ClusterTarget::Scheduler(address) => panic!("{address}"),
        }
    }

    #[test]
    fn a_cluster_is_named_by_the_address_of_its_scheduler() {
        let address = |on| parse(on, None, &[], None, false).unwrap().to_string();
        assert_eq!(address("dask://10.0.0.7:8786"), "tcp://10.0.0.7:8786");
        assert_eq!(address("dask+tls://h:1"), "tls://h:1");
        assert_eq!(address("dask://[::1]:8786/"), "tcp://[::1]:8786");
    }

    #[test]
    fn a_cluster_of_the_run_has_as_many_workers_as_are_wanted_or_hosts() {
        assert_eq!(started("ssh:a,b", None, None).workers, Some(2));
        assert_eq!(started("ssh:a,b", Some(5), None).workers, Some(5));
        assert_eq!(started("ssh:a, b", None, None).hosts, ["a", "b"]);
        assert_eq!(started("slurm", Some(3), None).workers, Some(3));
        assert_eq!(started("slurm", None, Some(Allocation { hosts: 4 })).workers, Some(4));
        assert_eq!(started("slurm", Some(8), Some(Allocation { hosts: 4 })).workers, Some(8));
    }

    #[test]
    fn a_cluster_that_grows_begins_with_the_fewest_workers() {
        let limits = |min, max| NodeLimits { min, max };
        let allocation = Some(Allocation { hosts: 4 });
        match parse_elastic("ssh:a,b,c", limits(1, 3), &[], None).unwrap() {
            ClusterTarget::Start(ssh) => assert_eq!((ssh.hosts.len(), ssh.workers, ssh.most), (3, Some(1), Some(3))),
            ClusterTarget::Scheduler(address) => panic!("{address}"),
        }
        assert!(parse_elastic("slurm", limits(2, 8), &[], None).is_ok());
        for (on, allocation, why) in [
            ("dask://h:1", None, "not the run's to grow"),
            ("kubernetes", None, "which pods end"),
            ("slurm", allocation, "an allocation of Slurm"),
            ("ssh:a,b", None, "3 nodes are more than hosts"),
        ] {
            let problem = parse_elastic(on, limits(1, 3), &[], allocation).unwrap_err();
            assert!(problem.message.contains(why) && problem.hint.is_some(), "{problem}");
        }
    }

    #[test]
    fn what_names_no_cluster_is_refused_with_the_reason() {
        let option = ["a=1".to_owned()];
        for (wrong, workers, options, why) in [
            ("spark://h:1", None, &[][..], "not a cluster"),
            ("dask://h", None, &[], "the port is missing"),
            ("dask://h:x", None, &[], "not HOST:PORT"),
            ("dask://:1", None, &[], "not HOST:PORT"),
            ("dask://h:1", None, &option, "runs already"),
            ("ssh:", None, &[], "not the name of a host"),
            ("ssh:a,,b", None, &[], "not the name of a host"),
            ("ssh:-oProxyCommand=x", None, &[], "not the name of a host"),
            ("ssh:me@a", None, &[], "users are not part"),
            ("ssh:a,b,a", None, &[], "a is named twice"),
            ("ssh:a,b", Some(1), &[], "more than --workers 1"),
            ("slurm", None, &[], "the number of workers is missing"),
            ("kubernetes", None, &[], "the number of workers is missing"),
        ] {
            let problem = parse(wrong, workers, options, None, false).unwrap_err();
            assert!(problem.message.contains(why), "{problem}");
        }
    }

    #[test]
    fn options_nest_and_are_json_or_text() {
        let words = |options: &[&str]| nested(&options.iter().map(ToString::to_string).collect::<Vec<_>>());
        let options =
            ["cores=2", "memory=4GiB", "c.known_hosts=null", "c.port=22", "extra=[\"-q\"]", "env=A=B", "empty="];
        let wanted =
            r#"{"cores":2,"memory":"4GiB","c":{"known_hosts":null,"port":22},"extra":["-q"],"env":"A=B","empty":""}"#;
        assert_eq!(Value::Object(words(&options).unwrap()).to_string(), wanted);
        for (wrong, why) in [
            (&["cores"][..], "not KEY=VALUE"),
            (&["=2"], "is empty"),
            (&["a..b=2"], "is empty"),
            (&["a=1", "a.b=2"], "gave this key"),
            (&["a.b=1", "a=2"], "gave this key"),
            (&["a=1", "a=1"], "gave this key"),
        ] {
            assert!(words(wrong).unwrap_err().message.contains(why), "{wrong:?}");
        }
    }
}
