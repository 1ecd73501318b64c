//! Payload size of a request, which the node holds while the request waits.

use wire::{Body, Command, Contents, ExtentAction, StripeAction};

/// Bulk bytes that a request carries while it waits.
pub fn payload_bytes(body: &Body) -> usize {
    match body {
        Body::Stripe { action: StripeAction::Write { data, .. } | StripeAction::Fill { data }, .. }
        | Body::Extent { action: ExtentAction::Write { data, .. } | ExtentAction::Append { data }, .. } => data.len(),
        Body::Meta { command, .. } => command_bytes(command),
        Body::Walk { action: Some(then), .. } => command_bytes(&then.command),
        _ => 0,
    }
}

fn command_bytes(command: &Command) -> usize {
    match command {
        Command::Write { data, .. } => data.len(),
        Command::SetXattr { value, .. } => value.len(),
        Command::PutObject { contents: Contents::Inline(data) | Contents::Striped { first: data, .. }, .. } => {
            data.len()
        }
        _ => 0,
    }
}
