//! Tests of the command line: which lines are understood, and what the refusals say.

use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<CliCommand, String> {
    let words = line.split_whitespace();
    Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
}

/// Returns all commands with the words that lead to them.
fn commands(at: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
    let path = format!("{path} {}", at.get_name());
    let below = at.get_subcommands().flat_map(|command| commands(command, &path));
    std::iter::once((path.clone(), at.clone())).chain(below).collect()
}

#[test]
fn every_command_and_every_flag_has_a_help_text() {
    Cli::command().debug_assert();
    for (path, command) in commands(&Cli::command(), "") {
        assert!(command.get_about().is_some(), "{path}");
        for argument in command.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with(char::is_uppercase), "{path} {}: {help:?}", argument.get_id());
        }
    }
}

#[test]
fn a_line_that_contradicts_itself_or_lacks_something_is_refused_with_the_reason() {
    let cases = [
        ("tidemill", "Usage"),
        ("tidemill help", "unrecognized subcommand"),
        ("tidemill run", "<WORKFLOW>"),
        ("tidemill run w.js --quiet --json", "cannot be used with"),
        ("tidemill run w.js --slots 0", "1..=4096"),
        ("tidemill run w.js --slots 4097", "1..=4096"),
        ("tidemill run w.js --memory -1", "-1"),
        ("tidemill run w.js --memory much", "much"),
        ("tidemill run w.js --storage disk", "[possible values: auto, mount, preload, staging]"),
        ("tidemill mount", "<DIR>"),
        ("tidemill mount d --pool p --memory 1GiB", "cannot be used with"),
        ("tidemill exec", "<PROGRAM>"),
        ("tidemill pool", "start"),
        ("tidemill pool start --nodes 0", "1..=1024"),
        ("tidemill pool start --nodes 2 --hosts a,b", "cannot be used with"),
        ("tidemill pool start --port 0", "0 is not in"),
        ("tidemill pool start --port 65536", "65536 is not in"),
        ("tidemill pool start --slots 4097", "0..=4096"),
        ("tidemill node --pool p", "--id"),
        ("tidemill node --pool p --id 1 --slurm", "cannot be used with"),
        ("tidemill put k f --if-absent --if-version 1-1", "cannot be used with"),
        ("tidemill put k f --placement nowhere", "nowhere"),
        ("tidemill put k f --stripe-size 3MiB", "power of two"),
        ("tidemill put k", "<FILE>"),
        ("tidemill cat", "<KEY>"),
        ("tidemill rm", "<KEY>"),
        ("tidemill flow show", "<WORKFLOW>"),
        ("tidemill bench filecopy --experiment chunks --io-nodes 2", "cannot be used with"),
        ("tidemill bench filecopy --experiment chunks --chunk-size 1", "cannot be used with"),
        ("tidemill bench filecopy --runs 100", "1..=99"),
        ("tidemill bench locality --shared-rate 5", "--shared"),
        ("tidemill bench metadata --workers 1,0", "1..=256"),
    ];
    for (line, expected) in cases {
        let refused = parse(line).expect_err(line);
        assert!(refused.contains(expected), "{line}: {refused}");
    }
}

#[test]
fn flags_of_a_program_under_exec_are_its_own() {
    let Ok(CliCommand::Exec(args)) = parse("tidemill exec --pool p ls --strict -l -- x") else { panic!("not parsed") };
    assert!(!args.strict);
    assert_eq!(args.command, ["ls", "--strict", "-l", "--", "x"]);
    let Ok(CliCommand::Exec(args)) = parse("tidemill exec --strict -- --version") else { panic!("not parsed") };
    assert!(args.strict);
    assert_eq!(args.command, ["--version"]);
}

#[test]
fn a_run_has_the_defaults_of_its_help() {
    let Ok(CliCommand::Run(args)) = parse("tidemill run w.js") else { panic!("not parsed") };
    assert_eq!((args.out.as_path(), args.report, args.memory, args.slots), ("out".as_ref(), None, None, None));
    assert!(args.export.is_empty() && args.source.sets.is_empty());
    let flags =
        [args.keep, args.keep_failed, args.stage_in, args.fail_fast, args.no_passthrough, args.quiet, args.json];
    assert_eq!(flags, [false; 7]);
}

#[test]
fn lists_are_separated_by_commas_and_repeatable_flags_keep_their_order() {
    let Ok(CliCommand::Pool(PoolCommand::Start(args))) = parse("tidemill pool start --hosts a,b --hosts c") else {
        panic!("not parsed")
    };
    assert_eq!(args.hosts, ["a", "b", "c"]);
    assert_eq!((args.partitions, args.ssh.as_str(), args.no_tls), (4096, "ssh", false));
    let Ok(CliCommand::Run(args)) = parse("tidemill run w.js --set b=1 --set a=2,3 --export /X/") else {
        panic!("not parsed")
    };
    assert_eq!((&args.source.sets[..], &args.export[..]), (&["b=1".into(), "a=2,3".into()][..], &["/X/".into()][..]));
}

#[test]
fn sizes_and_policies_are_parsed_as_their_types_say() {
    let line = "tidemill put k f --placement at(3) --stripe-size 64KiB --if-version 12-34";
    let Ok(CliCommand::Put(args)) = parse(line) else { panic!("not parsed: {:?}", parse(line)) };
    assert_eq!(args.placement.unwrap().to_string(), "at(3)");
    assert_eq!(args.stripe_size, "64KiB".parse().ok());
    assert_eq!(args.if_version.unwrap().to_string(), "12-34");
    let Ok(CliCommand::Mount(args)) = parse("tidemill mount a b --memory 1.5GiB") else { panic!("not parsed") };
    assert_eq!((args.memory, args.dirs.len()), (Some(ByteSize(3 << 29)), 2));
}
