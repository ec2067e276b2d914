//! How many calls are in hand at once, of one user and in all, so that no caller takes the memory or the
//! turn of the others.
//!
//! A permit is held until the answer is *written*: it travels in the value that a method returns, which
//! the object server drops only after that. A caller that never reads its answers therefore stops itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zbus::{Signature, Type};

use crate::core::ids::Uid;
use crate::core::refusal::Refusal;
use crate::service::types::Caller;

/// Units that the calls of one connection may hold.
const UNITS_PER_CONNECTION: usize = 64;
/// Units that the calls of one user may hold.
const UNITS_PER_USER: usize = 256;
/// Units that all calls may hold; those of administrators come on top, so that a host can be worked
/// whatever its users do.
const UNITS_IN_ALL: usize = 1_024;
/// Units of calls of one connection that wait for their turn.
const WAITING_PER_CONNECTION: usize = 256;
/// Waits for work (ClaimTask) of one connection: they hold nothing but a place.
const CLAIMS_PER_CONNECTION: usize = 256;
/// Waits for work of one user.
const CLAIMS_PER_USER: usize = 512;
/// Waits for work in all.
const CLAIMS_IN_ALL: usize = 4_096;
/// A call costs one unit more for each of these in its body.
const BYTES_PER_UNIT: u32 = 64 * 1_024;
/// How long a call waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// Accounts that are remembered although none of their calls is in hand.
const IDLE_ACCOUNTS: usize = 256;

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
    all: Arc<Semaphore>,
    users: Accounts<Uid>,
    connections: Accounts<String>,
}

/// The right to be worked on, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    _units: Vec<OwnedSemaphorePermit>,
}

impl Permit {
    /// An answer that holds the permit until it is written.
    pub fn with<T>(self, value: T) -> Answer<T> {
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
        let calls = Pool {
            what: "calls in hand",
            all: Arc::new(Semaphore::new(UNITS_IN_ALL)),
            users: Accounts::new(UNITS_PER_USER),
            connections: Accounts::new(UNITS_PER_CONNECTION),
        };
        let claims = Pool {
            what: "claims that wait for work",
            all: Arc::new(Semaphore::new(CLAIMS_IN_ALL)),
            users: Accounts::new(CLAIMS_PER_USER),
            connections: Accounts::new(CLAIMS_PER_CONNECTION),
        };
        Self { calls: Arc::new(calls), claims: Arc::new(claims) }
    }
}

/// A call that asks to be worked on.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Whose.
    pub caller: &'a Caller,
    /// By which connection; unique among all.
    pub connection: &'a str,
    /// What it may take.
    pub weight: Weight,
    /// How large its body is.
    pub body_bytes: u32,
}

impl Admission {
    /// A permit, at once or after a short wait.
    ///
    /// # Errors
    /// [`Refusal::LimitExceeded`] where the wait is too long or too many wait already.
    pub async fn enter(&self, call: Call<'_>) -> Result<Permit, Refusal> {
        let pool = match call.weight {
            Weight::Short | Weight::Page => &self.calls,
            Weight::Claim => &self.claims,
        };
        pool.enter(call).await
    }
}

impl Pool {
    async fn enter(&self, call: Call<'_>) -> Result<Permit, Refusal> {
        let units = call.weight.units() + call.body_bytes / BYTES_PER_UNIT;
        let connection = self.connections.of(call.connection.to_owned());
        let Some(_place) = Place::take(&connection.waiting, units as usize) else {
            return Err(self.exceeded(self.connections.units + WAITING_PER_CONNECTION));
        };
        // The narrowest first: who waits for the others' units holds none that they need.
        let mut doors = vec![(connection.semaphore.clone(), self.connections.units)];
        if !call.caller.is_admin {
            doors.push((self.users.of(call.caller.uid).semaphore.clone(), self.users.units));
            doors.push((self.all.clone(), UNITS_IN_ALL));
        }
        let mut held = Vec::with_capacity(doors.len());
        let mut limit = 0;
        let turn = async {
            for (door, units_of_door) in doors {
                limit = units_of_door;
                // Nobody closes these semaphores.
                held.extend(door.acquire_many_owned(units).await);
            }
        };
        match tokio::time::timeout(TURN, turn).await {
            Ok(()) => Ok(Permit { _units: held }),
            Err(_) => Err(self.exceeded(limit)),
        }
    }

    fn exceeded(&self, limit: usize) -> Refusal {
        Refusal::LimitExceeded { what: self.what, limit: limit as u64, asked: limit as u64 + 1 }
    }
}

/// The units of each user, or of each connection.
#[derive(Debug)]
struct Accounts<K> {
    units: usize,
    accounts: Mutex<HashMap<K, Arc<Account>>>,
}

#[derive(Debug)]
struct Account {
    semaphore: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl<K: Eq + Hash> Accounts<K> {
    fn new(units: usize) -> Self {
        Self { units, accounts: Mutex::default() }
    }

    fn of(&self, key: K) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= IDLE_ACCOUNTS && !accounts.contains_key(&key) {
            accounts.retain(|_, account| !account.is_idle(self.units));
        }
        let fresh =
            || Account { semaphore: Arc::new(Semaphore::new(self.units)), waiting: AtomicUsize::new(0) };
        Arc::clone(accounts.entry(key).or_insert_with(|| Arc::new(fresh())))
    }
}

impl Account {
    fn is_idle(&self, units: usize) -> bool {
        self.semaphore.available_permits() == units && self.waiting.load(Ordering::Acquire) == 0
    }
}

/// A place among those of one connection that wait.
struct Place<'a> {
    waiting: &'a AtomicUsize,
    units: usize,
}

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, units: usize) -> Option<Self> {
        let place = Self { waiting, units };
        let before = waiting.fetch_add(units, Ordering::AcqRel);
        (before + units <= WAITING_PER_CONNECTION).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.units, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Caller = Caller { uid: 1000, is_admin: false };
    const OTHER: Caller = Caller { uid: 1001, is_admin: false };
    const ROOT: Caller = Caller { uid: 0, is_admin: true };

    const fn short<'a>(caller: &'a Caller, connection: &'a str) -> Call<'a> {
        Call { caller, connection, weight: Weight::Short, body_bytes: 0 }
    }

    const fn page<'a>(caller: &'a Caller, connection: &'a str) -> Call<'a> {
        Call { caller, connection, weight: Weight::Page, body_bytes: 0 }
    }

    async fn fill(admission: &Admission, caller: &Caller, connection: &str) -> Vec<Permit> {
        let mut held = Vec::new();
        for _ in 0..UNITS_PER_CONNECTION / 16 {
            held.push(admission.enter(page(caller, connection)).await.unwrap());
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_full_stops_itself_and_nobody_else() {
        let admission = Admission::default();
        let mut held = fill(&admission, &USER, ":1.1").await;
        let refused = admission.enter(short(&USER, ":1.1")).await.unwrap_err();
        assert_eq!(refused.to_string(), "calls in hand is limited to 64, and this would be 65");
        admission.enter(short(&USER, ":1.2")).await.unwrap();
        admission.enter(Call { weight: Weight::Claim, ..short(&USER, ":1.1") }).await.unwrap();
        held.pop();
        admission.enter(short(&USER, ":1.1")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_of_many_connections_is_bounded_too() {
        let admission = Admission::default();
        let mut held = Vec::new();
        for connection in [":1.1", ":1.2", ":1.3", ":1.4"] {
            held.extend(fill(&admission, &USER, connection).await);
        }
        let refused = admission.enter(short(&USER, ":1.5")).await.unwrap_err();
        assert_eq!(refused.to_string(), "calls in hand is limited to 256, and this would be 257");
        admission.enter(page(&OTHER, ":1.6")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_fills_the_house_does_not_lock_out_root() {
        let admission = Admission::default();
        let mut held = Vec::new();
        for uid in 1..=(UNITS_IN_ALL / UNITS_PER_CONNECTION) as u32 {
            let caller = Caller { uid, is_admin: false };
            held.extend(fill(&admission, &caller, &format!(":1.{uid}")).await);
        }
        let refused = admission.enter(short(&USER, ":1.2000")).await.unwrap_err();
        assert_eq!(refused.to_string(), "calls in hand is limited to 1024, and this would be 1025");
        admission.enter(page(&ROOT, ":1.3000")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_turn() {
        let admission = Admission::default();
        let mut held = fill(&admission, &USER, ":1.1").await;
        let waiting = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter(short(&USER, ":1.1")).await.map(drop) }
        });
        tokio::task::yield_now().await;
        held.pop();
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait_and_large_ones_count_for_more() {
        let admission = Admission::default();
        let _held = fill(&admission, &USER, ":1.1").await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let admission = admission.clone();
            let large = Call { body_bytes: 1_024 * 1_024, ..short(&USER, ":1.1") };
            waiting.spawn(async move { admission.enter(large).await.map(drop) });
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let places = admission.calls.connections.of(":1.1".to_owned()).waiting.load(Ordering::Acquire);
        assert!(places <= WAITING_PER_CONNECTION, "{places} units wait");
        assert_eq!(waiting.len(), 1_000);
        let mut refused = 0;
        while let Some(answer) = waiting.join_next().await {
            refused += usize::from(answer.unwrap().is_err());
        }
        assert_eq!(refused, 1_000);
    }

    #[tokio::test]
    async fn accounts_without_calls_are_forgotten() {
        let admission = Admission::default();
        for number in 0..10 * IDLE_ACCOUNTS as u32 {
            let caller = Caller { uid: number, is_admin: false };
            admission.enter(short(&caller, &number.to_string())).await.unwrap();
        }
        assert!(admission.calls.users.accounts.lock().unwrap().len() <= IDLE_ACCOUNTS);
        assert!(admission.calls.connections.accounts.lock().unwrap().len() <= IDLE_ACCOUNTS);
    }
}
