//! Claims that wait for work. Whatever becomes ready anywhere wakes them all, and nearly all of them in vain:
//! they look before they ask the writer, and what one found out counts for all its like.

use std::collections::HashSet;

use tokio::sync::Mutex;

use crate::core::fault::Error;
use crate::core::ids::Uid;

/// What a claim waits for; those of the same kind find the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// Whose tasks it may take.
    pub(super) sight: Option<Uid>,
    /// From which queue.
    pub(super) queue: Option<String>,
    /// The key under which it may have its claim already.
    pub(super) key: Option<(Uid, String)>,
}

/// Who found nothing, since the board last told that something became ready.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    vain: Mutex<Vain>,
}

#[derive(Debug, Default)]
struct Vain {
    since: u64,
    kinds: HashSet<Kind>,
}

impl Waiting {
    /// Whether there may be something for a claim of this kind that was woken by the `woken`th news. One
    /// looks at a time; where it finds something, the others look for themselves.
    pub(super) async fn is_worth_it(
        &self,
        woken: u64,
        kind: Kind,
        look: impl Future<Output = Result<bool, Error>>,
    ) -> Result<bool, Error> {
        let mut vain = self.vain.lock().await;
        if vain.since >= woken && vain.kinds.contains(&kind) {
            return Ok(false);
        }
        if look.await? {
            return Ok(true);
        }
        if vain.since < woken {
            *vain = Vain { since: woken, kinds: HashSet::new() };
        }
        vain.kinds.insert(kind);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn one_looks_for_all_its_like_and_again_after_every_news() {
        let waiting = Waiting::default();
        let looks = &Cell::new(0);
        let kind = |uid| Kind { sight: Some(uid), queue: None, key: None };
        let ask = |woken, uid, there: bool| {
            waiting.is_worth_it(woken, kind(uid), async move {
                looks.set(looks.get() + 1);
                Ok(there)
            })
        };
        let vain = futures_util::future::join_all((0..500).map(|_| ask(1, 7, false))).await;
        assert!(vain.into_iter().all(|answer| !answer.unwrap()));
        assert_eq!(looks.get(), 1);
        assert!(ask(1, 8, true).await.unwrap(), "another user's may be there");
        assert!(ask(2, 7, true).await.unwrap() && ask(2, 7, true).await.unwrap());
        assert_eq!(looks.get(), 4, "what was found may be taken: each looks");
        assert!(!ask(2, 7, false).await.unwrap() && !ask(1, 7, true).await.unwrap());
        assert_eq!(looks.get(), 5, "older news than the look");
    }
}
