//! The tree of a database: leaves, the branches above them, and the root above those.
//!
//! Branches and the root are immutable, and replaced as a whole when a leaf is split. So a reader
//! finds a leaf by three loads, without a lock. There are always three levels: a branch has a few
//! hundred leaves, and the root as many branches as it takes.

use crate::{leaf::Leaf, separators::Separators};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// Most leaves of a branch.
const BRANCH_LEAVES_MAX: usize = 256;

/// A tree.
#[derive(Debug)]
pub struct Tree {
    root: ArcSwap<RootIndex>,
    /// Held while branches are replaced.
    structure: Mutex<()>,
}

/// The branches of a tree.
#[derive(Clone, Debug)]
pub struct RootIndex {
    separators: Separators,
    branches: Vec<Arc<ArcSwap<LeafIndex>>>,
}

/// The leaves of a branch.
#[derive(Clone, Debug)]
pub struct LeafIndex {
    separators: Separators,
    leaves: Vec<Arc<Leaf>>,
}

/// Leaves, each with its separator.
pub type SeparatedLeaves = Vec<(Box<[u8]>, Arc<Leaf>)>;

impl Tree {
    /// A tree of these leaves, of which there is at least one; the first separator is empty.
    pub fn new(leaves: &SeparatedLeaves) -> Self {
        let branches = leaves.chunks(BRANCH_LEAVES_MAX / 2).map(|chunk| (chunk[0].0.clone(), branch_of(chunk)));
        let (mut separators, branches): (Vec<_>, Vec<_>) = branches.unzip();
        separators[0] = Box::default();
        let root = RootIndex { separators: Separators::new(separators), branches };
        Self { root: ArcSwap::from_pointee(root), structure: Mutex::default() }
    }

    /// The leaf that has a key. It may have been replaced when the caller has its latch.
    pub fn leaf(&self, key: &[u8]) -> Arc<Leaf> {
        let root = self.root.load();
        let branch = root.branches[root.separators.find(key)].load();
        branch.leaves[branch.separators.find(key)].clone()
    }

    /// The leaf that has a key, and the first key after those of that leaf; `None` after the last.
    pub fn leaf_until(&self, key: &[u8]) -> (Arc<Leaf>, Option<Box<[u8]>>) {
        let root = self.root.load();
        let at = root.separators.find(key);
        let branch = root.branches[at].load();
        let child = branch.separators.find(key);
        let within = branch.separators.keys().get(child + 1);
        let end = within.or_else(|| root.separators.keys().get(at + 1)).cloned();
        (branch.leaves[child].clone(), end)
    }

    /// All leaves with their separators, at a moment.
    pub fn leaves(&self) -> SeparatedLeaves {
        let root = self.root.load();
        let branches = root.branches.iter().map(|branch| branch.load_full());
        let leaves = branches.flat_map(|branch| {
            let separators = branch.separators.keys().to_vec();
            separators.into_iter().zip(branch.leaves.clone()).collect::<Vec<_>>()
        });
        leaves.collect()
    }

    /// Excludes other changes of the structure.
    pub fn structure(&self) -> MutexGuard<'_, ()> {
        self.structure.lock()
    }

    /// Puts the parts of a leaf in its place, the first with its separator. The caller holds the
    /// latch of the leaf.
    pub fn split(&self, _structure: &MutexGuard<'_, ()>, key: &[u8], parts: &[(Box<[u8]>, Arc<Leaf>)]) {
        let root = self.root.load();
        let at = root.separators.find(key);
        let branch = root.branches[at].load();
        let child = branch.separators.find(key);
        let mut separators: Vec<_> = parts.iter().map(|(separator, _)| separator.clone()).collect();
        separators[0].clone_from(&branch.separators.keys()[child]);
        let mut leaves = branch.leaves.clone();
        leaves.splice(child..=child, parts.iter().map(|(_, leaf)| leaf.clone()));
        let index = LeafIndex { separators: branch.separators.replaced(child, &separators), leaves };
        if index.leaves.len() <= BRANCH_LEAVES_MAX {
            root.branches[at].store(Arc::new(index));
            return;
        }
        let pairs: SeparatedLeaves = index.separators.keys().iter().cloned().zip(index.leaves).collect();
        let halves = pairs.chunks(pairs.len().div_ceil(2)).map(|half| (half[0].0.clone(), branch_of(half)));
        let (mut separators, parts): (Vec<_>, Vec<_>) = halves.unzip();
        separators[0].clone_from(&root.separators.keys()[at]);
        let mut branches = root.branches.clone();
        branches.splice(at..=at, parts);
        self.root.store(Arc::new(RootIndex { separators: root.separators.replaced(at, &separators), branches }));
    }
}

fn branch_of(leaves: &[(Box<[u8]>, Arc<Leaf>)]) -> Arc<ArcSwap<LeafIndex>> {
    let (separators, leaves) = leaves.iter().cloned().unzip();
    Arc::new(ArcSwap::from_pointee(LeafIndex { separators: Separators::new(separators), leaves }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf_page::LeafPage;
    use std::collections::BTreeMap;
    use test_support::Random;

    #[test]
    fn a_tree_finds_the_leaf_of_a_key_after_any_splits() {
        let mut random = Random::new(1);
        let first = Arc::new(Leaf::new(0, LeafPage::empty()));
        let tree = Tree::new(&vec![(Box::default(), first.clone())]);
        let mut leaves: BTreeMap<Box<[u8]>, Arc<Leaf>> = BTreeMap::from([(Box::default(), first)]);
        for _ in 0..2000 {
            let length = 1 + random.below(6_usize);
            let key: Box<[u8]> = random.bytes(length).into();
            let (separator, leaf) = leaves.range(..=key.clone()).next_back().unwrap();
            let (separator, leaf) = (separator.clone(), leaf.clone());
            assert!(Arc::ptr_eq(&tree.leaf(&key), &leaf));
            if separator == key {
                continue;
            }
            let parts = [separator.clone(), key.clone()].map(|from| (from, Arc::new(Leaf::new(0, LeafPage::empty()))));
            tree.split(&tree.structure(), &key, &parts);
            leaves.extend(parts);
        }
        let listed = tree.leaves();
        assert_eq!(listed.len(), leaves.len());
        assert!(listed.iter().zip(&leaves).all(|(a, b)| a.0 == *b.0 && Arc::ptr_eq(&a.1, b.1)));
        let again = Tree::new(&listed);
        for (key, leaf) in &leaves {
            assert!(Arc::ptr_eq(&again.leaf(key), leaf));
        }
    }
}
