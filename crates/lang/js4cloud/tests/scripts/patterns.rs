//! The patterns of the examples, as the workflows they describe.

use super::{calls, run_with, tool};
use flow::{Catalogue, Tool};
use js4cloud::Inputs;

fn tools() -> Vec<Tool> {
    vec![
        tool("Words", &["<text", ">words"]),
        tool("Sort", &["<text", ">sorted"]),
        tool("Count", &["<sorted", ">counts"]),
        tool("Split", &["<text", ">parts[]", "count!"]),
        tool("Merge", &["<parts[]", ">merged"]),
        tool("Wrap", &["<text", ">wrapped", "width"]),
        tool("CountLines", &["<text", ">count"]),
        tool("CountWords", &["<text", ">count"]),
        tool("CountBytes", &["<text", ">count"]),
    ]
}

/// The calls of an example's script, whose workflow also passes the check.
fn pattern(source: &str) -> Vec<String> {
    let paths = ["Poem.txt", "Pages/page-1.txt", "Pages/page-10.txt", "Pages/page-2.txt"];
    let catalogue = Catalogue::new(paths.map(str::to_owned));
    let workflow = run_with(source, Inputs { tools: tools(), catalogue, ..Inputs::default() });
    let workflow = workflow.unwrap_or_else(|problem| panic!("{problem}"));
    flow::check(&workflow, None).unwrap_or_else(|problems| panic!("{problems:?}"));
    calls(&workflow)
}

#[test]
fn single_task() {
    let expected = ["Sort(text=Poem,sorted=Sorted)"];
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/single-task.js")), expected);
}

#[test]
fn pipeline() {
    let expected =
        ["Words(text=Poem,words=Words)", "Sort(text=Words,sorted=InOrder)", "Count(sorted=InOrder,counts=WordCounts)"];
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/pipeline.js")), expected);
}

#[test]
fn partitioning() {
    let expected = [
        "Split(text=Poem,parts=[Part[0] Part[1] Part[2]],count=3)",
        "Sort(text=Part[0],sorted=SortedPart[0])",
        "Sort(text=Part[1],sorted=SortedPart[1])",
        "Sort(text=Part[2],sorted=SortedPart[2])",
    ];
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/partitioning.js")), expected);
}

#[test]
fn aggregation() {
    let expected = [
        "Sort(text=Pages[0],sorted=SortedPage[0])",
        "Sort(text=Pages[1],sorted=SortedPage[1])",
        "Sort(text=Pages[2],sorted=SortedPage[2])",
        "Merge(parts=[SortedPage[0] SortedPage[1] SortedPage[2]],merged=Fruits)",
    ];
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/aggregation.js")), expected);
}

#[test]
fn parameter_sweep() {
    let expected = [
        "Wrap(text=Poem,wrapped=Wrapped[0],width=15)",
        "Wrap(text=Poem,wrapped=Wrapped[1],width=25)",
        "Wrap(text=Poem,wrapped=Wrapped[2],width=35)",
    ];
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/parameter-sweep.js")), expected);
}

#[test]
fn input_sweep() {
    let pages = r"/^Pages\/.*\.txt$/";
    let expected = [0, 1, 2].map(|page| format!("CountWords(text={pages}[{page}],count=WordsOn[{page}])"));
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/input-sweep.js")), expected);
}

#[test]
fn tool_sweep() {
    let expected = [
        "CountLines(text=Poem,count=Total[0])",
        "CountWords(text=Poem,count=Total[1])",
        "CountBytes(text=Poem,count=Total[2])",
    ];
    assert_eq!(pattern(include_str!("../../../../../examples/patterns/tool-sweep.js")), expected);
}
