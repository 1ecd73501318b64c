//! Sorted keys that divide a map among children: each child has the keys from its separator on, up
//! to the next one. The first child has all smaller keys too, so every key has a child.

/// Separators of children, by ascending keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Separators {
    /// Length of what all separators but the first begin with. Nobody looks at the first.
    prefix_length: usize,
    /// The eight bytes after that, of each. They decide nearly all comparisons.
    heads: Vec<u64>,
    keys: Vec<Box<[u8]>>,
}

impl Separators {
    /// Separators with these keys, which ascend.
    pub fn new(keys: Vec<Box<[u8]>>) -> Self {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "separators ascend");
        let prefix_length = match (keys.get(1), keys.last()) {
            (Some(first), Some(last)) => first.iter().zip(last).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let heads = keys.iter().map(|key| head(key.get(prefix_length..).unwrap_or_default())).collect();
        Self { prefix_length, heads, keys }
    }

    /// The child that has a key.
    pub fn find(&self, key: &[u8]) -> usize {
        let Some(second) = self.keys.get(1) else { return 0 };
        let prefix = &second[..self.prefix_length];
        let (start, rest) = key.split_at(key.len().min(prefix.len()));
        if start < prefix {
            return 0;
        }
        if start > prefix {
            return self.keys.len() - 1;
        }
        let wanted = head(rest);
        let from = 1 + self.heads[1..].partition_point(|head| *head < wanted);
        let among = self.heads[from..].partition_point(|head| *head == wanted);
        let smaller = self.keys[from..from + among].partition_point(|separator| **separator <= *key);
        from + smaller - 1
    }

    /// The keys.
    pub fn keys(&self) -> &[Box<[u8]>] {
        &self.keys
    }

    /// These separators, with that of a child replaced by those of its parts.
    #[must_use]
    pub fn replaced(&self, child: usize, parts: &[Box<[u8]>]) -> Self {
        let mut keys = self.keys.clone();
        keys.splice(child..=child, parts.iter().cloned());
        Self::new(keys)
    }
}

/// The first eight bytes, as a number that is ordered as they are. Missing ones are zero.
fn head(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = rest.len().min(8);
    bytes[..length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use test_support::Random;

    #[test]
    fn the_child_of_a_key_is_the_last_one_whose_separator_is_not_larger() {
        let mut random = Random::new(1);
        for _ in 0..500 {
            let shared = random.pick(&[&b""[..], b"x", b"user0000000"]);
            let mut some_key = || {
                let length = random.below(14_usize);
                let rest = (0..length).map(|_| random.pick(b"\0\x01a\xff"));
                [shared, &rest.collect::<Vec<u8>>()].concat()
            };
            let keys: BTreeSet<Vec<u8>> = (0..20).map(|_| some_key()).chain([Vec::new()]).collect();
            let separators = Separators::new(keys.iter().map(|key| key.clone().into()).collect());
            let others = [b"\0".to_vec(), b"user".to_vec(), b"\xff\xff".to_vec()];
            for key in (0..50).map(|_| some_key()).chain(keys.iter().cloned()).chain(others).collect::<Vec<_>>() {
                assert_eq!(separators.find(&key), keys.range(..=key.clone()).count() - 1, "{key:?} in {keys:?}");
            }
        }
    }

    #[test]
    fn a_child_is_replaced_by_its_parts() {
        let keys = |keys: &[&[u8]]| keys.iter().map(|key| Box::from(*key)).collect::<Vec<Box<[u8]>>>();
        let separators = Separators::new(keys(&[b"", b"d", b"m"]));
        assert_eq!(separators.replaced(1, &keys(&[b"d", b"f"])).keys(), keys(&[b"", b"d", b"f", b"m"]));
        assert_eq!(separators.replaced(0, &keys(&[b"", b"a"])).keys(), keys(&[b"", b"a", b"d", b"m"]));
    }
}
