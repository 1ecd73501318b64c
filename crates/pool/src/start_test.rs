//! Tests of starting a pool, with shell scripts as its nodes.

use crate::{LaunchTarget, Memory, PoolFile, PoolSpec, start};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Commands of a node: it keeps the plan in `plan-ID`.
const TAKES_PLAN: &str = r#"read -r plan; printf '%s\n' "$plan" > "$here/plan-$id""#;
/// It reports its entry.
const LISTENS: &str = r#"printf '{"Here": {"id": %s, "host": "h%s", "pid": 7, "began": 8, "boot": "b", "net": 9, \
"addresses": ["tcp:127.0.0.1:1"], "memory": %s, "slots": 2, "log": "/l"}}\n' "$id" "$id" "$memory""#;
const TAKES_ENTRIES: &str = "read -r entries";
const IS_READY: &str = r#"echo "{\"Ready\": $id}""#;
/// It keeps the last message in `last-ID`.
const TAKES_LEAVE: &str = r#"read -r leave; printf '%s\n' "$leave" > "$here/last-$id""#;

/// Commands of a node that answers as a node does.
fn answers() -> String {
    [TAKES_PLAN, LISTENS, TAKES_ENTRIES, IS_READY, TAKES_LEAVE].join("\n").replace("\\\n", "")
}

/// Directory with a script in place of the program, and the pool file. Its path must be quoted in a
/// shell.
struct Host {
    directory: tempfile::TempDir,
    /// Directory of commands for hosts, which are named in a text that is split at blanks.
    commands: tempfile::TempDir,
}

impl Host {
    /// Makes a script whose variable `id` is the node's id.
    fn with_nodes(commands: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("it's a ").tempdir().unwrap();
        let host = Self { directory, commands: tempfile::tempdir().unwrap() };
        host.script(&host.path("node"), &format!("id=$5 memory=1048576\n{commands}"));
        host
    }

    /// Makes a script whose variable `here` is the directory of the pool file.
    fn script(&self, path: &Path, commands: &str) {
        let here = self.directory.path().to_str().unwrap().replace('\'', "'\\''");
        fs::write(path, format!("#!/bin/sh\nhere='{here}'\n{commands}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes a command for hosts, and returns its path.
    fn command(&self, commands: &str) -> String {
        let path = self.commands.path().join("command");
        self.script(&path, commands);
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn spec(&self, nodes: u32) -> PoolSpec {
        PoolSpec {
            target: LaunchTarget::Local(nodes),
            memory: Memory::Bytes(1 << 20),
            slots: None,
            port: None,
            metrics: None,
            max_nodes: None,
            partitions: 64,
            space_wait: Duration::from_millis(1500),
            tls: true,
            program: self.path("node"),
        }
    }

    /// Returns the plan that a node received.
    fn plan(&self, id: u32) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(&format!("plan-{id}"))).unwrap()).unwrap()
    }

    /// Starts a pool that fails, and returns why.
    fn failure(&self, spec: &PoolSpec) -> String {
        let problem = start(&self.path("pool"), spec).map(drop).unwrap_err();
        assert!(!self.path("pool").exists(), "a start that failed leaves no pool file: {problem}");
        problem.to_string()
    }
}

#[test]
fn a_pool_file_has_the_entries_of_all_nodes_when_all_are_ready() {
    let host = Host::with_nodes(&answers());
    let path = host.path("pool");
    let started = start(&path, &host.spec(2)).unwrap();
    assert!(!started.replaced);
    assert_eq!(PoolFile::read(&path).unwrap(), started.file);
    let shown: Vec<(u32, &str, u64)> =
        started.file.nodes.iter().map(|node| (node.id, &*node.host, node.memory)).collect();
    assert_eq!(shown, [(1, "h1", 1 << 20), (2, "h2", 1 << 20)]);
    assert_eq!((started.file.partitions, started.file.max_nodes), (64, 8), "four times the nodes");
    for id in [1, 2] {
        assert_eq!(fs::read_to_string(host.path(&format!("last-{id}"))).unwrap(), "\"Keep\"\n");
    }
    let plan = host.plan(1);
    assert_eq!(plan, host.plan(2), "all nodes have one plan");
    assert_eq!(plan["space_wait"], json!({"secs": 1, "nanos": 500_000_000}));
    assert_eq!((&plan["identity"], plan["token"].as_str().unwrap().len()), (&json!(null), 64));
    assert!(fs::read_to_string(&path).unwrap().contains(plan["token"].as_str().unwrap()));
}

#[test]
fn the_file_of_a_pool_that_is_no_more_is_replaced_and_each_pool_has_its_own_secrets() {
    let host = Host::with_nodes(&answers());
    let path = host.path("pool");
    start(&path, &host.spec(1)).unwrap();
    let before = host.plan(1);
    let started = start(&path, &host.spec(1)).unwrap();
    assert!(started.replaced);
    for secret in ["pool", "token"] {
        assert_ne!(before[secret], host.plan(1)[secret], "{secret}");
    }
}

#[test]
fn nodes_of_one_host_have_consecutive_ports_and_those_of_named_hosts_are_encrypted() {
    let host = Host::with_nodes(&answers());
    let ports =
        |plan: &Value| plan["seats"].as_array().unwrap().iter().map(|node| node["port"].clone()).collect::<Vec<_>>();
    start(&host.path("here"), &PoolSpec { port: Some(7000), ..host.spec(3) }).unwrap();
    assert_eq!(ports(&host.plan(1)), [7000, 7001, 7002]);
    let metrics = |first: &str| {
        let metrics = Some(first.parse().unwrap());
        start(&host.path("here"), &PoolSpec { metrics, ..host.spec(2) }).unwrap();
        host.plan(1)["seats"].as_array().unwrap().iter().map(|node| node["metrics"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(metrics("[::1]:9464"), ["[::1]:9464", "[::1]:9465"]);
    assert_eq!(metrics("127.0.0.1:0"), ["127.0.0.1:0"; 2], "any free ones");
    // In place of `ssh -4 -o BatchMode=yes HOST COMMAND`.
    let ssh = host.command("shift 4; exec sh -c \"$1\"") + " -4";
    let hosts = ["a", "me@b", "a", "127.0.0.1"].map(str::to_owned).to_vec();
    let spec = PoolSpec { target: LaunchTarget::Ssh { hosts, ssh }, port: Some(7000), ..host.spec(0) };
    start(&host.path("ssh-pool"), &spec).unwrap();
    let plan = host.plan(4);
    assert_eq!(ports(&plan), [7000, 7000, 7001, 7000]);
    assert_eq!(plan["seats"][1]["reach"], json!({"Named": "b"}), "a login is no part of the name");
    assert!(plan["identity"].as_str().unwrap().contains("PRIVATE KEY"), "traffic leaves the hosts");
    let file = fs::read_to_string(host.path("ssh-pool")).unwrap();
    assert!(file.contains("BEGIN CERTIFICATE") && !file.contains("PRIVATE KEY"));
    start(&host.path("plain"), &PoolSpec { tls: false, ..spec }).unwrap();
    assert_eq!(host.plan(1)["identity"], json!(null));
}

#[test]
fn one_srun_starts_all_nodes_and_stays() {
    let host = Host::with_nodes("");
    // The nodes answer through the standard output of `srun`, in any order.
    let listens = LISTENS.replace("\\\n", "");
    let srun = host.command(&format!(
        "printf '%s\\n' \"$@\" > \"$here/words\"; id=1 memory=1048576\n{TAKES_PLAN}\n\
         for id in 2 1; do\n{listens}\ndone\n{TAKES_ENTRIES}\nfor id in 2 1; do\n{IS_READY}\ndone\n{TAKES_LEAVE}"
    ));
    let target = LaunchTarget::Slurm { hosts: 2, srun: format!("{srun} --mpi=none") };
    let started = start(&host.path("pool"), &PoolSpec { target, port: Some(7000), ..host.spec(0) }).unwrap();
    assert_eq!(started.file.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [1, 2], "in the order of their ids");
    let plan = host.plan(1);
    assert_eq!(
        plan["seats"][1],
        json!({"id": 2, "nodes_here": 1, "reach": "OwnName", "port": 7000,
        "memory": {"Bytes": 1 << 20}, "slots": null, "metrics": null})
    );
    let words = fs::read_to_string(host.path("words")).unwrap();
    assert!(words.starts_with("--mpi=none\n--nodes=2\n--ntasks=2\n--ntasks-per-node=1\n"), "{words}");
    assert!(words.ends_with("--slurm\n"), "{words}");
}

#[test]
fn a_specification_that_cannot_be_is_refused_before_a_node_starts() {
    let host = Host::with_nodes("touch \"$here/started\"");
    let spec = |nodes| host.spec(nodes);
    let cases = [
        (spec(0), "a pool has nodes"),
        (PoolSpec { target: LaunchTarget::Ssh { hosts: vec![], ssh: "ssh".into() }, ..spec(0) }, "a pool has nodes"),
        (PoolSpec { partitions: 63, ..spec(1) }, "63"),
        (PoolSpec { partitions: 0, ..spec(1) }, "0"),
        (spec(65), "a pool of 64 partitions cannot have 65 nodes"),
        (PoolSpec { max_nodes: Some(65), ..spec(1) }, "a pool of 64 partitions cannot have 65 nodes"),
        (PoolSpec { max_nodes: Some(1), ..spec(2) }, "--max-nodes 1 is less than the 2 nodes of the start"),
        (PoolSpec { memory: Memory::Bytes(0), ..spec(1) }, "a pool needs a node with memory"),
        (PoolSpec { port: Some(65_535), ..spec(2) }, "--port 65535: there is no port for node 2"),
        (
            PoolSpec { target: LaunchTarget::Ssh { hosts: vec!["-x".into()], ssh: "ssh".into() }, ..spec(0) },
            "`-x` is not a host name",
        ),
        (
            PoolSpec { target: LaunchTarget::Ssh { hosts: vec!["a".into()], ssh: " ".into() }, ..spec(0) },
            "the command for `ssh` is empty",
        ),
    ];
    for (spec, expected) in cases {
        let failure = host.failure(&spec);
        assert!(failure.contains(expected), "{expected}: {failure}");
    }
    assert!(!host.path("started").exists());
}

#[test]
fn a_node_that_cannot_start_ends_the_start_with_its_reason() {
    let cases = [
        ("exit 3", "node 1 ended before it was ready: exit status: 3"),
        ("echo Welcome", "node 1: this line is not a message of Tidemill"),
        ("echo '{\"Refused\": [1, \"no memory\", \"give less\"]}'; read -r plan", "node 1 cannot start: no memory"),
        ("memory=0\nANSWERS", "no node of the pool has memory"),
    ];
    for (commands, expected) in cases {
        let host = Host::with_nodes(&commands.replace("ANSWERS", &answers()));
        let failure = host.failure(&host.spec(1));
        assert!(failure.starts_with(expected), "{commands}: {failure}");
    }
    let host = Host::with_nodes("");
    let missing = PoolSpec { program: Path::new("/none/such").into(), ..host.spec(1) };
    assert!(host.failure(&missing).starts_with("node 1 cannot be started: /none/such: No such file"));
}

#[test]
fn the_nodes_that_did_start_end_when_another_fails() {
    let failing = format!("trap 'touch \"$here/ended-$id\"' EXIT\nif [ $id = 2 ]; then exit 1; fi\n{}", answers());
    let host = Host::with_nodes(&failing);
    assert!(host.failure(&host.spec(2)).starts_with("node 2 ended before it was ready"));
    assert!(host.path("ended-1").exists(), "it was waited for");
    let last = fs::read_to_string(host.path("last-1")).unwrap_or_default();
    assert_eq!(last.trim(), "", "nobody told it to stay");
}
