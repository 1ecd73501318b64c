//! Where bytes are: computed from the attributes and the map.

use crate::Client;
use placement::{FileId, NodeId, StripeNo, stripe_partition};
use std::ops::Range;
use wire::{INLINE_BYTES_MAX, Kind, Object, Outcome, Refusal};

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The node of its inode.
    pub inode: NodeId,
    /// Where its bytes are, in their order, as one range where neighbours are on one node; none where there are none.
    pub bytes: Vec<(Range<u64>, NodeId)>,
}

impl Located {
    /// How many bytes each node has, the most first.
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
}

impl Client {
    /// Where a file is, as of now: one message, the rest is computed. Of a bound file it is the node that reads it; holes count where
    /// their bytes would be.
    pub async fn locate(&self, file: FileId) -> Outcome<Located> {
        let attributes = self.stat(file).await?;
        let not_there = || Refusal::NotFound(Object::File(file));
        let inode = self.0.home(file.partition()).ok_or_else(not_there)?;
        let mut located = Located { inode, bytes: Vec::new() };
        if attributes.kind != Kind::File || attributes.size == 0 {
            return Ok(located);
        }
        let inline = attributes.size <= INLINE_BYTES_MAX.into() || attributes.allocated == 0;
        if let Some(node) = attributes.whole.map(|whole| whole.node).or(inline.then_some(inode)) {
            located.bytes.push((0..attributes.size, node));
            return Ok(located);
        }
        let stripe_bytes = u64::from(self.0.stripe_bytes);
        for stripe in 0..attributes.size.div_ceil(stripe_bytes) {
            let partition = stripe_partition(self.0.seed, file, StripeNo(stripe), self.0.partitions);
            let node = self.0.home(partition).unwrap_or(inode);
            let range = stripe * stripe_bytes..attributes.size.min((stripe + 1) * stripe_bytes);
            match located.bytes.last_mut() {
                Some((last, known)) if *known == node => last.end = range.end,
                _ => located.bytes.push((range, node)),
            }
        }
        Ok(located)
    }
}
