//! The buddy allocator of pages: power-of-two blocks, split to be allocated and merged again when
//! both halves are free.
//!
//! A block of order `k` has `2^k` pages and starts at a multiple of its size; the other half of the
//! block one order up is its buddy. Free blocks are in one list per order and state. The lists are
//! linked through arrays beside the pages (9 bytes a page, untouched until the page is used), so a
//! block leaves its list in constant time.
//!
//! **Warm** memory was touched and is cheap to use. **Cold** memory was never touched, or was given
//! back to the system. A block is cold only if all of it is; a merge of both kinds counts as warm.

/// A page index in the arena.
pub type PageNo = u32;

/// End-of-list marker; also the index behind the last possible page.
const NONE: PageNo = PageNo::MAX;
/// In `heads`: no free block starts at this page.
const NOT_FREE: u8 = 0;
/// In `heads`: added to the order (counted from 1) of a cold free block.
const COLD: u8 = 0x80;

/// Maximum number of blocks to step back to the first of a contiguous row: the longest row that is
/// requested at once.
const ROW_BLOCKS_MAX: usize = 256;

/// A block: its first page and its order (log2 of its pages).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRange {
    pub first: PageNo,
    pub order: u8,
}

impl BlockRange {
    pub fn pages(self) -> u64 {
        1 << self.order
    }

    fn buddy(self) -> Self {
        Self { first: self.first ^ (1 << self.order), order: self.order }
    }

    fn split(self) -> (Self, Self) {
        let lower = Self { first: self.first, order: self.order - 1 };
        (lower, lower.buddy())
    }

    fn parent(self) -> Self {
        Self { first: self.first & !(1 << self.order), order: self.order + 1 }
    }
}

/// Allocated contiguous pages: the beginning of a block whose other pages are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    pub first: PageNo,
    pub pages: u32,
}

impl From<BlockRange> for PageRun {
    fn from(range: BlockRange) -> Self {
        Self { first: range.first, pages: 1 << range.order }
    }
}

impl PageRun {
    /// Splits its pages from `from` up to `end` into blocks, each as large as possible.
    fn pieces(self, mut from: u32, end: u32) -> impl Iterator<Item = BlockRange> {
        std::iter::from_fn(move || {
            let left = end.checked_sub(from).filter(|left| *left > 0)?;
            let order = from.trailing_zeros().min(left.ilog2());
            let piece = BlockRange { first: self.first + from, order: u8::try_from(order).expect("below 32") };
            from += 1 << order;
            Some(piece)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageState {
    Warm,
    Cold,
}

/// The free pages of an arena.
pub struct Buddy {
    /// The order of the largest block; the number of pages is a multiple of its size.
    top: u8,
    pages: PageNo,
    /// First page that was never allocated. It and all behind it are free, cold and in no list.
    fresh: PageNo,
    /// First block of each list, by order.
    warm: Vec<PageNo>,
    cold: Vec<PageNo>,
    /// Per page that starts a free block: order and state, then its neighbours in the list.
    heads: Vec<u8>,
    after: Vec<PageNo>,
    before: Vec<PageNo>,
    /// Number of pages in the warm lists.
    warm_pages: u64,
}

impl Buddy {
    /// Creates `tops` blocks of order `top`, all free and cold. They must have fewer than 2^32
    /// pages.
    pub fn new(tops: u32, top: u8) -> Self {
        let pages = tops.checked_mul(1 << top).filter(|pages| *pages < NONE).expect("the arena's pages fit 32 bits");
        let lists = vec![NONE; usize::from(top) + 1];
        // Zeroed arrays of this size come untouched from the system and stay so until their pages
        // are used.
        let links = || vec![0; pages as usize];
        let (warm, cold, heads) = (lists.clone(), lists, vec![NOT_FREE; pages as usize]);
        Self { top, pages, fresh: 0, warm, cold, heads, after: links(), before: links(), warm_pages: 0 }
    }

    /// Number of warm free pages.
    pub fn warm_pages(&self) -> u64 {
        self.warm_pages
    }

    /// Allocates a block of `order`, warm if possible; `None` if no free block is large enough.
    pub fn allocate(&mut self, order: u8) -> Option<BlockRange> {
        let (mut range, state) = self.pop_smallest(order)?;
        while range.order > order {
            let (lower, upper) = range.split();
            self.push(upper, state);
            range = lower;
        }
        Some(range)
    }

    /// Allocates a block of `order` so that successive blocks are contiguous: the warm block at
    /// `next`, or else the first of a contiguous row of warm blocks.
    pub fn allocate_in_row(&mut self, order: u8, next: PageNo) -> Option<BlockRange> {
        let size = 1 << order;
        let is_warm = |first: PageNo| self.heads.get(first as usize) == Some(&(order + 1));
        let mut first = if is_warm(next) { next } else { self.warm[usize::from(order)] };
        if first == NONE {
            return self.allocate(order);
        }
        if first != next {
            for _ in 0..ROW_BLOCKS_MAX {
                match first.checked_sub(size).filter(|before| is_warm(*before)) {
                    Some(before) => first = before,
                    None => break,
                }
            }
        }
        let range = BlockRange { first, order };
        self.unlink(range);
        Some(range)
    }

    /// Returns true if [`Buddy::allocate`] would return a warm block.
    pub fn has_warm(&self, order: u8) -> bool {
        self.warm[usize::from(order)..].iter().any(|first| *first != NONE)
    }

    /// Frees allocated pages, which are then warm, and merges them with free buddies.
    pub fn free(&mut self, run: PageRun) {
        run.pieces(0, run.pages).for_each(|piece| self.free_block(piece));
    }

    fn free_block(&mut self, mut range: BlockRange) {
        debug_assert_eq!(self.heads[range.first as usize], NOT_FREE, "{range:?} is free already");
        while range.order < self.top && self.is_free(range.buddy()) {
            self.unlink(range.buddy());
            range = range.parent();
        }
        self.push(range, PageState::Warm);
    }

    /// Enlarges allocated pages in place to a block of `order`. Returns false if a page behind them
    /// is in use.
    pub fn grow(&mut self, run: PageRun, order: u8) -> bool {
        let pages = 1 << order;
        if !run.first.is_multiple_of(pages) || !run.pieces(run.pages, pages).all(|piece| self.is_free(piece)) {
            return false;
        }
        run.pieces(run.pages, pages).for_each(|piece| self.unlink(piece));
        true
    }

    /// Cuts allocated pages to the first `pages`; the rest becomes free and warm.
    pub fn shrink(&mut self, run: PageRun, pages: u32) {
        run.pieces(pages, run.pages).for_each(|piece| self.free_block(piece));
    }

    /// Marks the largest warm free block as cold and returns it, so that its memory can be given
    /// back; `None` if all free blocks are cold.
    pub fn cool(&mut self) -> Option<BlockRange> {
        let order = (0..=self.top).rev().find(|order| self.warm[usize::from(*order)] != NONE)?;
        let range = BlockRange { first: self.warm[usize::from(order)], order };
        self.unlink(range);
        self.push(range, PageState::Cold);
        Some(range)
    }

    /// Takes the smallest sufficient block out of the lists: warm, else cold, else never used.
    fn pop_smallest(&mut self, order: u8) -> Option<(BlockRange, PageState)> {
        for state in [PageState::Warm, PageState::Cold] {
            if let Some(range) = self.smallest(order, state) {
                self.unlink(range);
                return Some((range, state));
            }
        }
        let first = self.fresh;
        if first == self.pages {
            return None;
        }
        self.fresh += 1 << self.top;
        Some((BlockRange { first, order: self.top }, PageState::Cold))
    }

    fn smallest(&mut self, order: u8, state: PageState) -> Option<BlockRange> {
        let orders = order..=self.top;
        let lists = self.lists(state);
        let first_of = |order: u8| BlockRange { first: lists[usize::from(order)], order };
        orders.map(first_of).find(|range| range.first != NONE)
    }

    fn lists(&mut self, state: PageState) -> &mut Vec<PageNo> {
        match state {
            PageState::Warm => &mut self.warm,
            PageState::Cold => &mut self.cold,
        }
    }

    fn is_free(&self, range: BlockRange) -> bool {
        self.heads[range.first as usize] & !COLD == range.order + 1
    }

    /// Puts a block at the front of its list: the most recently freed block, which the CPU caches
    /// hold, is used first.
    fn push(&mut self, range: BlockRange, state: PageState) {
        let first = range.first as usize;
        let list = &mut self.lists(state)[usize::from(range.order)];
        let next = std::mem::replace(list, range.first);
        (self.before[first], self.after[first]) = (NONE, next);
        if next != NONE {
            self.before[next as usize] = range.first;
        }
        self.heads[first] = range.order + 1 + if state == PageState::Cold { COLD } else { 0 };
        if state == PageState::Warm {
            self.warm_pages += range.pages();
        }
    }

    /// Removes a free block from its list, at any position.
    fn unlink(&mut self, range: BlockRange) {
        let first = range.first as usize;
        let state = if self.heads[first] & COLD == 0 { PageState::Warm } else { PageState::Cold };
        let (before, after) = (self.before[first], self.after[first]);
        match before {
            NONE => self.lists(state)[usize::from(range.order)] = after,
            before => self.after[before as usize] = after,
        }
        if after != NONE {
            self.before[after as usize] = before;
        }
        self.heads[first] = NOT_FREE;
        if state == PageState::Warm {
            self.warm_pages -= range.pages();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Four blocks of 8 pages.
    fn small() -> Buddy {
        Buddy::new(4, 3)
    }

    #[test]
    fn all_pages_are_given_out_once() {
        let mut buddy = small();
        let mut firsts: Vec<_> = std::iter::from_fn(|| buddy.allocate(0)).map(|range| range.first).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, (0..32).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_given_back_joins_to_whole_blocks() {
        let mut buddy = small();
        let ranges: Vec<_> = std::iter::from_fn(|| buddy.allocate(0)).collect();
        assert_eq!(buddy.allocate(3), None);
        ranges.into_iter().rev().for_each(|range| buddy.free(range.into()));
        assert_eq!((0..4).filter_map(|_| buddy.allocate(3)).count(), 4);
    }

    #[test]
    fn the_most_recently_freed_block_is_given_out_first_and_fresh_memory_last() {
        let mut buddy = small();
        let ranges = [(); 3].map(|()| buddy.allocate(3).unwrap());
        buddy.free(ranges[2].into());
        buddy.free(ranges[0].into());
        assert_eq!(buddy.allocate(3), Some(ranges[0]));
        assert_eq!(buddy.allocate(1).map(|range| range.first), Some(ranges[2].first));
    }

    #[test]
    fn blocks_are_taken_in_rows_whatever_order_they_were_given_back_in() {
        let mut buddy = small();
        let firsts = |buddy: &mut Buddy| {
            let mut next = 0;
            let mut take = || {
                let range = buddy.allocate_in_row(3, next)?;
                next = range.first + 8;
                Some(range.first)
            };
            [(); 4].map(|()| take().unwrap())
        };
        assert_eq!(firsts(&mut buddy), [0, 8, 16, 24]);
        for first in [16, 0, 24, 8] {
            buddy.free(BlockRange { first, order: 3 }.into());
        }
        assert_eq!(firsts(&mut buddy), [0, 8, 16, 24]);
        assert_eq!(buddy.allocate_in_row(3, 0), None);
        for first in [24, 16] {
            buddy.free(BlockRange { first, order: 3 }.into());
        }
        assert_eq!(buddy.allocate_in_row(3, 8).map(|range| range.first), Some(16), "a row begins at its first");
    }

    #[test]
    fn a_block_grows_only_over_free_pages_behind_it() {
        let mut buddy = small();
        let (lower, upper) = (buddy.allocate(1).unwrap(), buddy.allocate(1).unwrap());
        assert!(!buddy.grow(lower.into(), 3), "the upper half is taken");
        assert!(!buddy.grow(upper.into(), 2), "it would have to start earlier");
        buddy.free(upper.into());
        assert!(buddy.grow(lower.into(), 3));
        assert_ne!(buddy.allocate(0).unwrap().first, lower.first + 2, "grown over");
    }

    #[test]
    fn a_cooled_block_is_used_after_all_warm_ones() {
        let mut buddy = small();
        let ranges = [(); 4].map(|()| buddy.allocate(3).unwrap());
        for range in ranges {
            buddy.free(range.into());
        }
        let cooled = buddy.cool().unwrap();
        assert_eq!(buddy.warm_pages(), 24);
        let order: Vec<_> = std::iter::from_fn(|| buddy.allocate(3)).collect();
        assert_eq!((order.len(), order.last()), (4, Some(&cooled)));
        assert_eq!(buddy.cool(), None);
    }

    #[derive(Clone, Debug)]
    enum Transition {
        Allocate(u8),
        Free(usize),
        Grow(usize, u8),
        Shrink(usize, u32),
        Cool,
    }

    fn transitions() -> impl Strategy<Value = Vec<Transition>> {
        let one = prop_oneof![
            3 => (0_u8..4).prop_map(Transition::Allocate),
            3 => (0_usize..8).prop_map(Transition::Free),
            1 => (0_usize..8, 0_u8..4).prop_map(|(index, order)| Transition::Grow(index, order)),
            1 => (0_usize..8, 1_u32..8).prop_map(|(index, pages)| Transition::Shrink(index, pages)),
            1 => Just(Transition::Cool),
        ];
        proptest::collection::vec(one, 0..200)
    }

    proptest! {
        #[test]
        fn no_page_is_ever_given_out_twice_and_none_is_lost(transitions in transitions()) {
            let (mut buddy, mut held) = (small(), Vec::<PageRun>::new());
            for one in transitions {
                apply(&mut buddy, &mut held, &one);
                let mut owned = [false; 32];
                for page in held.iter().flat_map(|run| run.first..run.first + run.pages) {
                    prop_assert!(!std::mem::replace(&mut owned[page as usize], true), "page {} twice after {:?}", page, one);
                }
            }
            for run in held {
                buddy.free(run);
            }
            prop_assert_eq!((0..5).filter_map(|_| buddy.allocate(3)).count(), 4);
        }
    }

    fn apply(buddy: &mut Buddy, held: &mut Vec<PageRun>, one: &Transition) {
        match *one {
            Transition::Allocate(order) => held.extend(buddy.allocate(order).map(PageRun::from)),
            Transition::Free(index) if index < held.len() => buddy.free(held.swap_remove(index)),
            Transition::Grow(index, order)
                if index < held.len() && 1 << order > held[index].pages && buddy.grow(held[index], order) =>
            {
                held[index].pages = 1 << order;
            }
            Transition::Shrink(index, pages) if index < held.len() && pages < held[index].pages => {
                buddy.shrink(held[index], pages);
                held[index].pages = pages;
            }
            Transition::Cool => drop(buddy.cool()),
            _ => {}
        }
    }
}
