//! `tidemill pool top`: a view of a pool that is drawn again every second.
//!
//! The view has the alternate screen of the terminal, and takes keys as they are typed. Both end
//! with the command, however it ends: a signal ends it in order, a second one restores the terminal
//! at once. Only SIGKILL leaves it as it is; then `reset` helps.

use crate::args::PoolTopArgs;
use crate::output::{self, PrintError};
use crate::pool_command;
use crate::pool_view;
use crate::signals;
use crate::top_command::{self, SIZE_DEFAULT};
use base::Problem;
use pool::{ObservedPool, PoolObserver};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two views.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between the two samples of a view that is printed once.
const ONCE_INTERVAL: Duration = Duration::from_millis(500);
/// Enters the alternate screen, and hides the cursor.
const ENTER_SCREEN: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Shows the cursor, and leaves the alternate screen.
const LEAVE_SCREEN: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// Runs the command; returns the exit code.
pub fn top(args: &PoolTopArgs) -> Result<u8, Problem> {
    let mut observer = PoolObserver::open(&pool_command::file(&args.pool_arg)?)?;
    if args.json {
        return Ok(print_json(&mut observer, args.once));
    }
    if args.once || !io::stdout().is_terminal() {
        let before = observer.sample();
        thread::sleep(ONCE_INTERVAL);
        let lines = pool_view::lines(&observer.sample(), Some(&before), SIZE_DEFAULT);
        return Ok(output::print_all(&(lines.join("\n") + "\n")));
    }
    draw(&mut observer)
}

/// Prints an object every second, until nobody reads them any more.
fn print_json(observer: &mut PoolObserver, once: bool) -> u8 {
    let mut before = observer.sample();
    loop {
        thread::sleep(if once { ONCE_INTERVAL } else { INTERVAL });
        let sample = observer.sample();
        let printed = output::print(format!("{}\n", pool_view::json(&sample, Some(&before))).as_bytes());
        match printed {
            Err(error) => return error.conclude(),
            Ok(()) if once => return 0,
            Ok(()) => before = sample,
        }
    }
}

/// Draws the view until a key or a signal ends it.
fn draw(observer: &mut PoolObserver) -> Result<u8, Problem> {
    let cannot = |error: io::Error| Problem::new(format!("the terminal cannot be used: {error}"));
    let (ended, ends) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| cannot(error.into()))?;
    let modes = Arc::new(TerminalModes::read());
    let restored = modes.clone();
    let received = signals::watch(move || drop(ends), move || restored.restore()).map_err(cannot)?;
    let screen = Screen::enter(modes);
    let printed = draw_until(observer, &ended);
    drop(screen);
    Ok(printed.map_or_else(PrintError::conclude, |()| received.exit_code().unwrap_or(0)))
}

fn draw_until(observer: &mut PoolObserver, ended: &OwnedFd) -> Result<(), PrintError> {
    let mut before: Option<ObservedPool> = None;
    loop {
        let (next, sample) = (Instant::now() + INTERVAL, observer.sample());
        let lines = pool_view::lines(&sample, before.as_ref(), top_command::terminal_size());
        output::print(format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n")).as_bytes())?;
        before = Some(sample);
        if wait_for_end(ended, next) {
            return Ok(());
        }
    }
}

/// Waits until it is time for the next view; true if the view is to end.
fn wait_for_end(ended: &OwnedFd, next: Instant) -> bool {
    let input = io::stdin();
    let mut keys = input.is_terminal();
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let mut waited = vec![PollFd::new(ended, PollFlags::IN)];
        if keys {
            waited.push(PollFd::new(&input, PollFlags::IN));
        }
        match poll(&mut waited, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return false,
            Ok(_) if !waited[0].revents().is_empty() => return true,
            Ok(_) => {
                let mut typed = [0; 64];
                match rustix::io::read(&input, &mut typed) {
                    Ok(count @ 1..) if typed[..count].iter().any(|key| b"qQ\x03".contains(key)) => return true,
                    Ok(1..) | Err(Errno::INTR | Errno::AGAIN) => {}
                    _ => keys = false,
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// The modes that the terminal had before.
struct TerminalModes(Option<Termios>);

impl TerminalModes {
    /// Reads the modes of the terminal of standard input, if that is one.
    fn read() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }

    /// Has keys come as they are typed, and not be shown. Ctrl-C still is a signal.
    fn take_keys(&self) {
        if let Some(mut modes) = self.0.clone() {
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        }
    }

    /// Leaves the screen, and restores the modes. Errors are ignored: the terminal is gone then.
    fn restore(&self) {
        let _ = output::print(LEAVE_SCREEN);
        if let Some(modes) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, modes);
        }
    }
}

/// The alternate screen, until this is dropped.
struct Screen(Arc<TerminalModes>);

impl Screen {
    fn enter(modes: Arc<TerminalModes>) -> Self {
        modes.take_keys();
        let _ = output::print(ENTER_SCREEN);
        Self(modes)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.0.restore();
    }
}
