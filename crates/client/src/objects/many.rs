//! Many at once: each for itself, with as much under way as the bounds allow.

use super::{Condition, Head, Objects, Value, Version};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesOrdered};
use wire::Outcome;

/// So many calls of one bulk form are begun before the first has ended.
const BEGUN_MAX: usize = 256;

/// Calls that are begun, and what came of those that have ended.
struct Calls<F: Future> {
    begun: FuturesOrdered<F>,
    ended: Vec<F::Output>,
}

impl<F: Future> Calls<F> {
    fn new() -> Self {
        Self { begun: FuturesOrdered::new(), ended: Vec::new() }
    }

    /// Begins one more, once there is room.
    async fn begin(&mut self, call: F) {
        if self.begun.len() >= BEGUN_MAX {
            self.ended.extend(self.begun.next().await);
        }
        self.begun.push_back(call);
    }

    async fn end(mut self) -> Vec<F::Output> {
        while let Some(ended) = self.begun.next().await {
            self.ended.push(ended);
        }
        self.ended
    }
}

impl Objects {
    /// Puts each, as [`Objects::put`]; what came of it, in the same order. Of two with one key either may be the later.
    pub async fn put_many(&self, objects: &[(&[u8], Bytes, Condition)]) -> Vec<Outcome<Version>> {
        let mut calls = Calls::new();
        for (key, bytes, condition) in objects {
            calls.begin(self.put(key, bytes.clone(), *condition)).await;
        }
        calls.end().await
    }

    /// Gets each, as [`Objects::get`], in the same order.
    pub async fn get_many(&self, keys: &[&[u8]]) -> Vec<Outcome<Value>> {
        let mut calls = Calls::new();
        for key in keys {
            calls.begin(self.get(key)).await;
        }
        calls.end().await
    }

    /// What is known of each, as [`Objects::head`], in the same order.
    pub async fn head_many(&self, keys: &[&[u8]]) -> Vec<Outcome<Head>> {
        let mut calls = Calls::new();
        for key in keys {
            calls.begin(self.head(key)).await;
        }
        calls.end().await
    }

    /// Deletes each, as [`Objects::delete`] without a condition, in the same order.
    pub async fn delete_many(&self, keys: &[&[u8]]) -> Vec<Outcome<()>> {
        let mut calls = Calls::new();
        for key in keys {
            calls.begin(self.delete(key, Condition::Always)).await;
        }
        calls.end().await
    }
}
