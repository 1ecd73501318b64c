//! Files by name: all files of a name, names without extension, pairs by pattern.

use super::{calls, run_with, tool};
use base::Problem;
use flow::{Catalogue, Workflow};
use js4cloud::Inputs;

const FILES: [&str; 9] = [
    "Poem.txt",
    "in/a/x.y.csv",
    "reads/s1_R1.fastq",
    "reads/s1_R2.fastq",
    "reads/s10_R1.fastq",
    "reads/s10_R2.fastq",
    "reads/s2_R1.fastq",
    "reads/s2_R2.fastq",
    "reads/readme.md",
];

fn run(source: &str) -> Result<Workflow, Problem> {
    run_on(&FILES, source)
}

fn run_on(files: &[&str], source: &str) -> Result<Workflow, Problem> {
    let tools = vec![tool("Align", &["<first", "<second", ">bam"]), tool("Any", &["<in[]", ">out[]"])];
    let catalogue = Catalogue::new(files.iter().map(|&file| file.to_owned()));
    run_with(source, Inputs { tools, catalogue, ..Inputs::default() })
}

fn called(source: &str) -> Vec<String> {
    calls(&run(source).unwrap_or_else(|problem| panic!("{problem}")))
}

fn problem_text(files: &[&str], source: &str) -> String {
    run_on(files, source).expect_err("is refused").to_string()
}

#[test]
fn all_takes_every_file_of_a_name_whatever_their_number() {
    let source = r#"var reads = Data.get("reads", "all"); Any({in: reads, out: Data.define("O", reads.length)});"#;
    let workflow = run(source).unwrap_or_else(|problem| panic!("{problem}"));
    let paths: Vec<&str> = (0..7).filter_map(|id| workflow.input_path(flow::DataId(id))).collect();
    let expected =
        ["readme.md", "s1_R1.fastq", "s1_R2.fastq", "s2_R1.fastq", "s2_R2.fastq", "s10_R1.fastq", "s10_R2.fastq"];
    assert_eq!(paths, expected.map(|name| format!("reads/{name}")));
    assert_eq!(called(r#"var a = Data.get("Poem", "all"); Any({in: a, out: Data.define("O", a.length)});"#).len(), 1);
    // A second call returns the same element.
    assert_eq!(
        called(r#"Data.get("reads", "all"); Any({in: Data.get("reads", "all"), out: Data.define("O")});"#).len(),
        1
    );
    assert!(
        problem_text(&FILES, r#"Data.get("reads", "al")"#)
            .contains("is a whole number or \"all\", not the text \"al\"")
    );
}

#[test]
fn a_name_is_that_of_the_file_without_directories_and_extension() {
    let source = r#"
        var poem = Data.get("Poem"), odd = Data.get("in/a/x.y.csv"), reads = Data.get(/R1.fastq$/), m = Data.define("M", [2, 12]);
        var names = [poem, odd, reads[1], m[1][3], m[0], m, Data.define("Out")].map((data) => data.name);
        if (names.join() !== "Poem,x.y,s2_R1,M_1_03,M_0,M,Out") throw new Error(names.join());
        Align({first: reads[0], second: reads[1], bam: Data.define(reads[0].name + "_merged")});
    "#;
    assert_eq!(called(source), ["Align(first=/R1.fastq$/[0],second=/R1.fastq$/[1],bam=s1_R1_merged)"]);
}

#[test]
fn pairs_are_rows_of_two_with_the_name_of_the_pair() {
    let source = r#"
        var pairs = Data.pairs(/(.*)_R([12])\.fastq$/);
        for (const pair of pairs) {
            const [first, second] = pair;
            Align({first: first, second: second, bam: Data.define(pair.name)});
        }
        if (pairs.length !== 3 || pairs[0].length !== 2) throw new Error("shape");
        if (pairs[2][1].name !== "s10_R2") throw new Error(pairs[2][1].name);
        Any({in: pairs[1], out: Data.define("O")});
    "#;
    let name = r"pairs of /(.*)_R([12])\.fastq$/";
    assert_eq!(
        called(source),
        [
            format!("Align(first={name}[0][0],second={name}[0][1],bam=s1)"),
            format!("Align(first={name}[1][0],second={name}[1][1],bam=s2)"),
            format!("Align(first={name}[2][0],second={name}[2][1],bam=s10)"),
            format!("Any(in=[{name}[1][0] {name}[1][1]],out=[O])"),
        ]
    );
}

#[test]
fn a_pair_without_its_partner_is_refused_with_the_name_of_the_missing_file() {
    let files = ["é/s1_R1.fq", "é/s1_R2.fq", "é/s2_R1.fq"];
    let text = problem_text(&files, "\nvar p = Data.pairs(/(.*)_R([12])/);");
    assert!(text.contains("`é/s2_R1.fq` has no partner `é/s2_R2.fq`") && text.starts_with("dir/w.js:2:"), "{text}");
    assert!(problem_text(&files, "Data.pairs(/_R([12])/)").contains("needs two groups"));
    assert!(
        problem_text(&files, "Data.pairs('s')").contains("Data.pairs needs a regular expression, not the text \"s\"")
    );
}
