//! `--export`: which members are meant.

use base::Problem;
use flow::DataId;
use run::Checked;
use std::collections::BTreeSet;

/// The members that the patterns select: a pattern is an element's name, a member's (`Model[0][3]`), or `/REGEXP/` over
/// either. A pattern that selects nothing is refused.
pub fn select(flow: &Checked, patterns: &[String]) -> Result<BTreeSet<DataId>, Vec<Problem>> {
    let (mut selected, mut problems) = (BTreeSet::new(), Vec::new());
    for pattern in patterns {
        match members(flow, pattern) {
            Ok(members) => selected.extend(members),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(selected) } else { Err(problems) }
}

fn members(flow: &Checked, pattern: &str) -> Result<Vec<DataId>, Problem> {
    let workflow = flow.workflow();
    let matches = matcher(pattern)?;
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

fn matcher(pattern: &str) -> Result<Box<dyn Fn(&str) -> bool>, Problem> {
    let inner = pattern.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    let Some(inner) = inner else {
        let name = pattern.to_owned();
        return Ok(Box::new(move |text| text == name));
    };
    let regex = regex::Regex::new(inner).map_err(|error| Problem::new(format!("--export {pattern}: {error}")))?;
    Ok(Box::new(move |text| regex.is_match(text)))
}
