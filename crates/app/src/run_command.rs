//! `tidemill run`.

use crate::args::{RunArgs, StorageArg};
use crate::console;
use crate::data_directory::REPORTS;
use crate::{elastic_command, export_filter, progress, recorded_run, resume_args, signals, source, swift_source};
use base::Problem;
use report::{RunOutcome, RunReport};
use run::{EmergencyCleanup, RequestedOptions, RunSpec, StorageRequest};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use swift_plan::FileDirectories;
use tokio_util::sync::CancellationToken;

/// Time that a writer waits for space unless `TIDEMILL_SPACE_WAIT` is set.
const SPACE_WAIT: Duration = Duration::from_secs(10);

/// Directory of texts that a script writes, in that of the report.
const TEXTS: &str = "texts";

/// Runs the workflow, writes its report, and returns the exit code.
pub fn run(args: &RunArgs) -> Result<u8, Vec<Problem>> {
    let resume = args.resume.as_deref().map(recorded_run::directory).transpose().map_err(|problem| vec![problem])?;
    match resume {
        Some(directory) if args.source.workflow.as_os_str().is_empty() => {
            let (args, directory) = resume_args::as_begun(args, &directory).map_err(|problem| vec![problem])?;
            run_or_resume(&args, Some(directory))
        }
        resume => run_or_resume(args, resume),
    }
}

fn run_or_resume(args: &RunArgs, resume: Option<PathBuf>) -> Result<u8, Vec<Problem>> {
    let report = resume.as_deref().or(args.report.as_deref()).unwrap_or(Path::new(REPORTS));
    let loaded = source::load(&args.source, &[&args.out, report])?;
    let spec = spec(args, loaded, resume)?;
    let report_dir = spec.report_dir.clone().unwrap_or_default();
    let out_of_runtime = |error: std::io::Error| vec![Problem::new(format!("cannot start: {error}"))];
    let (cancel, emergency_cleanup) = (CancellationToken::new(), EmergencyCleanup::default());
    let (token, resort) = (cancel.clone(), emergency_cleanup.clone());
    let received = signals::watch(move || token.cancel(), move || resort.act()).map_err(out_of_runtime)?;
    // The reaper ends the tools if this run is killed by SIGKILL; without it the run still works.
    if let Err(error) = exec::protect() {
        tracing::warn!(%error, "if this run is killed with SIGKILL, its tools live on");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(out_of_runtime)?;
    let mut show = progress::output_for(args.quiet, args.json);
    let mut ended = None;
    let mut on_event = |event: &run::RunEvent| match event {
        // The end is shown only when the report is written.
        run::RunEvent::Ended { .. } => ended = Some(event.clone()),
        _ => show.show(event),
    };
    let mut report = runtime.block_on(run::run(spec, &mut on_event, cancel, &emergency_cleanup))?;
    if let Some(code) = received.exit_code() {
        report.exit_code = i32::from(code);
    }
    report.link_outputs(&std::path::absolute(&report_dir).unwrap_or_default());
    let written = write_report(&report, &report_dir);
    if let Some(mut event) = ended {
        if let (run::RunEvent::Ended { report, .. }, Ok(())) = (&mut event, &written) {
            *report = std::path::absolute(report_dir.join("report.html")).ok();
        }
        show.show(&event);
    }
    Ok(conclude(args, &report, &written, &report_dir).max(show.conclude()))
}

/// Prints the path of the report; returns the exit code.
fn conclude(args: &RunArgs, report: &RunReport, written: &Result<(), String>, report_dir: &Path) -> u8 {
    let print = |line: String| {
        if !args.quiet && !args.json {
            console::say(&line);
        }
    };
    match written {
        Ok(()) => print(format!("report: {}", report_dir.join("report.html").display())),
        Err(error) => console::say(&format!("error: the report could not be written: {error}")),
    }
    let code = u8::try_from(report.exit_code).unwrap_or(1);
    if report.outcome == RunOutcome::Done && written.is_err() { 1 } else { code }
}

/// Converts the arguments to the specification of the run.
fn spec(args: &RunArgs, loaded: source::LoadedWorkflow, resume: Option<PathBuf>) -> Result<RunSpec, Vec<Problem>> {
    let exports = export_filter::select(&loaded.flow, &args.export)?;
    let out_dir = std::path::absolute(&args.out).unwrap_or_else(|_| args.out.clone());
    let run_id = match &resume {
        Some(directory) => recorded_run::name_of_run(directory).map_err(|problem| vec![problem])?,
        None => run_id(&loaded.flow.workflow().name),
    };
    let report_dir = report_dir(resume.as_ref().or(args.report.as_ref()), &run_id)?;
    let source = loaded.script.map(|script| {
        let directories =
            FileDirectories { data: loaded.data_dir.clone(), out: out_dir.clone(), texts: report_dir.join(TEXTS) };
        swift_source::plan(script, directories, &args.source.swift)
    });
    let elastic = elastic_command::of_run(&args.elastic).map_err(|problem| vec![problem])?;
    if args.cluster.on.is_some() && elastic.as_ref().is_some_and(|elastic| elastic.machines.is_some()) {
        return Err(vec![
            Problem::new("--start-command and --on both start machines")
                .hint("with --on, the cluster starts the hosts of --elastic"),
        ]);
    }
    let limits = elastic.as_ref().map(|elastic| elastic.limits);
    let keep_failed = args.keep_failed.then(|| std::path::absolute(report_dir.join("failed")).ok()).flatten();
    Ok(RunSpec {
        source,
        run_id,
        data_dir: loaded.data_dir,
        out_dir,
        report_dir: Some(report_dir),
        warnings: loaded.warnings,
        requested: RequestedOptions {
            command_line: std::env::args().collect(),
            source: args.source.workflow.display().to_string(),
            language: loaded.language.to_owned(),
            tools: loaded.tools.map(|path| path.display().to_string()),
            sets: loaded.sets,
        },
        memory: args.memory,
        copies: None,
        slots: args.slots.unwrap_or_else(processors),
        storage: match args.storage {
            StorageArg::Auto => StorageRequest::Auto,
            StorageArg::Mount => StorageRequest::Mount,
            StorageArg::Preload => StorageRequest::Preload,
            StorageArg::Staging => StorageRequest::Staging,
        },
        passthrough: !args.no_passthrough,
        keep: args.keep,
        keep_failed,
        exports,
        stage_in: args.stage_in,
        fail_fast: args.fail_fast,
        policy: args.policy,
        stragglers: args.cluster.stragglers,
        metrics: args.metrics,
        space_wait: space_wait().map_err(|problem| vec![problem])?,
        grace: exec::GRACE,
        resume,
        reuse: args.reuse.as_deref().map(recorded_run::directory).transpose().map_err(|problem| vec![problem])?,
        cluster: args.cluster.spec(limits).map_err(|problem| vec![problem])?,
        elastic,
        flow: loaded.flow.into(),
    })
}

/// `TIDEMILL_SPACE_WAIT` in seconds.
pub fn space_wait() -> Result<Duration, Problem> {
    let Some(text) = std::env::var_os("TIDEMILL_SPACE_WAIT") else { return Ok(SPACE_WAIT) };
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Problem::new(format!("TIDEMILL_SPACE_WAIT={}: not a number of seconds", text.display())))
}

fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

/// Makes an id `<workflow>-<time>-<process>`: it sorts by time and is unique on the host.
fn run_id(workflow: &str) -> String {
    const NAME_CHARS_MAX: usize = 40;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = workflow.chars().map(plain).take(NAME_CHARS_MAX).collect();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = report::rfc3339_utc(u64::try_from(since.as_millis()).unwrap_or(0));
    let digits: String = moment.chars().filter(char::is_ascii_digit).take(14).collect();
    let (day, time) = digits.split_at(8.min(digits.len()));
    format!("{}-{day}-{time}-{}", if name.is_empty() { "run" } else { &name }, std::process::id())
}

/// The directory of the report; refused if it cannot be written to.
fn report_dir(given: Option<&PathBuf>, run_id: &str) -> Result<PathBuf, Vec<Problem>> {
    let dir = given.cloned().unwrap_or_else(|| Path::new(REPORTS).join(run_id));
    match run::check_directory("--report", &dir) {
        None => Ok(dir),
        Some(problem) => Err(vec![problem]),
    }
}

/// Writes run.json and report.html, each atomically.
fn write_report(report: &RunReport, dir: &Path) -> Result<(), String> {
    let describe = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir).map_err(describe)?;
    for name in ["run.json", "report.html"] {
        // The process id keeps two runs with one directory apart.
        let part = dir.join(format!(".{name}.{}.part", std::process::id()));
        let write = |file: fs::File| {
            let mut out = BufWriter::new(file);
            if name == "run.json" {
                report.write_json(&mut out)?;
            } else {
                report::write_html(report, &mut out)?;
            }
            out.flush()
        };
        let written = fs::File::create(&part).and_then(write).and_then(|()| fs::rename(&part, dir.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written.map_err(describe)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "run_command_test.rs"]
mod run_command_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_is_a_plain_file_name() {
        let id = run_id("my flow/v2");
        assert!(id.starts_with("my-flow-v2-20"), "{id}");
        assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{id}");
    }
}
