//! View of a pool for `tidemill pool top`: its nodes, and the moves under way. Only lines of text,
//! and JSON, of two samples: throughput is what lies between them.

use crate::top_view::{ViewSize, fitted, shortened};
use base::ByteSize;
use pool::{ClientTraffic, ClusterStatus, MoveProgress, NodePhase, ObservedNode, ObservedPool};
use serde_json::{Value, json};
use std::time::Duration;

/// Lines beside those of nodes and moves: the heading, the titles of both tables, empty lines.
const FIXED_LINES: usize = 6;
/// Columns of a node's line beside its host, with the spaces between.
const ROW_COLUMNS: usize = 69;
/// Columns of its host: as many as there are, within these.
const HOST_COLUMNS_MIN: usize = 10;
const HOST_COLUMNS_MAX: usize = 40;

/// What a node does, as it is shown.
#[derive(Debug)]
struct NodeRow {
    id: u32,
    host: String,
    /// A word about its phase, and whether it answers.
    state: &'static str,
    partitions: u32,
    /// Used memory and all memory, bytes; none if no manager has said so.
    memory: Option<(u64, u64)>,
    pins: u32,
    moves: Vec<MoveProgress>,
    /// None if the node did not answer twice.
    rates: Option<TrafficRates>,
}

/// Throughput in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TrafficRates {
    requests: f64,
    received: f64,
    sent: f64,
}

/// The lines of the view.
pub fn lines(sample: &ObservedPool, before: Option<&ObservedPool>, size: ViewSize) -> Vec<String> {
    let rows = rows(sample, before);
    let moves: Vec<String> = rows.iter().flat_map(move_lines).collect();
    let host_columns = size.columns.saturating_sub(ROW_COLUMNS).clamp(HOST_COLUMNS_MIN, HOST_COLUMNS_MAX);
    let nodes: Vec<String> = rows.iter().map(|row| node_line(row, host_columns)).collect();
    let mut lines = vec![heading(sample, &rows), String::new()];
    lines.push(format!(
        "{:>4} {:<host_columns$} {:<9} {:>5} {:>14} {:>4} {:>6} {:>9} {:>9}",
        "node", "host", "state", "share", "memory", "pins", "req/s", "in/s", "out/s"
    ));
    let space = size.rows.saturating_sub(FIXED_LINES);
    let moves_shown = moves.len().min((space / 2).max(space.saturating_sub(nodes.len())));
    lines.extend(shortened(nodes, space.saturating_sub(moves_shown)));
    if !moves.is_empty() {
        lines.push(String::new());
        lines.push("partitions that move now".to_owned());
        lines.extend(shortened(moves, moves_shown));
    }
    lines.iter().map(|line| fitted(line, size.columns)).collect()
}

fn heading(sample: &ObservedPool, rows: &[NodeRow]) -> String {
    let (nodes, plural) = (rows.len(), if rows.len() == 1 { "" } else { "s" });
    match &sample.managers {
        Ok(status) => {
            let (epoch, leader) = (status.map_version(), status.leader);
            let moves = status.state.moves().count();
            format!("{nodes} node{plural}, epoch {epoch}, node {leader} leads, partitions that move: {moves}")
        }
        Err(why) => format!("{nodes} node{plural}; the pool cannot grow or shrink now: {why}"),
    }
}

fn node_line(row: &NodeRow, host_columns: usize) -> String {
    let NodeRow { id, host, state, partitions, pins, .. } = row;
    let memory = row.memory.map_or_else(String::new, |(used, all)| {
        let percent = (used * 100).checked_div(all).unwrap_or(0);
        format!("{} {percent:>3} %", ByteSize(used))
    });
    let rates = row.rates.map(|rates| (format!("{:.0}", rates.requests), size(rates.received), size(rates.sent)));
    let (requests, received, sent) = rates.unwrap_or_else(|| ("-".into(), "-".into(), "-".into()));
    let host = fitted(host, host_columns);
    format!(
        "{id:>4} {host:<host_columns$} {state:<9} {partitions:>5} {memory:>14} {pins:>4} {requests:>6} {received:>9} {sent:>9}"
    )
}

fn move_lines(row: &NodeRow) -> Vec<String> {
    let line = |step: &MoveProgress| {
        let MoveProgress { partition, to, copied, total } = step;
        let (copied, total) = (ByteSize(*copied), ByteSize(*total));
        format!("  partition {partition} from node {} to {to}: {copied} of {total}", row.id)
    };
    row.moves.iter().map(line).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is no less than 0, and is shown")]
fn size(bytes: f64) -> String {
    ByteSize(bytes as u64).to_string()
}

fn rows(sample: &ObservedPool, before: Option<&ObservedPool>) -> Vec<NodeRow> {
    let status = sample.managers.as_ref().ok();
    let shares = status.map(|status| status.state.map().partition_counts()).unwrap_or_default();
    let row = |node: &ObservedNode| {
        let id = placement::NodeId(node.entry.id);
        let usage = status.and_then(|status| status.usage.get(&id));
        let activity = node.activity.as_ref().ok();
        NodeRow {
            id: node.entry.id,
            host: node.entry.host.clone(),
            state: state_word(status, node),
            partitions: shares.get(&id).copied().unwrap_or(0),
            memory: usage.map(|usage| (usage.used, usage.capacity)),
            pins: activity.map_or(0, |activity| activity.pins),
            moves: activity.map(|activity| activity.moves.clone()).unwrap_or_default(),
            rates: before.and_then(|before| rates(node, before, sample.at.duration_since(before.at))),
        }
    };
    sample.nodes.iter().map(row).collect()
}

fn state_word(status: Option<&ClusterStatus>, node: &ObservedNode) -> &'static str {
    let known = status.and_then(|status| status.state.nodes().get(&placement::NodeId(node.entry.id)));
    match (&node.activity, known.map(|known| known.phase)) {
        (Err(_), _) => "no answer",
        (Ok(_), Some(NodePhase::Joining)) => "joining",
        (Ok(_), Some(NodePhase::Draining)) => "leaving",
        (Ok(_), _) => "up",
    }
}

fn rates(node: &ObservedNode, before: &ObservedPool, passed: Duration) -> Option<TrafficRates> {
    let old = before.nodes.iter().find(|other| other.entry.id == node.entry.id)?.activity.as_ref().ok()?.traffic;
    let new = node.activity.as_ref().ok()?.traffic;
    let seconds = passed.as_secs_f64().max(1e-3);
    let rate = |of: fn(&ClientTraffic) -> u64| as_f64(of(&new).saturating_sub(of(&old))) / seconds;
    Some(TrafficRates { requests: rate(|t| t.requests), received: rate(|t| t.received), sent: rate(|t| t.sent) })
}

#[expect(clippy::cast_precision_loss, reason = "what comes in a second is far below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

/// The view as JSON.
pub fn json(sample: &ObservedPool, before: Option<&ObservedPool>) -> Value {
    let nodes: Vec<Value> = rows(sample, before).iter().map(row_as_json).collect();
    match &sample.managers {
        Ok(status) => json!({ "epoch": status.map_version(), "leader": status.leader.0, "nodes": nodes }),
        Err(why) => json!({ "epoch": null, "leader": null, "reason": why, "nodes": nodes }),
    }
}

fn row_as_json(row: &NodeRow) -> Value {
    let (used, memory) = row.memory.unzip();
    let moves: Vec<Value> = row.moves.iter().map(move_as_json).collect();
    let rates =
        row.rates.map(|rates| json!({ "requests": rates.requests, "received": rates.received, "sent": rates.sent }));
    json!({
        "id": row.id, "host": row.host, "state": row.state, "partitions": row.partitions, "used": used,
        "memory": memory, "pins": row.pins, "moves": moves, "per_second": rates,
    })
}

fn move_as_json(MoveProgress { partition, to, copied, total }: &MoveProgress) -> Value {
    json!({ "partition": partition.0, "to": to.0, "copied": copied, "total": total })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{NodeActivity, NodeEntry};
    use std::time::Instant;

    /// A sample of a pool without a leader. Its nodes have answered so many requests; `None` is a
    /// node that does not answer.
    fn sample(at: Instant, requests: &[Option<u64>]) -> ObservedPool {
        let node = |(id, requests): (u32, &Option<u64>)| {
            let entry = json!({
                "id": id, "host": "a-host-with-a-long-name", "pid": 1, "began": 1, "boot": "b", "net": 1,
                "addresses": [], "memory": 1 << 20, "slots": 0, "log": "/log",
            });
            let entry: NodeEntry = serde_json::from_value(entry).unwrap();
            let step =
                MoveProgress { partition: placement::PartitionId(5), to: placement::NodeId(2), copied: 1, total: 4 };
            let activity = requests.map(|requests| NodeActivity {
                traffic: ClientTraffic { requests, received: 2048 * requests, sent: 0 },
                moves: if id == 1 { vec![step] } else { Vec::new() },
                pins: 3,
            });
            ObservedNode { entry, activity: activity.ok_or_else(|| "no way".to_owned()) }
        };
        ObservedPool { at, managers: Err("nobody leads".into()), nodes: (1..).zip(requests).map(node).collect() }
    }

    #[test]
    fn a_view_has_what_lies_between_two_samples_and_says_who_does_not_answer() {
        let begun = Instant::now();
        let before = sample(begun, &[Some(10), Some(5), None]);
        let now = sample(begun + Duration::from_secs(2), &[Some(30), None, Some(1)]);
        let lines = lines(&now, Some(&before), ViewSize { columns: 80, rows: 24 });
        assert_eq!(lines[0], "3 nodes; the pool cannot grow or shrink now: nobody leads");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines[3])[..4], ["1", "a-host-wit…", "up", "0"]);
        assert_eq!(words(&lines[3])[4..], ["3", "10", "20", "KiB", "0", "B"]);
        assert_eq!(words(&lines[4])[2..], ["no", "answer", "0", "0", "-", "-", "-"]);
        assert_eq!(words(&lines[5])[4..], ["3", "-", "-", "-"], "it has answered once");
        assert_eq!(lines.last().unwrap(), "  partition 5 from node 1 to 2: 1 B of 4 B");
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        let shown = json(&now, Some(&before));
        assert_eq!((&shown["leader"], &shown["nodes"][0]["per_second"]["requests"]), (&Value::Null, &json!(10.0)));
        assert_eq!(shown["nodes"][0]["moves"][0], json!({ "partition": 5, "to": 2, "copied": 1, "total": 4 }));
    }

    #[test]
    fn of_many_nodes_a_small_terminal_shows_some() {
        let many = sample(Instant::now(), &[Some(1); 40]);
        let lines = lines(&many, None, ViewSize { columns: 40, rows: 12 });
        assert!(lines.len() <= 12, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("more")) && lines.iter().all(|line| line.chars().count() <= 40));
    }
}
