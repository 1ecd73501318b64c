//! `tidemill top`: a view of a run that is drawn again every second until the run ends.

use crate::args::TopArgs;
use crate::output::{self, PrintError};
use crate::recorded_run::{self, RecordedRun, RunCondition};
use crate::top_view::{self, ViewSize};
use base::Problem;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

/// Time between two views.
const INTERVAL: Duration = Duration::from_secs(1);

/// Size of the view where there is no terminal.
pub const SIZE_DEFAULT: ViewSize = ViewSize { columns: 80, rows: 24 };

/// Clears the screen, and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Runs the command; returns the exit code.
pub fn top(args: &TopArgs) -> Result<u8, Vec<Problem>> {
    let one = |problem: Problem| vec![problem];
    let directory = match &args.run {
        Some(name) => recorded_run::directory(name),
        None => recorded_run::newest_live(),
    };
    let mut run = RecordedRun::read(&directory.map_err(one)?)?;
    // A reader that is no terminal gets one view: the codes that draw over it are for terminals.
    if args.once || !io::stdout().is_terminal() {
        return Ok(output::print_all(&(top_view::lines(&run, SIZE_DEFAULT).join("\n") + "\n")));
    }
    let mut beginning = CLEAR;
    loop {
        if let Err(error) = output::print(view(&run, beginning).as_bytes()) {
            return Ok(error.conclude());
        }
        if run.condition() != RunCondition::Live {
            return Ok(output::print(b"\n").map_or_else(PrintError::conclude, |()| 0));
        }
        beginning = "\x1b[H";
        thread::sleep(INTERVAL);
        run.follow()?;
    }
}

/// One view, drawn over the last one: each line is cleared behind its text.
fn view(run: &RecordedRun, beginning: &str) -> String {
    let lines = top_view::lines(run, terminal_size());
    format!("{beginning}{}\x1b[K\x1b[J", lines.join("\x1b[K\n"))
}

/// Size of the terminal that standard output is.
pub fn terminal_size() -> ViewSize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or(SIZE_DEFAULT, |size| ViewSize { columns: size.ws_col.into(), rows: size.ws_row.into() })
}
