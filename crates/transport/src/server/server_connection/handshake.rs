//! Node's side of a connection before it is open: the handshake, and its limits.

use super::{ServerConnection, ServerState};
use crate::{
    server::admission::{Admission, UnauthenticatedConnection},
    socket::{
        framed::{Framed, nonce},
        tls::AcceptedConnection,
    },
};
use std::{io, sync::Arc};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};
use wire::{
    frame::Side,
    handshake::{HandshakeFailed, NodeHandshake, Step, VERSIONS, encode_refusal},
};

/// Serves one connection from its first byte to its last.
pub async fn serve_connection(
    accepted: AcceptedConnection,
    unauthenticated: UnauthenticatedConnection,
    state: Arc<ServerState>,
) {
    let mut stopping = state.stopping.clone();
    let opened = tokio::select! {
        _ = stopping.wait_for(|stop| *stop) => return,
        () = unauthenticated.evicted() => return tracing::debug!("a connection was closed before its handshake, to admit others"),
        opened = timeout(state.limits.handshake, accept(accepted, &unauthenticated, &state)) => opened,
    };
    drop(unauthenticated);
    match opened {
        Ok(Ok((framed, Ok(client)))) => {
            ServerConnection::new(state, framed, client.short_lived).run().await;
            drop(client.place);
        }
        Ok(Ok((framed, Err(why)))) => {
            state.log_limiter.warn(|| tracing::warn!(reason = %why, "a connection was refused"));
            framed.close().await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended before its handshake"),
        Err(_) => tracing::debug!("a connection did not finish its handshake in time"),
    }
}

/// Authenticated connection.
struct AdmittedClient {
    /// True if the client may end soon.
    short_lived: bool,
    place: OwnedSemaphorePermit,
}

async fn accept(
    accepted: AcceptedConnection,
    unauthenticated: &UnauthenticatedConnection,
    state: &ServerState,
) -> io::Result<(Framed, Result<AdmittedClient, HandshakeFailed>)> {
    let mut framed = Framed::new(accepted.handshake().await?, Side::Node);
    let admitted = shake_hands(&mut framed, state, unauthenticated.admission()).await?;
    Ok((framed, admitted))
}

/// Does the handshake. Returns the authenticated connection, or the reason of a refusal, whose
/// message is still to be flushed.
async fn shake_hands(
    framed: &mut Framed,
    state: &ServerState,
    admission: &Admission,
) -> io::Result<Result<AdmittedClient, HandshakeFailed>> {
    let handshake = NodeHandshake::new(state.token.clone(), VERSIONS, nonce()?).with_address(&admission.address);
    framed.out.short().extend(handshake.challenge(concat!("Tidemill ", env!("CARGO_PKG_VERSION"))));
    framed.flush().await?;
    let step = loop {
        match framed.frames.next() {
            Err(garbled) => break handshake.on_decode_error(garbled),
            Ok(Some(frame)) => break handshake.on_frame(&frame),
            Ok(None) => {}
        }
        if framed.fill().await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let (send, admitted) = match step {
        Step::Done { send, version, short_lived, description: what } => {
            if let Some(place) = admission.try_acquire() {
                tracing::debug!(%version, client = what, "a client has come");
                framed.frames.open();
                (send, Ok(AdmittedClient { short_lived, place }))
            } else {
                let full = HandshakeFailed::Full(state.limits.connections);
                (encode_refusal(&full), Err(full))
            }
        }
        Step::Close { send, why } => (send, Err(why)),
        Step::Send(send) => (send, Err(HandshakeFailed::TimedOut)),
    };
    framed.out.short().extend(send);
    Ok(admitted)
}
