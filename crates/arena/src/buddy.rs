//! The buddy allocator of pages: power-of-two blocks, split to be allocated and merged again when
//! both halves are free.
//!
//! A block of order `k` has `2^k` pages and starts at a multiple of its size; the other half of the
//! block one order up is its buddy. Free blocks are in one list per order and warmth. The lists are
//! linked through arrays beside the pages (9 bytes a page, untouched until the page is used), so a
//! block leaves its list in constant time.
//!
//! **Warm** memory was touched and is cheap to use. **Cold** memory was never touched, or was given
//! back to the system. A block is cold only if all of it is; a merge of both kinds counts as warm.

/// A page index in the arena.
pub type Page = u32;

/// End-of-list marker; also the index behind the last possible page.
const NONE: Page = Page::MAX;
/// In `heads`: no free block starts at this page.
const NOT_FREE: u8 = 0;
/// In `heads`: added to the order (counted from 1) of a cold free block.
const COLD: u8 = 0x80;

/// Maximum number of blocks to step back to the first of a contiguous row: the longest row that is
/// requested at once.
const ROW_MAX: usize = 256;

/// A block: its first page and its order (log2 of its pages).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub first: Page,
    pub order: u8,
}

impl Span {
    pub fn pages(self) -> u64 {
        1 << self.order
    }

    fn buddy(self) -> Self {
        Self { first: self.first ^ (1 << self.order), order: self.order }
    }

    fn halves(self) -> (Self, Self) {
        let lower = Self { first: self.first, order: self.order - 1 };
        (lower, lower.buddy())
    }

    fn joined(self) -> Self {
        Self { first: self.first & !(1 << self.order), order: self.order + 1 }
    }
}

/// Allocated contiguous pages: the beginning of a block whose other pages are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    pub first: Page,
    pub pages: u32,
}

impl From<Span> for PageRun {
    fn from(span: Span) -> Self {
        Self { first: span.first, pages: 1 << span.order }
    }
}

impl PageRun {
    /// Splits its pages from `from` up to `end` into blocks, each as large as possible.
    fn pieces(self, mut from: u32, end: u32) -> impl Iterator<Item = Span> {
        std::iter::from_fn(move || {
            let left = end.checked_sub(from).filter(|left| *left > 0)?;
            let order = from.trailing_zeros().min(left.ilog2());
            let piece = Span { first: self.first + from, order: u8::try_from(order).expect("below 32") };
            from += 1 << order;
            Some(piece)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Warmth {
    Warm,
    Cold,
}

/// The free pages of an arena.
pub struct Buddy {
    /// The order of the largest block; the number of pages is a multiple of its size.
    top: u8,
    pages: Page,
    /// First page that was never allocated. It and all behind it are free, cold and in no list.
    fresh: Page,
    /// First block of each list, by order.
    warm: Vec<Page>,
    cold: Vec<Page>,
    /// Per page that starts a free block: order and warmth, then its neighbours in the list.
    heads: Vec<u8>,
    after: Vec<Page>,
    before: Vec<Page>,
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
    pub fn take(&mut self, order: u8) -> Option<Span> {
        let (mut span, warmth) = self.pop_smallest(order)?;
        while span.order > order {
            let (lower, upper) = span.halves();
            self.push(upper, warmth);
            span = lower;
        }
        Some(span)
    }

    /// Allocates a block of `order` so that successive blocks are contiguous: the warm block at
    /// `next`, or else the first of a contiguous row of warm blocks.
    pub fn take_in_row(&mut self, order: u8, next: Page) -> Option<Span> {
        let size = 1 << order;
        let is_warm = |first: Page| self.heads.get(first as usize) == Some(&(order + 1));
        let mut first = if is_warm(next) { next } else { self.warm[usize::from(order)] };
        if first == NONE {
            return self.take(order);
        }
        if first != next {
            for _ in 0..ROW_MAX {
                match first.checked_sub(size).filter(|before| is_warm(*before)) {
                    Some(before) => first = before,
                    None => break,
                }
            }
        }
        let span = Span { first, order };
        self.unlink(span);
        Some(span)
    }

    /// Returns true if [`Buddy::take`] would return a warm block.
    pub fn has_warm(&self, order: u8) -> bool {
        self.warm[usize::from(order)..].iter().any(|first| *first != NONE)
    }

    /// Frees allocated pages, which are then warm, and merges them with free buddies.
    pub fn give(&mut self, run: PageRun) {
        run.pieces(0, run.pages).for_each(|piece| self.give_block(piece));
    }

    fn give_block(&mut self, mut span: Span) {
        debug_assert_eq!(self.heads[span.first as usize], NOT_FREE, "{span:?} is free already");
        while span.order < self.top && self.is_free(span.buddy()) {
            self.unlink(span.buddy());
            span = span.joined();
        }
        self.push(span, Warmth::Warm);
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
        run.pieces(pages, run.pages).for_each(|piece| self.give_block(piece));
    }

    /// Marks the largest warm free block as cold and returns it, so that its memory can be given
    /// back; `None` if all free blocks are cold.
    pub fn cool(&mut self) -> Option<Span> {
        let order = (0..=self.top).rev().find(|order| self.warm[usize::from(*order)] != NONE)?;
        let span = Span { first: self.warm[usize::from(order)], order };
        self.unlink(span);
        self.push(span, Warmth::Cold);
        Some(span)
    }

    /// Takes the smallest sufficient block out of the lists: warm, else cold, else never used.
    fn pop_smallest(&mut self, order: u8) -> Option<(Span, Warmth)> {
        for warmth in [Warmth::Warm, Warmth::Cold] {
            if let Some(span) = self.smallest(order, warmth) {
                self.unlink(span);
                return Some((span, warmth));
            }
        }
        let first = self.fresh;
        if first == self.pages {
            return None;
        }
        self.fresh += 1 << self.top;
        Some((Span { first, order: self.top }, Warmth::Cold))
    }

    fn smallest(&mut self, order: u8, warmth: Warmth) -> Option<Span> {
        let orders = order..=self.top;
        let lists = self.lists(warmth);
        let first_of = |order: u8| Span { first: lists[usize::from(order)], order };
        orders.map(first_of).find(|span| span.first != NONE)
    }

    fn lists(&mut self, warmth: Warmth) -> &mut Vec<Page> {
        match warmth {
            Warmth::Warm => &mut self.warm,
            Warmth::Cold => &mut self.cold,
        }
    }

    fn is_free(&self, span: Span) -> bool {
        self.heads[span.first as usize] & !COLD == span.order + 1
    }

    /// Puts a block at the front of its list: the most recently freed block, which the CPU caches
    /// hold, is used first.
    fn push(&mut self, span: Span, warmth: Warmth) {
        let first = span.first as usize;
        let list = &mut self.lists(warmth)[usize::from(span.order)];
        let next = std::mem::replace(list, span.first);
        (self.before[first], self.after[first]) = (NONE, next);
        if next != NONE {
            self.before[next as usize] = span.first;
        }
        self.heads[first] = span.order + 1 + if warmth == Warmth::Cold { COLD } else { 0 };
        if warmth == Warmth::Warm {
            self.warm_pages += span.pages();
        }
    }

    /// Removes a free block from its list, at any position.
    fn unlink(&mut self, span: Span) {
        let first = span.first as usize;
        let warmth = if self.heads[first] & COLD == 0 { Warmth::Warm } else { Warmth::Cold };
        let (before, after) = (self.before[first], self.after[first]);
        match before {
            NONE => self.lists(warmth)[usize::from(span.order)] = after,
            before => self.after[before as usize] = after,
        }
        if after != NONE {
            self.before[after as usize] = before;
        }
        self.heads[first] = NOT_FREE;
        if warmth == Warmth::Warm {
            self.warm_pages -= span.pages();
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
        let mut firsts: Vec<_> = std::iter::from_fn(|| buddy.take(0)).map(|span| span.first).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, (0..32).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_given_back_joins_to_whole_blocks() {
        let mut buddy = small();
        let spans: Vec<_> = std::iter::from_fn(|| buddy.take(0)).collect();
        assert_eq!(buddy.take(3), None);
        spans.into_iter().rev().for_each(|span| buddy.give(span.into()));
        assert_eq!((0..4).filter_map(|_| buddy.take(3)).count(), 4);
    }

    #[test]
    fn the_most_recently_freed_block_is_given_out_first_and_fresh_memory_last() {
        let mut buddy = small();
        let spans = [(); 3].map(|()| buddy.take(3).unwrap());
        buddy.give(spans[2].into());
        buddy.give(spans[0].into());
        assert_eq!(buddy.take(3), Some(spans[0]));
        assert_eq!(buddy.take(1).map(|span| span.first), Some(spans[2].first));
    }

    #[test]
    fn blocks_are_taken_in_rows_whatever_order_they_were_given_back_in() {
        let mut buddy = small();
        let firsts = |buddy: &mut Buddy| {
            let mut next = 0;
            let mut take = || {
                let span = buddy.take_in_row(3, next)?;
                next = span.first + 8;
                Some(span.first)
            };
            [(); 4].map(|()| take().unwrap())
        };
        assert_eq!(firsts(&mut buddy), [0, 8, 16, 24]);
        for first in [16, 0, 24, 8] {
            buddy.give(Span { first, order: 3 }.into());
        }
        assert_eq!(firsts(&mut buddy), [0, 8, 16, 24]);
        assert_eq!(buddy.take_in_row(3, 0), None);
        for first in [24, 16] {
            buddy.give(Span { first, order: 3 }.into());
        }
        assert_eq!(buddy.take_in_row(3, 8).map(|span| span.first), Some(16), "a row begins at its first");
    }

    #[test]
    fn a_block_grows_only_over_free_pages_behind_it() {
        let mut buddy = small();
        let (lower, upper) = (buddy.take(1).unwrap(), buddy.take(1).unwrap());
        assert!(!buddy.grow(lower.into(), 3), "the upper half is taken");
        assert!(!buddy.grow(upper.into(), 2), "it would have to start earlier");
        buddy.give(upper.into());
        assert!(buddy.grow(lower.into(), 3));
        assert_ne!(buddy.take(0).unwrap().first, lower.first + 2, "grown over");
    }

    #[test]
    fn a_cooled_block_is_used_after_all_warm_ones() {
        let mut buddy = small();
        let spans = [(); 4].map(|()| buddy.take(3).unwrap());
        for span in spans {
            buddy.give(span.into());
        }
        let cooled = buddy.cool().unwrap();
        assert_eq!(buddy.warm_pages(), 24);
        let order: Vec<_> = std::iter::from_fn(|| buddy.take(3)).collect();
        assert_eq!((order.len(), order.last()), (4, Some(&cooled)));
        assert_eq!(buddy.cool(), None);
    }

    #[derive(Clone, Debug)]
    enum Move {
        Take(u8),
        Give(usize),
        Grow(usize, u8),
        Shrink(usize, u32),
        Cool,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            3 => (0_u8..4).prop_map(Move::Take),
            3 => (0_usize..8).prop_map(Move::Give),
            1 => (0_usize..8, 0_u8..4).prop_map(|(index, order)| Move::Grow(index, order)),
            1 => (0_usize..8, 1_u32..8).prop_map(|(index, pages)| Move::Shrink(index, pages)),
            1 => Just(Move::Cool),
        ];
        proptest::collection::vec(one, 0..200)
    }

    proptest! {
        #[test]
        fn no_page_is_ever_given_out_twice_and_none_is_lost(moves in moves()) {
            let (mut buddy, mut held) = (small(), Vec::<PageRun>::new());
            for one in moves {
                apply(&mut buddy, &mut held, &one);
                let mut owned = [false; 32];
                for page in held.iter().flat_map(|run| run.first..run.first + run.pages) {
                    prop_assert!(!std::mem::replace(&mut owned[page as usize], true), "page {} twice after {:?}", page, one);
                }
            }
            for run in held {
                buddy.give(run);
            }
            prop_assert_eq!((0..5).filter_map(|_| buddy.take(3)).count(), 4);
        }
    }

    fn apply(buddy: &mut Buddy, held: &mut Vec<PageRun>, one: &Move) {
        match *one {
            Move::Take(order) => held.extend(buddy.take(order).map(PageRun::from)),
            Move::Give(index) if index < held.len() => buddy.give(held.swap_remove(index)),
            Move::Grow(index, order)
                if index < held.len() && 1 << order > held[index].pages && buddy.grow(held[index], order) =>
            {
                held[index].pages = 1 << order;
            }
            Move::Shrink(index, pages) if index < held.len() && pages < held[index].pages => {
                buddy.shrink(held[index], pages);
                held[index].pages = pages;
            }
            Move::Cool => drop(buddy.cool()),
            _ => {}
        }
    }
}
