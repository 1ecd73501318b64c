//! `tidemill pool pins`: what the hosts of a pool have at their nodes. Also words for that where
//! nodes leave.

use crate::args::PinsArgs;
use crate::pool_command::{self, INCOMPLETE};
use crate::{console, output};
use base::{ByteSize, Problem, printable};
use pool::{NodePin, NodePins, PinKind, PinList, PinProcess};
use serde_json::{Value, json};

/// The most pins that are named in one line.
const NAMED_MAX: usize = 3;

/// Shows the pins of all nodes, or of one.
pub fn pins(args: &PinsArgs) -> Result<u8, Problem> {
    let nodes = pool::query_pins(&pool_command::file(&args.pool_arg)?, args.node)?;
    let text = if args.json {
        format!("{}\n", json!({ "nodes": nodes.iter().map(node_as_json).collect::<Vec<_>>() }))
    } else {
        let lines = nodes.iter().flat_map(node_lines);
        lines.map(|line| format!("{}\n", printable::line(&line))).collect::<Vec<_>>().concat()
    };
    let has_all = nodes.iter().all(|node| node.answer.is_ok());
    Ok(output::print_all(&text).max(if has_all { 0 } else { INCOMPLETE }))
}

fn node_lines(NodePins { node, host, is_leaving, answer }: &NodePins) -> Vec<String> {
    let leaving = if *is_leaving { ", leaving" } else { "" };
    let listed = match answer {
        Ok(listed) => listed,
        Err(why) => return vec![format!("node {node} at {host}{leaving}: does not answer: {why}")],
    };
    if listed.pins.is_empty() {
        return vec![format!("node {node} at {host}{leaving}: its host has nothing there")];
    }
    let heading = format!("node {node} at {host}{leaving}:");
    let more = (listed.more > 0).then(|| format!("  ... and {} more", listed.more));
    let lines = listed.pins.iter().map(|pin| format!("  {}", pin_line(pin)));
    [heading].into_iter().chain(lines).chain(more).collect()
}

fn pin_line(pin: &NodePin) -> String {
    let by = by_processes(&pin.processes);
    let inode = inode(pin);
    match &pin.kind {
        PinKind::Mount => format!("mount{by}; it does not need this node"),
        PinKind::Open => format!("open file: inode {inode}{by}"),
        PinKind::Lock => format!("locked file: inode {inode}{by}"),
        PinKind::Extent { in_use } => {
            let usage = if *in_use { "open or mapped" } else { "not in use" };
            format!("bytes of a file: inode {inode}, {}, {usage}{by}", ByteSize(pin.bytes))
        }
        PinKind::Bound { path } => format!("bound file: inode {inode}, {path}"),
    }
}

fn inode(pin: &NodePin) -> u64 {
    pin.file.map_or(0, |file| file.0)
}

/// The processes in words, after a comma; empty if none is known.
fn by_processes(processes: &[PinProcess]) -> String {
    let named: Vec<String> = processes.iter().map(process_name).collect();
    match named.len() {
        0 => String::new(),
        1 => format!(", by process {}", named[0]),
        _ => format!(", by processes {}", named.join(", ")),
    }
}

fn process_name(PinProcess { id, program }: &PinProcess) -> String {
    if program.is_empty() { id.to_string() } else { format!("{id} ({program})") }
}

fn node_as_json(NodePins { node, host, is_leaving, answer }: &NodePins) -> Value {
    match answer {
        Ok(listed) => {
            let pins: Vec<Value> = listed.pins.iter().map(pin_as_json).collect();
            json!({ "id": node, "host": host, "leaving": is_leaving, "pins": pins, "more": listed.more })
        }
        Err(why) => json!({ "id": node, "host": host, "leaving": is_leaving, "reason": why }),
    }
}

fn pin_as_json(pin: &NodePin) -> Value {
    let processes: Vec<Value> =
        pin.processes.iter().map(|process| json!({ "pid": process.id, "program": process.program })).collect();
    let (kind, in_use, path) = match &pin.kind {
        PinKind::Mount => ("mount", None, None),
        PinKind::Open => ("open", None, None),
        PinKind::Lock => ("lock", None, None),
        PinKind::Extent { in_use } => ("extent", Some(*in_use), None),
        PinKind::Bound { path } => ("bound", None, Some(path)),
    };
    let mut shown = json!({ "kind": kind, "holds": pin.holds, "processes": processes });
    if let Some(file) = pin.file {
        shown["file"] = json!(file);
    }
    if let Some(in_use) = in_use {
        shown["in_use"] = in_use.into();
        shown["bytes"] = pin.bytes.into();
    }
    if let Some(path) = path {
        shown["path"] = json!(path);
    }
    shown
}

/// What a drained node waits for, in a line.
pub fn waiting_line(node: u32, listed: &PinList) -> String {
    let holding: Vec<&NodePin> = listed.pins.iter().filter(|pin| pin.holds).collect();
    let named: Vec<String> = holding.iter().take(NAMED_MAX).map(|pin| pin_line(pin)).collect();
    let more = (holding.len() - named.len()) as u64 + listed.more;
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!(
        "node {node} waits for its host: {}{more}; `tidemill pool pins --node {node}` lists all, `--force` ends them",
        named.join("; ")
    )
}

/// Says what was ended by force at a node, and what is lost.
pub fn say_ended(node: u32, ended: &PinList) {
    let of_kind = |is: fn(&PinKind) -> bool| ended.pins.iter().filter(move |pin| is(&pin.kind));
    let opens = of_kind(|kind| matches!(kind, PinKind::Open)).count();
    let locks = of_kind(|kind| matches!(kind, PinKind::Lock)).count();
    if opens + locks > 0 {
        let mut processes: Vec<PinProcess> = of_kind(|kind| matches!(kind, PinKind::Open | PinKind::Lock))
            .flat_map(|pin| pin.processes.iter().cloned())
            .collect();
        processes.sort();
        processes.dedup();
        let by = by_processes(&processes);
        let (files, locks) = (counted(opens, "open file"), counted(locks, "lock"));
        console::warn(&format!("node {node}: ended {files} and {locks} of programs{by}"));
    }
    let lost: Vec<&NodePin> = of_kind(|kind| matches!(kind, PinKind::Extent { .. })).collect();
    if !lost.is_empty() {
        let bytes = ByteSize(lost.iter().map(|pin| pin.bytes).sum());
        let inodes: Vec<String> = lost.iter().map(|pin| inode(pin).to_string()).collect();
        let (files, inodes) = (counted(lost.len(), "file"), inodes.join(", "));
        console::warn(&format!("node {node}: the bytes of {files} are lost ({bytes}): inode {inodes}"));
        console::say("  hint: in a mount, `find -inum NUMBER` names each; remove it, and make it again");
    }
    for pin in of_kind(|kind| matches!(kind, PinKind::Bound { .. })) {
        if let PinKind::Bound { path } = &pin.kind {
            console::warn(&format!("node {node}: inode {}, bound to {path}, cannot be read any more", inode(pin)));
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(kind: PinKind, bytes: u64) -> NodePin {
        let processes = vec![PinProcess { id: 7, program: "cat".into() }, PinProcess { id: 8, program: String::new() }];
        NodePin { kind, file: Some(placement::FileId(12)), holds: true, bytes, processes }
    }

    #[test]
    fn a_pin_is_shown_with_its_file_and_its_processes() {
        assert_eq!(pin_line(&pin(PinKind::Open, 0)), "open file: inode 12, by processes 7 (cat), 8");
        let extent = pin_line(&pin(PinKind::Extent { in_use: true }, 5 << 20));
        assert_eq!(extent, "bytes of a file: inode 12, 5 MiB, open or mapped, by processes 7 (cat), 8");
        let json = pin_as_json(&pin(PinKind::Extent { in_use: false }, 9));
        assert_eq!((&json["kind"], &json["bytes"], &json["in_use"]), (&json!("extent"), &json!(9), &json!(false)));
        assert_eq!(json["processes"][1], json!({ "pid": 8, "program": "" }));
    }

    #[test]
    fn what_a_node_waits_for_is_a_line_also_if_it_is_much() {
        let mut listed = PinList { pins: vec![pin(PinKind::Lock, 0); 5], more: 10 };
        listed.pins[4].holds = false;
        let line = waiting_line(3, &listed);
        assert!(
            line.starts_with("node 3 waits for its host: locked file: inode 12, by processes 7 (cat), 8; "),
            "{line}"
        );
        assert!(line.contains("; and 11 more; `tidemill pool pins --node 3`"), "{line}");
    }
}
