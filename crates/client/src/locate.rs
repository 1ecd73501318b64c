//! Locations of bytes: computed from the attributes, the layout and the map.

use crate::Client;
use placement::{FileId, NodeId, PlacementSpec, Policy, StripeNo, single_partition};
use std::{fmt::Write, ops::Range};
use wire::{BytePlacement, Command, Kind, Name, Object, Outcome, Refusal};

/// The location of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// The node of its inode.
    pub inode: NodeId,
    /// The nodes of its bytes, in file order; neighbours on one node are one range. Holes are not
    /// listed.
    pub bytes: Vec<(Range<u64>, NodeId)>,
}

/// The expected location of a file that does not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedLocation {
    /// The node of its inode; `None` if it cannot be known, because directories above are missing
    /// too.
    pub inode: Option<NodeId>,
    /// The policy that decides it.
    pub policy: Policy,
    /// The nodes that would have bytes of it, each with its share of them; shares add up to 1. If
    /// the policy puts all bytes at one node and it is not known at which, the probability of each.
    pub nodes: Vec<(NodeId, f64)>,
}

impl FileLocation {
    /// The number of bytes at each node, the most first.
    pub fn shares(&self) -> Vec<(NodeId, u64)> {
        let mut shares: Vec<(NodeId, u64)> = Vec::new();
        for (range, node) in &self.bytes {
            match shares.iter_mut().find(|(known, _)| known == node) {
                Some((_, bytes)) => *bytes += range.end - range.start,
                None => shares.push((*node, range.end - range.start)),
            }
        }
        shares.sort_by_key(|(node, bytes)| (std::cmp::Reverse(*bytes), *node));
        shares
    }

    /// The value of the attribute `user.tidemill.locate`: JSON, without the ranges, which may be
    /// many.
    pub fn text(&self) -> String {
        let shares = self.shares();
        let nodes = shares.iter().map(|(node, bytes)| format!(r#"{{"node":{node},"bytes":{bytes}}}"#));
        format!(r#"{{"inode":{},"nodes":[{}]}}"#, self.inode, nodes.collect::<Vec<_>>().join(","))
    }
}

impl ExpectedLocation {
    /// The value of the attribute `user.tidemill.locate` of a directory: JSON.
    pub fn text(&self) -> String {
        let nodes = self.nodes.iter().map(|(node, share)| format!(r#"{{"node":{node},"share":{share:.4}}}"#));
        let nodes = nodes.collect::<Vec<_>>().join(",");
        let mut text = String::from("{");
        if let Some(inode) = self.inode {
            let _ = write!(text, r#""inode":{inode},"#); // writing to a string cannot fail
        }
        text + &format!(r#""placement":"{}","nodes":[{nodes}]}}"#, self.policy)
    }
}

/// Most stripes that are located; for a longer file only the beginning is. No pool holds more
/// stripes of a file, but a range may plan them.
const LOCATED_STRIPES_MAX: usize = 1 << 24;

impl Client {
    /// The location of a file now: two messages, the rest is computed. A bound file is at the node
    /// that reads it. Stripes that were never written are nowhere.
    pub async fn locate(&self, file: FileId) -> Outcome<FileLocation> {
        let attributes = self.stat(file).await?;
        let not_there = || Refusal::NotFound(Object::File(file));
        let inode = self.router().home(file.partition()).ok_or_else(not_there)?;
        let mut located = FileLocation { inode, bytes: Vec::new() };
        if attributes.kind != Kind::File || attributes.size == 0 {
            return Ok(located);
        }
        let BytePlacement { layout, stripes, host, .. } = self.placement(file).await?;
        let host = attributes.extent.map(|extent| extent.node).or(host);
        if host.is_some() || stripes.is_empty() {
            located.bytes.push((0..attributes.size, host.unwrap_or(inode)));
            return Ok(located);
        }
        let stripe_bytes = u64::from(layout.stripe_bytes());
        for stripe in stripes.iter().take(LOCATED_STRIPES_MAX) {
            let partition = layout.partition(self.router().seed, file, StripeNo(stripe), self.router().partitions);
            let node = self.router().home(partition).unwrap_or(inode);
            let range = stripe * stripe_bytes..attributes.size.min((stripe + 1) * stripe_bytes);
            match located.bytes.last_mut() {
                // The file has become shorter since its attributes were read.
                _ if range.is_empty() => break,
                Some((last, known)) if *known == node && last.end == range.start => last.end = range.end,
                _ => located.bytes.push((range, node)),
            }
        }
        Ok(located)
    }

    /// The expected location of a file that this client would make in this directory now; without a
    /// name, of a file with any name.
    pub async fn expected_location(&self, directory: FileId, name: Option<&Name>) -> Outcome<ExpectedLocation> {
        if self.stat(directory).await?.kind != Kind::Directory {
            return Err(Refusal::NotDirectory(Object::File(directory)));
        }
        let placing = self.placement(directory).await?.placing;
        let policy = placing.policy.unwrap_or(Policy::Striped);
        let inode = name.and_then(|name| self.router().home(self.slot(directory, name).partition()));
        let by_hash = || {
            let name = name.filter(|_| policy != Policy::Striped)?;
            self.router().home(single_partition(
                self.router().seed,
                directory,
                name.as_bytes(),
                self.router().partitions,
            ))
        };
        let chosen = self.choose_node(policy, 0).await.filter(|node| self.holds_data(*node)).or_else(by_hash);
        let nodes = chosen.map_or_else(|| self.router().shares(), |node| vec![(node, 1.0)]);
        Ok(ExpectedLocation { inode, policy, nodes })
    }

    /// The placement that a directory sets for what is made in it.
    pub(crate) async fn placement_spec(&self, directory: FileId) -> Outcome<PlacementSpec> {
        Ok(self.placement(directory).await?.placing)
    }

    async fn placement(&self, file: FileId) -> Outcome<BytePlacement> {
        self.query(file.partition(), Command::placement(file)).await
    }

    /// The value of `user.tidemill.locate`.
    pub(crate) async fn location_text(&self, file: FileId) -> Outcome<String> {
        match self.stat(file).await?.kind {
            Kind::Directory => Ok(self.expected_location(file, None).await?.text()),
            Kind::File => Ok(self.locate(file).await?.text()),
            _ => Err(Refusal::NoAttribute(Object::File(file))),
        }
    }
}
