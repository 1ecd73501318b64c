//! The nearest known name to a mistyped one.

/// The most names that a hint lists.
const LISTED_MAX: usize = 8;

/// Returns the name of `known` that `typed` was most likely meant to be, if any is near enough.
///
/// Near means a Jaro-Winkler similarity of at least 0.8, ignoring case.
pub fn find<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&lower, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Returns a hint for a mistyped name: the nearest known name, or all known names if there are few.
pub fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(name) = find(typed, known.iter().copied()) {
        return Some(format!("did you mean `{name}`?"));
    }
    (!known.is_empty() && known.len() <= LISTED_MAX).then(|| format!("known: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_its_neighbour() {
        assert_eq!(find("Shufler", ["Partitioner", "Shuffler"]), Some("Shuffler"));
        assert_eq!(find("svm", ["C45", "SVM"]), Some("SVM"));
    }

    #[test]
    fn a_far_name_finds_none_and_lists_what_is_known() {
        assert_eq!(find("qqq", ["Partitioner"]), None);
        assert_eq!(hint("qqq", ["a", "b"]).as_deref(), Some("known: a, b"));
    }
}
