//! Bulk bytes: the field of a message that travels as the payload.

use crate::{
    Answer, Body, Command, Content, Contents, ExtentAction, FoundObject, HostedAnswer, MoveStep, RangeContent,
    StripeAction, UnsettledAnswer, WalkAction,
    frame::{DecodeError, FrameKind},
};
use bytes::Bytes;

const NONE: Bytes = Bytes::new();

/// Splits a body into a copy without its bulk bytes, and these bytes. `None` if it has no such
/// field.
pub fn split_body(body: &Body) -> Option<(Body, &Bytes)> {
    match body {
        Body::Meta { request_id, command } => {
            let (command, payload) = split_command(command)?;
            Some((Body::Meta { request_id: *request_id, command }, payload))
        }
        Body::Extent { request_id, file, extent, action } => {
            let (action, payload) = match action {
                ExtentAction::Write { offset, data } => (ExtentAction::Write { offset: *offset, data: NONE }, data),
                ExtentAction::Append { data } => (ExtentAction::Append { data: NONE }, data),
            };
            Some((Body::Extent { request_id: *request_id, file: *file, extent: *extent, action }, payload))
        }
        Body::Stripe { file, stripe, action } => {
            let (action, data) = split_action(action)?;
            Some((Body::Stripe { file: *file, stripe: *stripe, action }, data))
        }
        Body::Move { step: MoveStep::Stripe { file, stripe, action } } => {
            let (action, data) = split_action(action)?;
            Some((Body::Move { step: MoveStep::Stripe { file: *file, stripe: *stripe, action } }, data))
        }
        Body::Manage { message } => Some((Body::Manage { message: NONE }, message)),
        Body::Move { step: MoveStep::State { data } } => {
            Some((Body::Move { step: MoveStep::State { data: NONE } }, data))
        }
        Body::Walk { start, components, credentials, action: Some(action) } => {
            let WalkAction { directory, partition, request_id, ref command } = **action;
            let (command, payload) = split_command(command)?;
            let action = Some(Box::new(WalkAction { directory, partition, request_id, command }));
            Some((
                Body::Walk { start: *start, components: components.clone(), credentials: credentials.clone(), action },
                payload,
            ))
        }
        Body::Hello
        | Body::Usage
        | Body::Stop
        | Body::Move { .. }
        | Body::Walk { .. }
        | Body::ProbeLease { .. }
        | Body::FindLeases { .. }
        | Body::EndSession { .. }
        | Body::EndMovedSession { .. }
        | Body::Finish { .. }
        | Body::NoteLock { .. }
        | Body::NoteUnused { .. }
        | Body::Workers => None,
    }
}

fn split_action(action: &StripeAction) -> Option<(StripeAction, &Bytes)> {
    match action {
        StripeAction::Write { generation, offset, ends, data } => {
            Some((StripeAction::Write { generation: *generation, offset: *offset, ends: *ends, data: NONE }, data))
        }
        StripeAction::Fill { data } => Some((StripeAction::Fill { data: NONE }, data)),
        _ => None,
    }
}

fn split_command(command: &Command) -> Option<(Command, &Bytes)> {
    let payload = command.bulk()?;
    let mut split = command.clone();
    *split.bulk_mut()? = NONE;
    Some((split, payload))
}

/// Returns the bulk bytes of a body that are written to the start of a stripe.
pub fn begins_stripe(body: &Body) -> Option<&Bytes> {
    let command = match body {
        Body::Stripe { action: StripeAction::Write { offset: 0, data, .. } | StripeAction::Fill { data }, .. }
        | Body::Move { step: MoveStep::Stripe { action: StripeAction::Write { offset: 0, data, .. }, .. } } => {
            return Some(data);
        }
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(action), .. } => &action.command,
        _ => return None,
    };
    match command {
        Command::PutObject { contents: Contents::Striped { first, .. }, .. } => Some(first),
        _ => None,
    }
}

/// Returns the bulk bytes of a body, if it has such a field.
pub fn body_bulk(body: &Body) -> Option<&Bytes> {
    match body {
        Body::Meta { command, .. } => command.bulk(),
        Body::Walk { action: Some(action), .. } => action.command.bulk(),
        Body::Extent { action: ExtentAction::Write { data, .. } | ExtentAction::Append { data }, .. }
        | Body::Stripe { action: StripeAction::Write { data, .. } | StripeAction::Fill { data }, .. }
        | Body::Move {
            step:
                MoveStep::Stripe { action: StripeAction::Write { data, .. } | StripeAction::Fill { data }, .. }
                | MoveStep::State { data },
        }
        | Body::Manage { message: data } => Some(data),
        _ => None,
    }
}

/// Returns the number of bulk bytes of an answer, also of those that travel in pieces.
pub fn answer_bulk_bytes(answer: &Answer) -> usize {
    match answer {
        Answer::Bytes(bytes)
        | Answer::Xattr(bytes)
        | Answer::Content(RangeContent { content: Content::Bytes(bytes), .. })
        | Answer::Object(FoundObject { content: Content::Bytes(bytes), .. }) => bytes.len(),
        Answer::Object(FoundObject { content: Content::Pieces(pieces), .. }) => pieces.iter().map(Bytes::len).sum(),
        Answer::Unsettled(UnsettledAnswer { answer, .. }) | Answer::Hosted(HostedAnswer { answer, .. }) => {
            answer_bulk_bytes(answer)
        }
        _ => 0,
    }
}

/// Returns the field of a request that takes the payload.
pub fn body_slot(body: &mut Body) -> Option<&mut Bytes> {
    match body {
        Body::Meta { command, .. } => command.bulk_mut(),
        Body::Walk { action: Some(action), .. } => action.command.bulk_mut(),
        Body::Extent { action: ExtentAction::Write { data, .. } | ExtentAction::Append { data }, .. }
        | Body::Stripe { action: StripeAction::Write { data, .. } | StripeAction::Fill { data }, .. }
        | Body::Move {
            step:
                MoveStep::Stripe { action: StripeAction::Write { data, .. } | StripeAction::Fill { data }, .. }
                | MoveStep::State { data },
        }
        | Body::Manage { message: data } => Some(data),
        _ => None,
    }
}

/// Splits an answer into a copy without its bulk bytes, and these bytes. `None` if it has no such
/// field.
pub fn split_answer(answer: &Answer) -> Option<(Answer, &Bytes)> {
    match answer {
        Answer::Bytes(bytes) => Some((Answer::Bytes(NONE), bytes)),
        Answer::Xattr(value) => Some((Answer::Xattr(NONE), value)),
        Answer::Content(RangeContent { length, content: Content::Bytes(bytes) }) => {
            Some((Answer::Content(RangeContent { length: *length, content: Content::Bytes(NONE) }), bytes))
        }
        Answer::Object(FoundObject { head, striped, length, content: Content::Bytes(bytes) }) => {
            let (head, striped, length, content) = (*head, *striped, *length, Content::Bytes(NONE));
            Some((Answer::Object(FoundObject { head, striped, length, content }), bytes))
        }
        Answer::Unsettled(UnsettledAnswer { intents: held, answer }) => {
            let (answer, payload) = split_answer(answer)?;
            Some((Answer::Unsettled(UnsettledAnswer { intents: held.clone(), answer: Box::new(answer) }), payload))
        }
        Answer::Hosted(HostedAnswer { node, file, answer }) => {
            let (answer, payload) = split_answer(answer)?;
            Some((Answer::Hosted(HostedAnswer { node: *node, file: *file, answer: Box::new(answer) }), payload))
        }
        _ => None,
    }
}

/// Returns the field of an answer that takes the payload.
pub fn answer_slot(answer: &mut Answer) -> Option<&mut Bytes> {
    match answer {
        Answer::Bytes(bytes)
        | Answer::Xattr(bytes)
        | Answer::Content(RangeContent { content: Content::Bytes(bytes), .. })
        | Answer::Object(FoundObject { content: Content::Bytes(bytes), .. }) => Some(bytes),
        Answer::Unsettled(UnsettledAnswer { answer, .. }) | Answer::Hosted(HostedAnswer { answer, .. }) => {
            answer_slot(answer)
        }
        _ => None,
    }
}

/// Puts a payload into its field.
pub fn fill(kind: FrameKind, slot: Option<&mut Bytes>, payload: Bytes) -> Result<(), DecodeError> {
    let error = |why: &str| Err(DecodeError::Meta { kind, why: why.into() });
    match slot {
        Some(slot) if slot.is_empty() => *slot = payload,
        Some(_) => return error("bytes that belong into the payload stand in the meta"),
        None if payload.is_empty() => {}
        None => return error("there is a payload, and nothing that it could be"),
    }
    Ok(())
}
