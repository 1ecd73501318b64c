//! Natural order: `part2` before `part10`.

use std::cmp::Ordering;

/// Compares two names, with runs of digits compared as numbers. Names that are equal in that order
/// are compared by their bytes.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (mut rest_a, mut rest_b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (rest_a.first(), rest_b.first()) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (run_a, run_b) = (digits(rest_a), digits(rest_b));
                match compare_digits(run_a, run_b) {
                    Ordering::Equal => (rest_a, rest_b) = (&rest_a[run_a.len()..], &rest_b[run_b.len()..]),
                    unequal => return unequal,
                }
            }
            (Some(x), Some(y)) if x == y => (rest_a, rest_b) = (&rest_a[1..], &rest_b[1..]),
            (None, None) => return a.cmp(b),
            (x, y) => return x.cmp(&y),
        }
    }
}

fn digits(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()]
}

/// Compares digit runs of any length by value.
fn compare_digits(a: &[u8], b: &[u8]) -> Ordering {
    let significant = |run: &[u8]| run.iter().position(|digit| *digit != b'0').unwrap_or(run.len());
    let (a, b) = (&a[significant(a)..], &b[significant(b)..]);
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["p10", "p9", "p1", "p01", "q", "p"];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(names, ["p", "p01", "p1", "p9", "p10", "q"]);
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in "[a0-2]{0,6}", b in "[a0-2]{0,6}", c in "[a0-2]{0,6}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &b) == Ordering::Equal, a == b);
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }
    }
}
