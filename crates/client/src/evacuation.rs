//! Evacuation: a node copies a large extent file, whose inode is at another node, to stripes.
//!
//! `node` (`evacuation.rs`) has the protocol, and what is known at the host of the bytes.

use crate::{Client, hosted::is_definite, router::Router, stripe_ranges::RANGES_IN_FLIGHT_MAX};
use futures_util::{
    StreamExt, TryStreamExt,
    future::{Either, select},
    stream,
};
use node::{FrozenEvacuation, HostedEvacuation, Node};
use placement::{FileId, Layout, NodeId, PartitionEntry, StripeNo};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use wire::{
    AllocateAnswer, Command, Object, Outcome, Refusal, SpaceShortage, StripeAction, StripeAllocation, StripeRuns,
};

/// Bytes of a file that are copied at once, if that is more than a stripe: enough to keep nodes
/// busy, and little beside what clients send.
const WINDOW_BYTES: u32 = 4 << 20;

/// A copy of a file to the stripes that are planned for it.
struct EvacuationPlan {
    begun: HostedEvacuation,
    generation: u32,
    layout: Layout,
    /// The stripes with bytes of the file.
    stripes: StripeRuns,
    /// Stripes of earlier copies.
    earlier: StripeRuns,
    /// End of the stripes that were begun to be written.
    reached: AtomicU64,
}

impl EvacuationPlan {
    /// The end of the copy.
    fn end(&self) -> FrozenEvacuation {
        let mut stripes = self.stripes.clone();
        self.earlier.ranges().for_each(|run| stripes.insert(run.start, run.end));
        FrozenEvacuation { copied: self.begun, generation: self.generation, layout: self.layout, stripes }
    }
}

impl Client {
    /// Makes a large file striped whose bytes are at this node, or frees them if the file is gone.
    /// Does other work of the host meanwhile.
    pub(crate) async fn evacuate(&self, node: &Node, file: FileId) -> Outcome<()> {
        let Some(begun) = node.begin_evacuation(file)? else { return Ok(()) };
        let Some(plan) = self.plan_evacuation(node, begun).await? else { return Ok(()) };
        let copied = match select(pin!(self.copy_planned(node, &plan)), pin!(self.do_short_host_work(node))).await {
            Either::Left((copied, _)) => copied,
            Either::Right((never, _)) => match never {},
        };
        let frozen = plan.end();
        match copied.and_then(|()| node.freeze_evacuation(frozen.clone())) {
            Ok(()) => self.end_evacuation(node, &frozen).await,
            Err(refusal) => {
                self.cut_copied(&frozen, &plan.stripes.within(0..plan.reached.into_inner())).await;
                Err(refusal)
            }
        }
    }

    /// Sends the end of an evacuation again, if its outcome is not known.
    pub(crate) async fn end_evacuation_again(&self, node: &Node, file: FileId) -> Outcome<()> {
        match node.frozen_evacuation(file) {
            Some(frozen) => self.end_evacuation(node, &frozen).await,
            None => Ok(()),
        }
    }

    /// Plans the stripes of a file. `None` if it is gone, or if somebody has it open: then its node
    /// sends a notice when it is closed.
    async fn plan_evacuation(&self, node: &Node, begun: HostedEvacuation) -> Outcome<Option<EvacuationPlan>> {
        let HostedEvacuation { file, extent, .. } = begun;
        let ask = async |stripes| match self.plan_stripes(begun, stripes).await {
            Err(Refusal::NotFound(_)) => {
                node.end_hosting(file);
                Ok(None)
            }
            Err(Refusal::Stale(_)) => {
                if !self.is_hosted_at(file, extent).await? {
                    node.end_hosting(file);
                }
                Ok(None)
            }
            planned => planned.map(Some),
        };
        let Some(StripeAllocation { layout, .. }) = ask(StripeRuns::new()).await? else { return Ok(None) };
        let stripes = node.evacuated_stripes(&begun, layout)?;
        self.check_space(node, &begun, layout, &stripes).await?;
        let Some(planned) = ask(stripes.clone()).await? else { return Ok(None) };
        let StripeAllocation { generation, stripes: earlier, layout } = planned;
        Ok(Some(EvacuationPlan { begun, generation, layout, stripes, earlier, reached: AtomicU64::new(0) }))
    }

    /// Plans these stripes, after a node was chosen for them if the file's policy asks for one.
    async fn plan_stripes(&self, begun: HostedEvacuation, stripes: StripeRuns) -> Outcome<StripeAllocation> {
        let HostedEvacuation { file, extent, .. } = begun;
        for _ in 0..2 {
            match self.mutate(file.partition(), Command::evacuate(file, extent, stripes.clone())).await? {
                AllocateAnswer::Allocated(planned) => return Ok(planned),
                AllocateAnswer::NeedsPlacement(choice) => self.place_file(file, choice).await?,
                AllocateAnswer::NeedsSpill(_) | AllocateAnswer::NeedsTruncate(_) => break,
            }
        }
        Err(Refusal::Busy(Object::File(file)))
    }

    /// Refuses to copy what would find no space: each try would take as long as the copy.
    async fn check_space(
        &self,
        node: &Node,
        begun: &HostedEvacuation,
        layout: Layout,
        stripes: &StripeRuns,
    ) -> Outcome<()> {
        let (mut wanted, stripe_bytes) = (BTreeMap::<NodeId, u64>::new(), u64::from(layout.stripe_bytes()));
        let Router { seed, partitions, .. } = *self.router();
        for stripe in stripes.iter() {
            let partition = layout.partition(seed, begun.file, StripeNo(stripe), partitions);
            // The node has heard of the moves of what it had; this client may not have.
            let Some(PartitionEntry { server, .. }) = node.entry(partition) else { continue };
            let bytes = begun.size.saturating_sub(stripe * stripe_bytes).min(stripe_bytes);
            *wanted.entry(server).or_default() += bytes;
        }
        for (node, usage) in self.usages().await {
            let (Ok(usage), Some(wanted)) = (usage, wanted.get(&node).copied()) else { continue };
            let (capacity, used, waited) = (usage.capacity, usage.used, Duration::ZERO);
            if wanted > capacity.saturating_sub(used) {
                return Err(Refusal::NoSpace(SpaceShortage { node: Some(node), capacity, used, wanted, waited }));
            }
        }
        Ok(())
    }

    /// Writes all bytes to the stripes, after stripes of earlier copies are cut to nothing.
    async fn copy_planned(&self, node: &Node, plan: &EvacuationPlan) -> Outcome<()> {
        let EvacuationPlan { begun, generation, layout, stripes, earlier, reached } = plan;
        let stripes_max = usize::try_from(WINDOW_BYTES / layout.stripe_bytes()).unwrap_or(RANGES_IN_FLIGHT_MAX);
        let at_once = stripes_max.clamp(1, RANGES_IN_FLIGHT_MAX);
        let cuts = earlier.iter().map(|stripe| self.cut_stripe(begun.file, *layout, *generation, stripe));
        stream::iter(cuts).buffer_unordered(at_once).try_collect::<()>().await?;
        let copies = stripes.iter().map(|stripe| {
            reached.store(stripe + 1, Relaxed);
            self.copy_stripe(node, plan, StripeNo(stripe))
        });
        stream::iter(copies).buffer_unordered(at_once).try_collect::<()>().await
    }

    async fn copy_stripe(&self, node: &Node, plan: &EvacuationPlan, stripe: StripeNo) -> Outcome<()> {
        let EvacuationPlan { begun, generation, layout, .. } = plan;
        let Some((offset, data)) = node.read_evacuated(begun, *layout, stripe)? else { return Ok(()) };
        let stripe_bytes = u64::from(layout.stripe_bytes());
        let reaches_end = u64::from(offset) + data.len() as u64 == stripe_bytes;
        let ends = reaches_end && layout.stripe_bytes() < self.router().stripe_bytes;
        let action = StripeAction::Write { generation: *generation, offset, ends, data };
        match self.send_stripe(begun.file, *layout, stripe, action).await {
            // The file was opened, changed or removed.
            Err(Refusal::Stale(_)) => Err(Refusal::Busy(Object::File(begun.file))),
            written => written.map(drop),
        }
    }

    async fn cut_stripe(&self, file: FileId, layout: Layout, generation: u32, stripe: u64) -> Outcome<()> {
        let action = StripeAction::Truncate { generation, length: 0 };
        match self.send_stripe(file, layout, StripeNo(stripe), action).await {
            Err(Refusal::Stale(_)) => Err(Refusal::Busy(Object::File(file))),
            cut => cut.map(drop),
        }
    }

    /// Frees the space of a copy that was given up. What is not cut now is cut before the next
    /// copy.
    async fn cut_copied(&self, frozen: &FrozenEvacuation, stripes: &StripeRuns) {
        let FrozenEvacuation { copied: HostedEvacuation { file, .. }, generation, layout, .. } = *frozen;
        // If the file was removed, whoever did so may have missed some of them.
        if let Ok(unowned) = self.find_unplanned(file, stripes).await
            && !unowned.is_empty()
        {
            return self.discard_stripes(file, layout, unowned.iter()).await;
        }
        for stripe in stripes.iter() {
            if let Err(error) = self.cut_stripe(file, layout, generation, stripe).await {
                tracing::debug!(%error, %file, stripe, "a file holds space twice until it is copied again or removed");
                return;
            }
        }
    }

    /// Has the inode of a copied file leave its extent, which is frozen meanwhile.
    async fn end_evacuation(&self, node: &Node, frozen: &FrozenEvacuation) -> Outcome<()> {
        let FrozenEvacuation { copied: HostedEvacuation { file, extent, size, .. }, layout, ref stripes, .. } = *frozen;
        match self.send_once(frozen.command()).await {
            Ok(()) => {
                node.end_evacuation(file, true);
                // It is as it is without that, and uses more memory.
                drop(self.shrink_to_fit(file, layout, size).await);
                return Ok(());
            }
            // It may be done, or be done later, so the extent stays as it is.
            Err(refusal) if !is_definite(&refusal) => return Err(refusal),
            Err(Refusal::NotFound(_)) => {
                node.end_evacuation(file, true);
                self.discard_stripes(file, layout, stripes.iter()).await;
                return Ok(());
            }
            // Done by an earlier try, or gone.
            Err(Refusal::Stale(_)) if !self.is_hosted_at(file, extent).await? => {
                node.end_evacuation(file, true);
                return Ok(());
            }
            // Opened or changed meanwhile.
            Err(_) => node.end_evacuation(file, false),
        }
        self.cut_copied(frozen, stripes).await;
        Err(Refusal::Busy(Object::File(file)))
    }
}
