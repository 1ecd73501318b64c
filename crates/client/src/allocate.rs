//! Space of a range: preallocation, hole punching, seeking data and holes.
//!
//! Zeroing a range punches a hole and then allocates it: a reader in between sees zeros too.

use crate::{Client, files::PLANS_MAX};
use placement::{Distribution, FileId, Layout, NodeId, StripeNo};
use std::{ops::Range, time::Duration};
use wire::{
    AllocateAnswer, AllocateMode, Command, Object, Outcome, Refusal, SeekTo, SpaceShortage, SpaceUsage, StripeAction,
    StripeAllocation, StripeRuns, TypedCommand,
};

/// The partition's plan for a range.
struct AllocationPlan {
    file: FileId,
    layout: Layout,
    range: Range<u64>,
    mode: AllocateMode,
    generation: u32,
}

impl Client {
    /// Allocates or frees the space of a range, or zeroes it. If there is not enough space, what
    /// was allocated stays.
    pub async fn allocate(&self, file: FileId, offset: u64, length: u64, mode: AllocateMode) -> Outcome<()> {
        let takes = match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => mode,
            AllocateMode::PunchHole => return self.allocate_once(file, offset, length, mode).await,
            AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize => {
                self.allocate_once(file, offset, length, AllocateMode::PunchHole).await?;
                if mode == AllocateMode::ZeroRange { AllocateMode::Extend } else { AllocateMode::KeepSize }
            }
        };
        self.check_possible(length, None).await?;
        self.allocate_once(file, offset, length, takes).await
    }

    /// The offset at which data or a hole begins, at `offset` or after it. Refused with `BeyondEnd`
    /// if there is none.
    pub async fn seek(&self, file: FileId, offset: u64, to: SeekTo) -> Outcome<u64> {
        self.query(file.partition(), Command::seek(file, offset, to)).await
    }

    /// Refuses more than the capacity of the pool before anything is allocated, if all its nodes
    /// report their capacities; with a layout that names a partition, more than the capacity of its
    /// node.
    pub(crate) async fn check_possible(&self, wanted: u64, layout: Option<Layout>) -> Outcome<()> {
        let node = match layout.map(Layout::distribution) {
            Some(Distribution::Single(partition)) => {
                self.router().home(partition).filter(|_| self.router().nodes.len() > 1)
            }
            _ => None,
        };
        let counts = |id: NodeId| node.is_none_or(|node| node == id);
        if self.known_capacity(counts).is_some_and(|capacity| wanted <= capacity) {
            return Ok(());
        }
        let usages = self.usages().await.into_iter().filter(|(id, _)| counts(*id));
        let usages: Outcome<Vec<SpaceUsage>> = usages.map(|(_, usage)| usage).collect();
        let usage = usages.unwrap_or_default().iter().fold(SpaceUsage::default(), SpaceUsage::with);
        if wanted <= usage.capacity || usage.capacity == 0 {
            return Ok(());
        }
        let (capacity, used, waited) = (usage.capacity, usage.used, Duration::ZERO);
        Err(Refusal::NoSpace(SpaceShortage { node, capacity, used, wanted, waited }))
    }

    async fn allocate_once(&self, file: FileId, offset: u64, length: u64, mode: AllocateMode) -> Outcome<()> {
        for _ in 0..PLANS_MAX {
            match self.mutate(file.partition(), Command::allocate(file, offset, length, mode)).await? {
                AllocateAnswer::Allocated(StripeAllocation { generation, stripes, layout }) => {
                    let plan = AllocationPlan { file, layout, range: offset..offset + length, mode, generation };
                    if self.allocate_planned(&plan, &stripes).await? {
                        return Ok(());
                    }
                }
                AllocateAnswer::NeedsPlacement(choice) => Box::pin(self.place_file(file, choice)).await?,
                AllocateAnswer::NeedsSpill(spill) => self.spill(file, &spill).await?,
                AllocateAnswer::NeedsTruncate(truncation) => self.finish_truncate(file, truncation).await?,
            }
        }
        Err(Refusal::Busy(Object::File(file)))
    }

    /// Applies the plan to the stripes, then tells the partition; false if the file was truncated
    /// or punched meanwhile.
    async fn allocate_planned(&self, plan: &AllocationPlan, stripes: &StripeRuns) -> Outcome<bool> {
        for stripe in stripes.iter() {
            match self.send_stripe(plan.file, plan.layout, StripeNo(stripe), plan.action(stripe)).await {
                Ok(_) => {}
                Err(Refusal::Stale(_)) => return Ok(false),
                Err(refusal) => {
                    self.give_up(plan, stripe).await;
                    return Err(refusal);
                }
            }
        }
        let Some(last) = plan.last_command(stripes) else { return Ok(true) };
        match self.mutate(plan.file.partition(), last).await {
            Ok(()) => Ok(true),
            Err(Refusal::Stale(_)) => Ok(false),
            Err(refusal) => {
                if matches!(refusal, Refusal::NotFound(_)) {
                    self.discard_stripes(plan.file, plan.layout, stripes.iter()).await;
                }
                Err(refusal)
            }
        }
    }

    async fn give_up(&self, plan: &AllocationPlan, stripe: u64) {
        if plan.mode == AllocateMode::PunchHole {
            return;
        }
        let failed = Command::allocation_failed(plan.file, plan.generation, stripe);
        if let Err(error) = self.mutate(plan.file.partition(), failed).await {
            tracing::debug!(%error, "a file may hold space that was not allocated to it");
        }
    }
}

impl AllocationPlan {
    /// The action on a stripe of the range.
    fn action(&self, stripe: u64) -> StripeAction {
        let stripe_bytes = self.layout.stripe_bytes();
        let (start, generation) = (stripe * u64::from(stripe_bytes), self.generation);
        let within = |offset: u64| {
            let inside = offset.saturating_sub(start).min(stripe_bytes.into());
            u32::try_from(inside).expect("at most the length of a stripe")
        };
        let (offset, end) = (within(self.range.start), within(self.range.end));
        match self.mode {
            AllocateMode::PunchHole => StripeAction::Zero { generation, offset, length: end - offset },
            _ => StripeAction::Extend { generation, length: end },
        }
    }

    /// The command that tells the partition that the stripes are done, if it needs one.
    fn last_command(&self, stripes: &StripeRuns) -> Option<TypedCommand<()>> {
        let (file, generation, end) = (self.file, self.generation, self.range.end);
        match self.mode {
            _ if stripes.is_empty() => None,
            AllocateMode::PunchHole => Some(Command::punch_done(file, generation)),
            AllocateMode::Extend => Some(Command::publish_size(file, generation, end)),
            _ => None,
        }
    }
}
