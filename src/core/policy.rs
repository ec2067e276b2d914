//! What the configuration decides, as plain data with the defaults of the documentation.

use std::collections::BTreeMap;

use crate::core::limits::Limits;
use crate::core::spec::{Launch, Patch};
use crate::core::verdict::Passes;

/// The whole of it. Spans are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `[sweep] interval`: everything is looked at once in this time.
    pub interval_ms: i64,
    /// The passes that are on.
    pub passes: Passes,
    /// `[sweep] linger`: what outlives the end of its run is left in peace for this time.
    pub linger_ms: i64,
    /// `[claim] lease`.
    pub lease_ms: i64,
    /// `[claim] stall`; `None`: none.
    pub stall_ms: Option<i64>,
    /// `[run] launch`.
    pub launch: Launch,
    /// `[run] max_running`: launched workers at once; 0: no limit.
    pub max_running: u32,
    /// `[run] stop_grace`.
    pub stop_grace_ms: i64,
    /// `[run] failure_limit`; 0: none.
    pub failure_limit: u32,
    /// `[run] backoff`.
    pub backoff_ms: i64,
    /// `[run] backoff_max`.
    pub backoff_max_ms: i64,
    /// `[run] tempfail_cooldown`.
    pub tempfail_cooldown_ms: i64,
    /// `[store] retention`; 0: for ever.
    pub retention_ms: i64,
    /// `[store] reserve`.
    pub reserve_bytes: u64,
    /// `[limits]`.
    pub limits: Limits,
    /// `[queue.NAME]`: made where they are missing.
    pub queues: BTreeMap<String, QueuePolicy>,
    /// `[slots]`: units by name.
    pub slots: BTreeMap<String, Vec<String>>,
}

/// A queue of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Running tasks at once; 0: no limit.
    pub max_running: u32,
    /// Whether it gives out nothing.
    pub paused: bool,
    /// Properties for its tasks that say nothing themselves.
    pub launch_defaults: Patch,
}

impl Policy {
    /// The defaults, for a host with so many CPUs.
    pub fn for_cpus(cpus: u32) -> Self {
        const SECOND_MS: i64 = 1_000;
        const MINUTE_MS: i64 = 60 * SECOND_MS;
        const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
        Self {
            interval_ms: 30 * SECOND_MS,
            passes: Passes::ALL,
            linger_ms: 2 * MINUTE_MS,
            lease_ms: 15 * MINUTE_MS,
            stall_ms: None,
            launch: Launch::Auto,
            max_running: cpus.max(1),
            stop_grace_ms: 10 * SECOND_MS,
            failure_limit: 3,
            backoff_ms: 10 * SECOND_MS,
            backoff_max_ms: 5 * MINUTE_MS,
            tempfail_cooldown_ms: 5 * MINUTE_MS,
            retention_ms: 30 * DAY_MS,
            reserve_bytes: 8 * 1_024 * 1_024,
            limits: Limits::default(),
            queues: BTreeMap::new(),
            slots: BTreeMap::new(),
        }
    }
}
