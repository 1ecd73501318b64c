//! Tests of `bench`: from the arguments to what is measured.

use super::*;
use crate::args::{Cli, CliCommand};
use clap::Parser;

fn parse(line: &str) -> BenchCommand {
    match Cli::try_parse_from(format!("tidemill bench {line}").split_whitespace()) {
        Ok(Cli { command: CliCommand::Bench(command) }) => command,
        other => panic!("{line}: {other:?}"),
    }
}

fn filecopy_of(flags: &str) -> Result<Filecopy, Problem> {
    let BenchCommand::Filecopy(args) = parse(&format!("filecopy {flags}")) else { panic!("{flags}") };
    filecopy(&args)
}

fn locality_of(flags: &str) -> Result<Locality, Problem> {
    let BenchCommand::Locality(args) = parse(&format!("locality {flags}")) else { panic!("{flags}") };
    locality(&args)
}

#[test]
fn a_filecopy_has_one_case_of_its_flags_or_those_of_an_experiment() {
    let one = filecopy_of("--io-nodes 2 --workers 3 --file-size 1MiB").unwrap();
    let case = CopyCase { io_nodes: 2, worker_nodes: 1, workers: 3, files: 1, file_bytes: MIB, chunk_bytes: MIB };
    assert_eq!(one.cases, [(None, case)], "a chunk is no larger than a file");
    assert_eq!((one.links, one.tls), (None, true));
    let defaults = filecopy_of("").unwrap().cases[0].1;
    assert_eq!((defaults.file_bytes, defaults.chunk_bytes), (128 * MIB, 32 * MIB));
    for (name, experiment) in [
        ("chunks", Experiment::Chunks),
        ("io-nodes", Experiment::IoNodes),
        ("crowded", Experiment::Crowded),
        ("worker-nodes", Experiment::WorkerNodes),
    ] {
        let cases = filecopy_of(&format!("--experiment {name}")).unwrap().cases;
        assert!(!cases.is_empty() && cases.iter().all(|(of, _)| *of == Some(experiment)), "{name}");
    }
}

#[test]
fn links_are_two_rates_above_zero() {
    assert_eq!(filecopy_of("--links 480,900 --no-tls").unwrap().links, Some((480, 900)));
    for links in ["480", "1,2,3", "0,5", "5,0"] {
        let refused = filecopy_of(&format!("--links {links}")).unwrap_err();
        assert_eq!(refused.message, "--links takes two numbers of Mbit/s", "{links}");
    }
}

#[test]
fn nothing_of_zero_bytes_is_measured() {
    for refused in [
        filecopy_of("--file-size 0").map(drop),
        filecopy_of("--chunk-size 0").map(drop),
        locality_of("--file-size 0").map(drop),
        locality_of("--chunk-size 0").map(drop),
    ] {
        assert_eq!(refused.unwrap_err().message, "files and chunks have at least one byte");
    }
    let BenchCommand::Objects(args) = parse("objects --size 1KiB,0") else { panic!("not objects") };
    assert_eq!(objects(&args).unwrap_err().message, "values have at least one byte");
}

#[test]
fn a_pool_file_stands_for_the_target_pool_alone() {
    let BenchCommand::Metadata(args) = parse("metadata --on pool,dir:/tmp --pool p --layout tree --workers 2") else {
        panic!("not metadata")
    };
    let wanted = metadata(&args).unwrap();
    let pool = std::path::absolute("p").unwrap();
    assert_eq!(wanted.targets, [BenchTarget::Pool(Some(pool)), BenchTarget::Directory("/tmp".into())]);
    assert_eq!((wanted.layouts, wanted.workers), (vec![FileLayout::Tree], vec![2]));
    let BenchCommand::Objects(args) = parse("objects --on pool,redis") else { panic!("not objects") };
    assert!(objects(&args).unwrap_err().message.contains("`redis` is not a target"));
}

#[test]
fn a_shared_directory_has_the_rate_of_its_flag_or_a_part_of_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let shared = |flags: &str| locality_of(&format!("--shared {} {flags}", directory.path().display())).unwrap().shared;
    let rate = |flags: &str| shared(flags).unwrap().rate;
    assert!((rate("--link 1000") - 100.0).abs() < 1e-9, "0.8 of 125 MB/s");
    assert!((rate("--link 1000 --shared-rate 7") - 7.0).abs() < 1e-9);
    assert_eq!(locality_of("").unwrap().shared, None);
    let refused = locality_of("--shared /none/such").unwrap_err();
    assert_eq!(refused.message, "--shared: /none/such: there is no such directory");
    assert_eq!(locality_of("--across workers").unwrap().axes, [SweepAxis::Workers]);
}

#[test]
fn a_result_file_must_be_in_a_directory_that_exists() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| check_directory(&directory.path().join(name));
    assert!(inside("r.json").is_ok() && check_directory(Path::new("r.json")).is_ok());
    for refused in [inside("none/r.json"), check_directory(directory.path())] {
        assert!(refused.unwrap_err().message.ends_with("no file can be written there"));
    }
}
