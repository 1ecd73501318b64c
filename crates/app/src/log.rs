//! Format of log lines on standard error: like printed messages, `warning: ...` and `error: ...`.

use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Formats log lines like messages of commands. Lines below the level of warnings also name their
/// target.
#[derive(Debug)]
pub struct PlainLines;

impl<S, N> FormatEvent<S, N> for PlainLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match *event.metadata().level() {
            Level::ERROR => write!(to, "error: ")?,
            Level::WARN => write!(to, "warning: ")?,
            level => write!(to, "{}: {}: ", level.as_str().to_ascii_lowercase(), event.metadata().target())?,
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    /// Writer to memory.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn warnings_and_errors_read_like_messages_and_other_lines_name_their_target() {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .event_format(PlainLines)
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("the pool is gone");
            tracing::warn!(node = 3, "slow");
            tracing::debug!(target: "client", "tried again");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "error: the pool is gone\nwarning: slow node=3\ndebug: client: tried again\n");
    }
}
