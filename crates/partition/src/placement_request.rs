//! Placement of bytes: the request for a file, or for files that are created in a directory, and
//! the resulting decision.
//!
//! A policy that a hash can evaluate is evaluated here, when the file is created. A policy that
//! depends on nodes is evaluated by the client that first writes more than fits inline
//! ([`wire::Answer::NeedsPlacement`], [`wire::Command::Place`]). Afterwards the layout never
//! changes.

use crate::{
    Partition,
    apply::CommandContext,
    inode::{DataLocation, FileBody, Inode, InodeBody},
    partition::Settings,
};
use bytes::Bytes;
use placement::{
    Distribution, FileId, InvalidPlacementSpec, NodeId, PartitionId, PlacementDecision, PlacementSpec, Policy,
    StripeNo, stripe_partition,
};
use serde::{Deserialize, Serialize};
use wire::{
    Answer, BytePlacement, Command, Object, Outcome, PLACEMENT, PlacementChoice, Refusal, STRIPE_SIZE, StripeRuns,
    XattrMode,
};

/// Requested placement, and the parts of it that are listed as attributes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PlacementRequest {
    pub placing: PlacementSpec,
    /// True if the policy was set on this inode, and not inherited.
    policy_set: bool,
    /// True if the stripe size was set on this inode, and not inherited.
    stripe_size_set: bool,
}

/// Extended attributes for placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementAttr {
    Policy,
    StripeSize,
}

impl PlacementAttr {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Policy => PLACEMENT,
            Self::StripeSize => STRIPE_SIZE,
        }
    }
}

impl PlacementRequest {
    /// Creates a request that was inherited, or given at creation: its attributes are not listed.
    pub fn inherited(placing: PlacementSpec) -> Self {
        Self { placing, ..Self::default() }
    }

    fn value(&self, attr: PlacementAttr) -> Option<Bytes> {
        let text = match attr {
            PlacementAttr::Policy => self.placing.policy?.to_string(),
            PlacementAttr::StripeSize => self.placing.stripe_size?.to_string(),
        };
        Some(text.into())
    }

    /// Returns the names of the attributes that were set.
    fn names(&self) -> impl Iterator<Item = &'static [u8]> {
        [PlacementAttr::Policy, PlacementAttr::StripeSize]
            .into_iter()
            .filter(|attr| self.is_set(*attr))
            .map(PlacementAttr::name)
    }

    /// Returns the request with one value changed; `None` removes the value. An attribute that is
    /// set to its current value is listed from then on.
    fn with(mut self, attr: PlacementAttr, value: Option<&[u8]>) -> Result<Self, String> {
        let text = value.map(|value| String::from_utf8_lossy(value).into_owned());
        let refused = |refused: InvalidPlacementSpec| refused.to_string();
        match attr {
            PlacementAttr::Policy => {
                self.placing.policy = text.map(|text| text.parse()).transpose().map_err(refused)?;
                self.policy_set = value.is_some();
            }
            PlacementAttr::StripeSize => {
                self.placing.stripe_size = text.map(|text| text.parse()).transpose().map_err(refused)?;
                self.stripe_size_set = value.is_some();
            }
        }
        Ok(self)
    }

    fn is_set(&self, attr: PlacementAttr) -> bool {
        match attr {
            PlacementAttr::Policy => self.policy_set,
            PlacementAttr::StripeSize => self.stripe_size_set,
        }
    }
}

impl FileBody {
    /// Returns the answer that asks a client to place the stripes, if that is still to be done.
    pub fn needs_placement(&self) -> Option<Answer> {
        let policy = self.placement.pending_policy?;
        Some(Answer::NeedsPlacement(PlacementChoice { policy, layout: self.placement.layout }))
    }

    /// Returns the stripes that may have bytes, except those beyond the end of the file.
    fn data_stripes(&self) -> StripeRuns {
        match &self.location {
            DataLocation::Striped(striped) => striped.data_runs().within(0..self.size.div_ceil(self.stripe_bytes())),
            _ => StripeRuns::new(),
        }
    }

    fn inline_bytes(&self) -> u64 {
        match &self.location {
            DataLocation::Inline(bytes) | DataLocation::Spilling(bytes) => bytes.len() as u64,
            _ => 0,
        }
    }

    /// Returns true if the placement can still change: there is neither a stripe nor an extent.
    fn is_free(&self) -> bool {
        matches!(self.location, DataLocation::Inline(_))
    }
}

impl Inode {
    /// True if a user has placed the bytes of this inode at a node. `here` counts wherever they
    /// are: which node that was is not stored.
    fn is_placed_at(&self, node: NodeId) -> bool {
        match self.placement_request.placing.policy {
            Some(Policy::Here) => true,
            Some(Policy::At(named)) => named == node,
            Some(Policy::Striped | Policy::Single | Policy::Balanced) | None => false,
        }
    }

    /// Returns the value of an attribute, inherited or set.
    pub fn placement_value(&self, attr: PlacementAttr) -> Option<Bytes> {
        self.placement_request.value(attr)
    }

    /// Returns the names of the attributes that are listed.
    pub fn placement_names(&self) -> impl Iterator<Item = Bytes> {
        self.placement_request.names().map(Bytes::from_static)
    }

    /// Sets or removes an attribute; [`Self::check_placing_mode`] has checked that the mode allows
    /// it.
    pub fn set_placement(
        &mut self,
        settings: &Settings,
        file: FileId,
        attr: PlacementAttr,
        value: Option<&[u8]>,
    ) -> Outcome<()> {
        let requested = self.check_placement(file, attr, value)?;
        if let InodeBody::File(body) = &mut self.body
            && requested.placing != self.placement_request.placing
        {
            if !body.is_free() {
                return Err(Refusal::AlreadyPlaced(Object::File(file)));
            }
            let by_hash = match body.placement.layout.distribution() {
                Distribution::Single(partition) => partition,
                Distribution::Striped => stripe_partition(settings.seed, file, StripeNo(u64::MAX), settings.partitions),
            };
            body.placement = PlacementDecision::new(settings.stripe_bytes, requested.placing, by_hash);
        }
        self.placement_request = requested;
        Ok(())
    }

    /// Checks that the mode allows setting, or else removing, the attribute.
    pub fn check_placement_mode(
        &self,
        file: FileId,
        attr: PlacementAttr,
        (sets, mode): (bool, XattrMode),
    ) -> Outcome<()> {
        let object = || Object::File(file);
        match mode {
            XattrMode::Create if self.placement_request.is_set(attr) => Err(Refusal::Exists(object())),
            XattrMode::Replace if !self.placement_request.is_set(attr) => Err(Refusal::NoAttribute(object())),
            _ if !sets && self.placement_request.value(attr).is_none() => Err(Refusal::NoAttribute(object())),
            _ if sets && !self.placement_request.is_set(attr) => self.check_listable(file, attr.name()),
            _ => Ok(()),
        }
    }

    /// Returns the request with this value, after validation.
    pub fn check_placement(
        &self,
        file: FileId,
        attr: PlacementAttr,
        value: Option<&[u8]>,
    ) -> Outcome<PlacementRequest> {
        let object = Object::File(file);
        match self.body {
            InodeBody::File(_) | InodeBody::Directory(_) => {}
            InodeBody::Bound(_) => return Err(Refusal::ReadOnly(object)),
            InodeBody::Symlink(_) | InodeBody::Node(_) => return Err(Refusal::NotPermitted(object)),
        }
        self.placement_request.with(attr, value).map_err(|why| Refusal::Invalid { object, why: why.into() })
    }
}

impl Partition {
    pub(crate) fn placement(&mut self, _: CommandContext, file: FileId) -> Outcome<Answer> {
        let inode = self.inode(file)?;
        let placing = inode.placement_request.placing;
        let (layout, decided, stripes) = if let InodeBody::File(body) = &inode.body {
            (body.placement.layout, body.placement.pending_policy.is_none(), body.data_stripes())
        } else {
            let spread = PlacementSpec { policy: None, ..placing };
            let placement = PlacementDecision::new(self.settings().stripe_bytes, spread, file.partition());
            (placement.layout, false, StripeRuns::new())
        };
        let host = if let InodeBody::Bound(host) = &inode.body { Some(host.node) } else { None };
        Ok(Answer::Placement(BytePlacement { placing, layout, decided, host, stripes }))
    }

    pub(crate) fn place(&mut self, _: CommandContext, file: FileId, partition: PartitionId) -> Outcome<Answer> {
        if u32::from(partition.0) >= self.settings().partitions {
            return Err(Refusal::invalid(Object::Pool, "the pool has no such partition"));
        }
        self.edit(file, |inode| {
            let placement = &mut inode.file_mut(file)?.placement;
            if placement.pending_policy.take().is_some() {
                placement.layout = placement.layout.in_partition(partition);
            }
            Ok(Answer::Done)
        })
    }

    /// True if there is such a file and a user has placed its bytes at a node, by `here` or `at`.
    pub fn is_placed_at(&self, file: FileId, node: NodeId) -> bool {
        self.inodes.get(&file).is_some_and(|inode| inode.is_placed_at(node))
    }

    /// Returns the number of bytes in inodes that a user has placed at a node, by `here` or `at`.
    pub fn inline_bytes_placed_at(&self, node: NodeId) -> u64 {
        let placed = self.inodes.values().filter(|inode| inode.is_placed_at(node));
        let files = placed.filter_map(|inode| if let InodeBody::File(body) = &inode.body { Some(body) } else { None });
        files.map(FileBody::inline_bytes).sum()
    }

    /// Returns the placement that decides whether a command may create an extent file.
    pub fn placement_for(&self, command: &Command) -> Option<PlacementDecision> {
        match command {
            Command::Create { parent, name, inode, .. } => {
                let above = self.inode(*parent).ok()?.placement_request.placing;
                let (placing, directory) = (inode.placing().or(above), self.directory_of(*parent));
                placing.policy.map(|_| self.placement_at(placing, directory, name.as_bytes()))
            }
            Command::Open { file, .. } => {
                let inode = self.inode(*file).ok()?;
                let InodeBody::File(body) = &inode.body else { return None };
                inode.placement_request.placing.policy.map(|_| body.placement)
            }
            _ => None,
        }
    }

    /// Returns the placement of a file that is created under this name.
    pub(crate) fn placement_at(&self, placing: PlacementSpec, directory: FileId, name: &[u8]) -> PlacementDecision {
        let settings = self.settings();
        let by_hash = placement::single_partition(settings.seed, directory, name, settings.partitions);
        PlacementDecision::new(settings.stripe_bytes, placing, by_hash)
    }
}
