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
