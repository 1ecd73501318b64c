//! Format of log lines on standard error: like printed messages, `warning: ...` and `error: ...`.

use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::{LookupSpan, Scope},
};

/// Formats log lines like messages of commands. Lines below the level of warnings also name their
/// target, and the spans that they are in.
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
            level => {
                write!(to, "{}: {}: ", level.as_str().to_ascii_lowercase(), event.metadata().target())?;
                write_spans(context, &mut to)?;
            }
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// Writes the names and fields of the spans, the outermost first.
fn write_spans<S, N>(context: &FmtContext<'_, S, N>, to: &mut Writer<'_>) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
        write!(to, "{}", span.name())?;
        if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
            write!(to, "{{{fields}}}")?;
        }
        write!(to, ": ")?;
    }
    Ok(())
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
            let outer = tracing::debug_span!("call", number = 7).entered();
            tracing::debug_span!("request", kind = "Create").in_scope(|| {
                tracing::debug!(target: "node", "waits");
                tracing::warn!("slow");
            });
            drop(outer);
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "error: the pool is gone\nwarning: slow node=3\ndebug: client: tried again\n\
             debug: node: call{number=7}: request{kind=\"Create\"}: waits\nwarning: slow\n"
        );
    }
}
