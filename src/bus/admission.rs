//! How many calls are in hand at once, of one user and in all, so that no caller takes the memory or the
//! turn of the others.
//!
//! A permit is held until the answer is *written*: it travels in the value that a method returns, which
//! the object server drops only after that. A caller that never reads its answers therefore stops itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zbus::{Signature, Type};

use crate::core::ids::Uid;
use crate::core::refusal::Refusal;
use crate::service::types::Caller;

/// Units that one user's calls may hold.
const UNITS_PER_USER: usize = 256;
/// Units that all calls may hold; those of administrators come on top, so that a host can be worked
/// whatever its users do.
const UNITS_IN_ALL: usize = 1_024;
/// Calls of one user that wait for their turn.
const WAITING_PER_USER: usize = 1_024;
/// Waits for work (ClaimTask) of one user: they hold nothing but a place.
const CLAIMS_PER_USER: usize = 512;
/// Waits for work in all.
const CLAIMS_IN_ALL: usize = 4_096;
/// How long a call waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// Users that are remembered although none of their calls is in hand.
const IDLE_USERS: usize = 256;

/// What a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// A short answer.
    Short,
    /// A page of up to [`crate::core::limits::PAGE_BYTES`].
    Page,
    /// Waits for work.
    Claim,
}

impl Weight {
    const fn units(self) -> u32 {
        match self {
            Self::Short | Self::Claim => 1,
            Self::Page => 16,
        }
    }
}

/// Gives out permits. Cheap to clone; one for the whole daemon, whichever way a call came.
#[derive(Clone, Debug)]
pub struct Admission {
    calls: Arc<Pool>,
    claims: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    what: &'static str,
    units_per_user: usize,
    units_in_all: usize,
    all: Arc<Semaphore>,
    users: Mutex<HashMap<Uid, Arc<User>>>,
}

#[derive(Debug)]
struct User {
    units: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The right to be worked on, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    _of_user: OwnedSemaphorePermit,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Permit {
    /// An answer that holds the permit until it is written.
    pub const fn with<T>(self, value: T) -> Answer<T> {
        Answer { value, _permit: self }
    }
}

/// An answer on its way out, and the permit of its call.
#[derive(Debug)]
pub struct Answer<T> {
    value: T,
    _permit: Permit,
}

impl<T: Serialize> Serialize for Answer<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: Type> Type for Answer<T> {
    const SIGNATURE: &'static Signature = T::SIGNATURE;
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            calls: Arc::new(Pool::new("calls in hand", UNITS_PER_USER, UNITS_IN_ALL)),
            claims: Arc::new(Pool::new("claims that wait for work", CLAIMS_PER_USER, CLAIMS_IN_ALL)),
        }
    }
}

impl Admission {
    /// A permit, at once or after a short wait.
    ///
    /// # Errors
    /// [`Refusal::LimitExceeded`] where the wait is too long or too many wait already.
    pub async fn enter(&self, caller: &Caller, weight: Weight) -> Result<Permit, Refusal> {
        let pool = match weight {
            Weight::Short | Weight::Page => &self.calls,
            Weight::Claim => &self.claims,
        };
        pool.enter(caller, weight.units()).await
    }
}

impl Pool {
    fn new(what: &'static str, units_per_user: usize, units_in_all: usize) -> Self {
        let all = Arc::new(Semaphore::new(units_in_all));
        Self { what, units_per_user, units_in_all, all, users: Mutex::default() }
    }

    async fn enter(&self, caller: &Caller, units: u32) -> Result<Permit, Refusal> {
        let user = self.user(caller.uid);
        let Some(_place) = Place::take(&user.waiting) else {
            let limit = self.units_per_user + WAITING_PER_USER;
            return Err(self.exceeded(limit));
        };
        let turn = async {
            let of_user = Arc::clone(&user.units).acquire_many_owned(units).await;
            let of_all = match caller.is_admin {
                true => None,
                false => Some(Arc::clone(&self.all).acquire_many_owned(units).await),
            };
            (of_user, of_all)
        };
        // Nobody closes these semaphores: an error cannot be, and would be a refusal.
        match tokio::time::timeout(TURN, turn).await {
            Ok((Ok(of_user), None)) => Ok(Permit { _of_user: of_user, _of_all: None }),
            Ok((Ok(of_user), Some(Ok(of_all)))) => Ok(Permit { _of_user: of_user, _of_all: Some(of_all) }),
            Ok(_) => Err(self.exceeded(self.units_in_all)),
            Err(_) if user.units.available_permits() == 0 => Err(self.exceeded(self.units_per_user)),
            Err(_) => Err(self.exceeded(self.units_in_all)),
        }
    }

    fn exceeded(&self, limit: usize) -> Refusal {
        Refusal::LimitExceeded { what: self.what, limit: limit as u64, asked: limit as u64 + 1 }
    }

    fn user(&self, uid: Uid) -> Arc<User> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= IDLE_USERS && !users.contains_key(&uid) {
            users.retain(|_, user| user.units.available_permits() < self.units_per_user);
        }
        let fresh = || {
            Arc::new(User {
                units: Arc::new(Semaphore::new(self.units_per_user)),
                waiting: AtomicUsize::new(0),
            })
        };
        Arc::clone(users.entry(uid).or_insert_with(fresh))
    }
}

/// A place among those of one user who wait.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize) -> Option<Self> {
        let place = Self(waiting);
        let before = waiting.fetch_add(1, Ordering::AcqRel);
        (before < WAITING_PER_USER).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Caller = Caller { uid: 1000, is_admin: false };
    const OTHER: Caller = Caller { uid: 1001, is_admin: false };
    const ROOT: Caller = Caller { uid: 0, is_admin: true };

    #[tokio::test(start_paused = true)]
    async fn one_users_calls_are_bounded_and_do_not_stop_the_others() {
        let admission = Admission::default();
        let mut held = Vec::new();
        for _ in 0..UNITS_PER_USER {
            held.push(admission.enter(&USER, Weight::Short).await.unwrap());
        }
        let refused = admission.enter(&USER, Weight::Short).await.unwrap_err();
        assert_eq!(refused.to_string(), "calls in hand is limited to 256, and this would be 257");
        admission.enter(&OTHER, Weight::Page).await.unwrap();
        admission.enter(&USER, Weight::Claim).await.unwrap();
        held.pop();
        admission.enter(&USER, Weight::Short).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_fills_the_house_does_not_lock_out_root() {
        let admission = Admission::default();
        let mut held = Vec::new();
        for uid in 1..=(UNITS_IN_ALL / UNITS_PER_USER) as u32 {
            for _ in 0..UNITS_PER_USER / 16 {
                let caller = Caller { uid, is_admin: false };
                held.push(admission.enter(&caller, Weight::Page).await.unwrap());
            }
        }
        let refused = admission.enter(&USER, Weight::Short).await.unwrap_err();
        assert_eq!(refused.to_string(), "calls in hand is limited to 1024, and this would be 1025");
        admission.enter(&ROOT, Weight::Page).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_turn() {
        let admission = Admission::default();
        let mut held = Vec::new();
        for _ in 0..UNITS_PER_USER {
            held.push(admission.enter(&USER, Weight::Short).await.unwrap());
        }
        let waiting = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter(&USER, Weight::Short).await.map(drop) }
        });
        tokio::task::yield_now().await;
        held.pop();
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn users_without_calls_are_forgotten() {
        let admission = Admission::default();
        for uid in 0..10 * IDLE_USERS as u32 {
            admission.enter(&Caller { uid, is_admin: false }, Weight::Short).await.unwrap();
        }
        assert!(admission.calls.users.lock().unwrap().len() <= IDLE_USERS);
    }
}
