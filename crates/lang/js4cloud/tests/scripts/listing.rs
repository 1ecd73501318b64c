//! Listing 4.1 of the paper, as it is printed.

use super::{calls, inputs, run, run_with};
use flow::ConfigValue;
use js4cloud::Inputs;
use std::path::{Path, PathBuf};

const LISTING: &str = include_str!("../../../../../examples/classification/workflow.js");

#[test]
fn the_listing_is_the_printed_text() {
    let Some(paper) = paper() else {
        eprintln!("skipped: the directory with the papers is not beside the repository");
        return;
    };
    let text = std::fs::read_to_string(paper).expect("the paper is readable");
    let listing = text.lines().skip_while(|line| !line.contains("Listing 4.1: Classification"));
    let numbered = |line: &str| {
        let (number, code) = line.split_once(": ")?;
        number.parse::<u32>().is_ok().then(|| format!("{code}\n"))
    };
    let printed: String = listing.take(26).filter_map(numbered).collect();
    assert_eq!(LISTING, printed);
}

fn paper() -> Option<PathBuf> {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/papers");
    let mut entries = std::fs::read_dir(papers).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("001")))
}

#[test]
fn the_listing_makes_3_and_kn_and_2m_tasks() {
    let workflow = run(LISTING).expect("the listing runs");
    assert_eq!(workflow.tasks.len(), 3 + 3 * 20 + 2 * 80);
    assert_eq!(workflow.name, "w");
    let calls = calls(&workflow);
    assert_eq!(calls[0], "Shuffler(dataset=Train,sDataset=STrain)");
    assert_eq!(calls[2], "C45(dataset=TrainPart[0],model=Model[0][0])");
    assert_eq!(calls[61], "NaiveBayes(dataset=TrainPart[19],model=Model[2][19])");
    assert!(calls[62].starts_with("ModelSelector(dataset=Test,models=[Model[0][0] Model[0][1] "));
    assert_eq!(calls[222], "Predictor(dataset=FUnlab[79],model=BestModel,classDataset=ClassDataset[79])");
    let lines: Vec<u32> = [0, 1, 2, 3, 62, 63, 222].iter().map(|task| workflow.tasks[*task].line).collect();
    assert_eq!(lines, [3, 6, 9, 10, 15, 20, 23]);
}

#[test]
fn the_listing_takes_other_numbers() {
    let set = |name: &str, value| (name.to_owned(), ConfigValue::Integer(value));
    let inputs = Inputs { overrides: vec![set("n", 4), set("m", 80)], ..inputs() };
    let workflow = run_with(LISTING, inputs).expect("the listing runs");
    assert_eq!(workflow.tasks.len(), 3 + 3 * 4 + 2 * 80);
}
