//! Tests of a node's side of the bootstrap, up to the message after which it detaches from its
//! starter. The messages are JSON, as nodes of other hosts send them.

use crate::{BootstrapError, HostEnv, NodeSelector, RunningNode, run_node};
use base::{ByteSize, Problem};
use serde_json::{Value, json};
use std::cell::RefCell;

/// Plan of a pool of two nodes on this host.
fn plan() -> Value {
    let node = |id: u32| json!({"id": id, "nodes_here": 2, "reach": "Here", "port": 0, "memory": {"Bytes": 32 << 20}, "slots": id});
    json!({
        "version": env!("CARGO_PKG_VERSION"), "pool": "fedcba9876543210", "token": "0123456789abcdef",
        "identity": null, "partitions": 64, "space_wait": {"secs": 1, "nanos": 0}, "seats": [node(1), node(2)],
    })
}

/// Result of a bootstrap that failed: the messages of the node, and the error.
struct Failed {
    messages: Vec<Value>,
    error: BootstrapError,
    /// Sizes and numbers of nodes for which memory was requested.
    requests: Vec<(Option<ByteSize>, u32)>,
}

impl Failed {
    /// Returns the problem that the starter cannot report.
    fn problem(&self) -> String {
        match &self.error {
            BootstrapError::Unreported(problem) => problem.to_string(),
            BootstrapError::Reported => panic!("the starter was told: {:?}", self.messages),
        }
    }

    /// Returns the problem that the starter was told.
    fn refusal(&self) -> String {
        assert!(matches!(self.error, BootstrapError::Reported), "{:?}", self.error);
        let refused = &self.messages.last().unwrap()["Refused"];
        assert_eq!(refused[0], 1, "the node's id");
        refused[1].as_str().unwrap().to_owned()
    }
}

/// Runs a node that gets these lines from its starter, and fails.
fn fail(selector: NodeSelector, lines: &[String], memory: &Result<ByteSize, Problem>) -> Failed {
    let host_dir = tempfile::tempdir().unwrap();
    let (log, pool) = (host_dir.path().join("log"), host_dir.path().join("pool"));
    let requests = RefCell::new(Vec::new());
    let granted = |size, nodes| {
        requests.borrow_mut().push((size, nodes));
        memory.clone()
    };
    let env = HostEnv { directory: host_dir.path(), log: &log, pool: &pool, memory: &granted };
    let mut output = Vec::new();
    let run: Result<RunningNode, _> = run_node(selector, &env, lines.concat().as_bytes(), &mut output);
    assert!(!log.exists(), "only a node that goes on writes a log");
    let messages = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let messages = messages.map(|line| serde_json::from_slice(line).unwrap()).collect();
    Failed { messages, error: run.map(drop).unwrap_err(), requests: requests.into_inner() }
}

fn first(lines: &[String]) -> Failed {
    fail(NodeSelector::Id(1), lines, &Ok(ByteSize::mib(16)))
}

fn line(message: &Value) -> String {
    format!("{message}\n")
}

#[test]
fn a_node_without_a_starter_says_what_starts_nodes() {
    let cases = [
        (vec![], "the starter ended before it sent its order"),
        (
            vec!["Welcome to host a!\n".to_owned()],
            "the starter's order cannot be read: this line is not a message of Tidemill",
        ),
        (vec![line(&json!({"version": "1"}))], "the starter's order cannot be read"),
    ];
    for (lines, expected) in cases {
        let problem = first(&lines).problem();
        assert!(problem.starts_with(expected), "{problem}");
        assert!(problem.contains("`tidemill pool start` starts nodes"), "{problem}");
    }
}

#[test]
fn a_node_takes_the_settings_of_its_id_or_of_its_rank() {
    for (selector, id) in
        [(NodeSelector::Id(2), 2), (NodeSelector::Id(1), 1), (NodeSelector::Rank(0), 1), (NodeSelector::Rank(1), 2)]
    {
        let failed = fail(selector, &[line(&plan())], &Ok(ByteSize::mib(16)));
        let listening = &failed.messages[0]["Here"];
        assert_eq!((&listening["id"], &listening["slots"]), (&json!(id), &json!(id)), "{selector:?}");
    }
    for selector in [NodeSelector::Id(0), NodeSelector::Id(3), NodeSelector::Rank(2)] {
        let failed = fail(selector, &[line(&plan())], &Ok(ByteSize::mib(16)));
        assert!(failed.problem().contains("the starter has no entry for"), "{}", failed.problem());
    }
}

#[test]
fn a_node_reports_its_addresses_and_the_memory_that_it_may_take() {
    let failed = first(&[line(&plan())]);
    assert_eq!(failed.requests, [(Some(ByteSize::mib(32)), 2)]);
    let listening = &failed.messages[0]["Here"];
    assert_eq!(listening["memory"], 16 << 20, "no more than the host grants");
    assert_eq!(listening["pid"], std::process::id());
    let addresses: Vec<&str> =
        listening["addresses"].as_array().unwrap().iter().map(|at| at.as_str().unwrap()).collect();
    assert!(addresses[0].starts_with("unix:") && addresses[0].ends_with("/socket"), "{addresses:?}");
    assert!(addresses[1].starts_with("tcp:127.0.0.1:") && !addresses[1].ends_with(":0"), "{addresses:?}");
}

#[test]
fn a_node_that_only_computes_asks_for_no_memory_and_another_for_its_share() {
    for (memory, requests) in [(json!({"Bytes": 0}), vec![]), (json!("Usual"), vec![(None, 2)])] {
        let mut plan = plan();
        plan["seats"][0]["memory"] = memory.clone();
        let failed = first(&[line(&plan)]);
        assert_eq!(failed.requests, requests, "{memory}");
        assert_eq!(failed.messages[0]["Here"]["memory"] == 0, requests.is_empty(), "{memory}");
    }
}

#[test]
fn a_reason_not_to_start_is_told_to_the_starter_with_its_hint() {
    let refused = fail(
        NodeSelector::Id(1),
        &[line(&plan())],
        &Err(Problem::new("there are 3 MiB".to_owned()).hint("give less with --memory")),
    );
    assert_eq!(refused.messages, [json!({"Refused": [1, "there are 3 MiB", "give less with --memory"]})]);
    let spoilt = |spoil: &dyn Fn(&mut Value)| {
        let mut plan = plan();
        spoil(&mut plan);
        first(&[line(&plan)]).refusal()
    };
    let version = spoilt(&|plan| plan["version"] = json!("0.0.9"));
    assert_eq!(version, format!("the starter is Tidemill 0.0.9, this is {}", env!("CARGO_PKG_VERSION")));
    assert!(!spoilt(&|plan| plan["token"] = json!("short")).is_empty());
    assert!(!spoilt(&|plan| plan["identity"] = json!("no certificate")).is_empty());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let busy = spoilt(&|plan| plan["seats"][0]["port"] = json!(port));
    assert!(busy.contains(&port.to_string()), "{busy}");
}

#[test]
fn a_node_ends_when_its_starter_goes_before_it_may_stay() {
    let plan = line(&plan());
    let alone = first(std::slice::from_ref(&plan));
    assert_eq!(alone.refusal(), "the starter ended before it sent its deal");
    let entry = alone.messages[0]["Here"].clone();
    let deal = |nodes: Vec<Value>| line(&json!({"Deal": nodes}));
    let early = first(&[plan.clone(), line(&json!("Keep"))]);
    assert_eq!(early.refusal(), "the starter ended before it sent its deal", "another message came");
    let ready = first(&[plan.clone(), deal(vec![entry.clone()])]);
    assert_eq!(ready.messages[1], json!({"Ready": 1}));
    assert_eq!(ready.refusal(), "the starter ended before it sent its leave to stay");
    let mut without_memory = entry;
    without_memory["memory"] = json!(0);
    let refused = first(&[plan, deal(vec![without_memory])]);
    assert_eq!(refused.refusal(), "no node of the pool has memory");
    assert_eq!(refused.messages.len(), 2, "it was never ready");
}
