//! How what is logged looks on standard error: as what is printed there does, `warning: ...` and `error: ...`.

use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Lines that begin as those of commands; what only `TIDEMILL_LOG` shows names its place too.
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
