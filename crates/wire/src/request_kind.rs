//! The kind of a request, for metrics and traces: the command that it carries, or its operation.

use crate::{Body, Command, ExtentAction, StripeAction};
use std::fmt;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKind(usize);

/// Declares the kinds of requests that carry no command: a name, and the bodies that it covers.
macro_rules! kinds_without_command {
    ($($name:ident: $body:pat,)*) => {
        enum PlainKind {
            $($name,)*
        }

        const PLAIN_NAMES: &[&str] = &[$(stringify!($name),)*];

        impl Body {
            /// Returns the kind of the request. A walk has the kind of the command at its end.
            pub fn kind(&self) -> RequestKind {
                match self {
                    Self::Meta { command, .. } => RequestKind::from_command(command),
                    Self::Walk { action: Some(action), .. } => RequestKind::from_command(&action.command),
                    $($body => RequestKind(PlainKind::$name as usize),)*
                }
            }
        }
    };
}

kinds_without_command! {
    Hello: Self::Hello,
    Usage: Self::Usage,
    Stop: Self::Stop,
    Walk: Self::Walk { action: None, .. },
    ProbeLease: Self::ProbeLease { .. },
    FindLeases: Self::FindLeases { .. },
    EndSession: Self::EndSession { .. },
    Workers: Self::Workers,
    Move: Self::Move { .. },
    EndMovedSession: Self::EndMovedSession { .. },
    Manage: Self::Manage { .. },
    Finish: Self::Finish { .. },
    NoteLock: Self::NoteLock { .. },
    NoteUnused: Self::NoteUnused { .. },
    ExtentWrite: Self::Extent { action: ExtentAction::Write { .. }, .. },
    ExtentAppend: Self::Extent { action: ExtentAction::Append { .. }, .. },
    StripeWrite: Self::Stripe { action: StripeAction::Write { .. }, .. },
    StripeFill: Self::Stripe { action: StripeAction::Fill { .. }, .. },
    StripeRead: Self::Stripe { action: StripeAction::Read { .. }, .. },
    StripeTruncate: Self::Stripe { action: StripeAction::Truncate { .. }, .. },
    StripeRemove: Self::Stripe { action: StripeAction::Remove, .. },
    StripeZero: Self::Stripe { action: StripeAction::Zero { .. }, .. },
    StripeExtend: Self::Stripe { action: StripeAction::Extend { .. }, .. },
    StripeFit: Self::Stripe { action: StripeAction::Fit, .. },
}

impl RequestKind {
    /// Number of kinds.
    pub const COUNT: usize = PLAIN_NAMES.len() + Command::ROWS.len();

    fn from_command(command: &Command) -> Self {
        Self(PLAIN_NAMES.len() + command.number())
    }

    /// Returns its index, below [`Self::COUNT`].
    pub fn index(self) -> usize {
        self.0
    }

    /// Returns its name: that of the command in the table of commands, or of the operation.
    pub fn name(self) -> &'static str {
        PLAIN_NAMES.get(self.0).copied().unwrap_or_else(|| Command::ROWS[self.0 - PLAIN_NAMES.len()].name)
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
