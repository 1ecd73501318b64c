//! Selects members for `--export`.

use base::Problem;
use flow::DataId;
use run::CheckedWorkflow;
use std::collections::BTreeSet;

/// The members that the patterns select. A pattern is the name of an element or of a member
/// (`Model[0][3]`), or `/REGEXP/` over both. A pattern that selects nothing is refused.
pub fn select(flow: &CheckedWorkflow, patterns: &[String]) -> Result<BTreeSet<DataId>, Vec<Problem>> {
    let (mut selected, mut problems) = (BTreeSet::new(), Vec::new());
    for pattern in patterns {
        match members(flow, pattern) {
            Ok(members) => selected.extend(members),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(selected) } else { Err(problems) }
}

fn members(flow: &CheckedWorkflow, pattern: &str) -> Result<Vec<DataId>, Problem> {
    let workflow = flow.workflow();
    let matcher = Matcher::new(pattern)?;
    let matches = |text: &str| matcher.matches(text);
    let mut found = Vec::new();
    for element in &workflow.elements {
        let ids = (element.first.0..element.first.0 + element.count).map(DataId);
        if matches(&element.name) {
            found.extend(ids);
        } else {
            found.extend(ids.filter(|id| matches(&workflow.data_name(*id))));
        }
    }
    let written: Vec<DataId> = found.iter().copied().filter(|id| flow.writer_of(*id).is_some()).collect();
    match (written.is_empty(), found.is_empty()) {
        (false, _) => Ok(written),
        (true, false) => {
            Err(Problem::new(format!("--export {pattern}: only inputs match, and they are files already")))
        }
        (true, true) => Err(Problem::new(format!("--export {pattern}: no data element matches"))
            .nearest(pattern, workflow.elements.iter().map(|element| element.name.as_str()))),
    }
}

/// A parsed pattern.
enum Matcher<'a> {
    Name(&'a str),
    Regex(regex::Regex),
}

impl<'a> Matcher<'a> {
    fn new(pattern: &'a str) -> Result<Self, Problem> {
        match pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            None => Ok(Self::Name(pattern)),
            Some(inner) => regex::Regex::new(inner)
                .map(Self::Regex)
                .map_err(|error| Problem::new(format!("--export {pattern}: {error}"))),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Name(name) => text == *name,
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input `in`, a temporary array `B[2]`, an output `C`.
    const FLOW: &str = r#"{"tidemill_flow": 1, "name": "f",
        "tools": [{"name": "cp", "command": ["cp", "{from}", "{to}"], "params": [
            {"name": "from", "kind": {"input": {}}}, {"name": "to", "kind": {"output": {}}}]}],
        "elements": [{"name": "in", "input": "in.txt"}, {"name": "B", "shape": [2]}, {"name": "C"}],
        "tasks": [{"tool": "cp", "files": {"from": "in", "to": "B[0]"}},
            {"tool": "cp", "files": {"from": "B[0]", "to": "B[1]"}},
            {"tool": "cp", "files": {"from": "B[1]", "to": "C"}}]}"#;

    fn selected(pattern: &str) -> Result<Vec<String>, String> {
        let flow = CheckedWorkflow::new(flow::from_json(FLOW, "f.json").expect("is read"), None).expect("is whole");
        let found = select(&flow, &[pattern.to_owned()]).map_err(|problems| problems[0].to_string())?;
        Ok(found.into_iter().map(|id| flow.workflow().data_name(id)).collect())
    }

    #[test]
    fn a_name_means_an_element_or_a_member_and_a_regexp_either() {
        assert_eq!(selected("B").unwrap(), ["B[0]", "B[1]"]);
        assert_eq!(selected("B[1]").unwrap(), ["B[1]"]);
        assert_eq!(selected("/0/").unwrap(), ["B[0]"]);
        assert_eq!(selected("/./").unwrap(), ["B[0]", "B[1]", "C"], "inputs are files already");
    }

    #[test]
    fn what_selects_nothing_is_refused_and_says_why() {
        for (pattern, said) in
            [("D", "no data element"), ("in", "only inputs"), ("/(/", "unclosed"), ("", "no data element")]
        {
            let why = selected(pattern).unwrap_err();
            assert!(why.contains(said), "{pattern}: {why}");
        }
    }
}
