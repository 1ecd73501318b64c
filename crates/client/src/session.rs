//! The sessions of a client: which one a call is made in, and what is done when that has ended.

use crate::{Client, client::CallOptions, router::session::SessionState};
use std::{future::Future, pin::Pin, sync::Arc};
use wire::{Outcome, Refusal, Session};

/// Most sessions that one call begins. A call gives up on a pool in which each of them ends at
/// once.
pub const SESSIONS_MAX: u32 = 8;

impl Client {
    /// The session by which nodes know this client. After a connection has broken it is another
    /// one.
    pub fn session(&self) -> Session {
        self.options.session.as_ref().map_or_else(|| self.router().session_state().id, |bound| bound.id)
    }

    /// The session that this client is bound to; the current one, if it is bound to none.
    pub(crate) fn session_state(&self) -> Arc<SessionState> {
        self.options.session.clone().unwrap_or_else(|| self.router().session_state())
    }

    /// A client that is bound to the current session: it refuses with `SessionEnded` once that has
    /// ended at the node that it asks.
    #[must_use]
    pub fn bind_to_session(&self) -> Self {
        self.in_session(self.session_state())
    }

    /// The session of this client with this id: the current one, or an earlier one.
    pub(crate) fn own_session(&self, id: Session) -> Option<Arc<SessionState>> {
        let current = self.session_state();
        if current.id == id {
            return Some(current);
        }
        self.router().earlier_sessions().into_iter().find(|state| state.id == id)
    }

    pub(crate) fn in_session(&self, state: Arc<SessionState>) -> Self {
        self.with_options(CallOptions { session: Some(state), ..self.options.clone() })
    }

    /// Runs an attempt in one session, by a client that is bound to it. If that session ended
    /// before the attempt was done, runs it again in the next.
    pub async fn run_in_session<T, F>(&self, attempt: impl Fn(Self) -> F) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state();
            match attempt(self.in_session(state.clone())).await {
                Err(Refusal::SessionEnded) => self.renew_session(&state).await?,
                outcome => return outcome,
            }
        }
        Err(Refusal::SessionEnded)
    }

    /// Replaces a session that has ended with the next one. Refused if this client is bound to it.
    pub(crate) async fn renew_session(&self, ended: &Arc<SessionState>) -> Outcome<()> {
        match self.options.session {
            Some(_) => Err(Refusal::SessionEnded),
            None => self.begin_next_session(ended).await,
        }
    }

    /// Begins the session after one that has ended, for all calls that are not bound to that.
    /// Boxed, because it is rare and part of every call.
    pub(crate) fn begin_next_session<'a>(
        &'a self,
        ended: &'a Arc<SessionState>,
    ) -> Pin<Box<dyn Future<Output = Outcome<()>> + Send + 'a>> {
        Box::pin(async move {
            self.router().begin_next_session(ended).await?;
            self.inner.attribute_cache.clear();
            Ok(())
        })
    }
}
