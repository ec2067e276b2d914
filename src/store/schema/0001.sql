-- The board, as of schema 1.
--
-- The columns of the first lines of tasks, runs, events and comments are public: scripts read them. No
-- constraint forbids a broken claim: a restore, a hand edit or half a migration must be possible to hold,
-- because that is what reconciliation repairs.
-- *_ms are CLOCK_MONOTONIC milliseconds of the epoch in the same row; spans are *_ms too. *_usec are wall
-- clock microseconds. version counts the writes of a row: a verdict is applied only to the version it was
-- decided on.

CREATE TABLE tasks (
    task INTEGER PRIMARY KEY AUTOINCREMENT,
    status TEXT,
    queue TEXT,
    title TEXT,
    run INTEGER,
    failures INTEGER DEFAULT 0,
    max_runtime_ms INTEGER,

    body TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 0,
    owner_uid INTEGER NOT NULL DEFAULT 0,
    idempotency_key TEXT,
    not_before_usec INTEGER,
    program TEXT NOT NULL DEFAULT '{}',
    launchable INTEGER NOT NULL DEFAULT 0,
    slots TEXT,
    stop_signal INTEGER,
    stall_ms INTEGER,
    lease_ms INTEGER,
    stop_grace_ms INTEGER,
    failure_limit INTEGER,
    backoff_ms INTEGER,
    backoff_max_ms INTEGER,
    completion TEXT,

    pending_parents INTEGER NOT NULL DEFAULT 0,
    ready_seq INTEGER NOT NULL DEFAULT 0,
    retry_at_ms INTEGER,
    retry_epoch TEXT,
    block_code TEXT,
    block_reason TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    result TEXT,
    created_usec INTEGER NOT NULL DEFAULT 0,
    ended_usec INTEGER,
    ended_as TEXT,
    version INTEGER NOT NULL DEFAULT 0
);

-- What may be claimed now: in each lane by priority, then by the order of becoming ready.
CREATE INDEX tasks_ready ON tasks (launchable, queue, priority DESC, ready_seq, owner_uid)
    WHERE status = 'ready' AND retry_at_ms IS NULL;
-- What becomes due by the monotonic clock, and by the wall clock.
CREATE INDEX tasks_backoff ON tasks (retry_epoch, retry_at_ms)
    WHERE status = 'ready' AND retry_at_ms IS NOT NULL;
CREATE INDEX tasks_todo ON tasks (not_before_usec)
    WHERE status = 'todo' AND pending_parents <= 0;
CREATE INDEX tasks_running ON tasks (queue, owner_uid) WHERE status = 'running';
CREATE INDEX tasks_over ON tasks (ended_usec) WHERE status IN ('done', 'cancelled');
CREATE UNIQUE INDEX tasks_key ON tasks (owner_uid, idempotency_key)
    WHERE idempotency_key IS NOT NULL AND status <> 'archived';
CREATE INDEX tasks_by_status ON tasks (status);
CREATE INDEX tasks_by_owner ON tasks (owner_uid, status);

CREATE TABLE runs (
    run INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER,
    claimant TEXT,
    lease_expires_ms INTEGER,
    epoch TEXT,
    worker_pid INTEGER,
    worker_fingerprint,
    unit TEXT,
    stage TEXT,
    stop_cause TEXT,
    started_ms INTEGER,
    started_usec INTEGER,
    ended_usec INTEGER,
    outcome TEXT,

    attempt INTEGER NOT NULL DEFAULT 1,
    claimant_uid INTEGER,
    claim_key TEXT,
    worker_uid INTEGER,
    registered_uid INTEGER,
    lease_ms INTEGER,
    boot INTEGER,
    claimed_ms INTEGER,
    progress_ms INTEGER,
    launched INTEGER NOT NULL DEFAULT 0,
    nonce TEXT,
    slots TEXT,
    supervisor_pid INTEGER,
    supervisor_fingerprint,
    invocation TEXT,
    cgroup_path TEXT,
    cgroup_id INTEGER,
    stop_urgency INTEGER NOT NULL DEFAULT 0,
    stop_reason TEXT,
    term_ms INTEGER,
    kill_ms INTEGER,
    leader_gone_ms INTEGER,
    due_ms INTEGER,
    held TEXT,
    survivor INTEGER NOT NULL DEFAULT 0,

    word TEXT,
    final_failure INTEGER NOT NULL DEFAULT 0,
    summary TEXT,
    result TEXT,
    error TEXT,
    note TEXT,
    exit_code INTEGER,
    signal INTEGER,
    unclean INTEGER NOT NULL DEFAULT 0,
    last_pid INTEGER,
    last_kind TEXT,
    version INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX runs_by_task ON runs (task);
CREATE INDEX runs_open ON runs (task) WHERE ended_usec IS NULL;
-- When a run must be looked at next; rows written by hand have no such moment and are looked at each time.
CREATE INDEX runs_due ON runs (epoch, due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX runs_unarmed ON runs (epoch) WHERE ended_usec IS NULL AND due_ms IS NULL;
CREATE INDEX runs_launched ON runs (run) WHERE ended_usec IS NULL AND launched = 1;
CREATE INDEX runs_worker ON runs (worker_pid) WHERE ended_usec IS NULL AND worker_pid IS NOT NULL;
CREATE INDEX runs_claim_key ON runs (claimant_uid, claim_key)
    WHERE ended_usec IS NULL AND claim_key IS NOT NULL;
CREATE INDEX runs_survivor ON runs (task) WHERE survivor = 1;

CREATE TABLE events (
    event INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER,
    run INTEGER,
    kind TEXT,
    payload TEXT NOT NULL DEFAULT '{}',
    at_usec INTEGER
);

CREATE INDEX events_by_task ON events (task);

CREATE TABLE comments (
    comment INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER,
    author TEXT,
    body TEXT,
    at_usec INTEGER
);

CREATE INDEX comments_by_task ON comments (task);

-- satisfied is set once, when the parent becomes done, and never taken back.
CREATE TABLE edges (
    parent INTEGER NOT NULL,
    child INTEGER NOT NULL,
    satisfied INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;

CREATE INDEX edges_by_child ON edges (child);

CREATE TABLE labels (
    task INTEGER NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (task, label)
) WITHOUT ROWID;

CREATE INDEX labels_by_label ON labels (label, task);

-- served is the last run that was given out, so that queues are served in turn.
CREATE TABLE queues (
    queue TEXT PRIMARY KEY,
    max_running INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0,
    launch_defaults TEXT NOT NULL DEFAULT '{}',
    served INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

INSERT INTO queues (queue) VALUES ('default');

CREATE TABLE boots (
    boot INTEGER PRIMARY KEY AUTOINCREMENT,
    epoch TEXT NOT NULL,
    nonce TEXT NOT NULL,
    boottime_ms INTEGER NOT NULL,
    seen_usec INTEGER NOT NULL,
    shutdown_ms INTEGER
);

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT
) WITHOUT ROWID;

-- How many tasks there are of each kind, kept by triggers so that hand edits count too: limits and
-- statistics cost nothing on a large board.
CREATE TABLE tallies (
    owner_uid INTEGER NOT NULL,
    status TEXT NOT NULL,
    queue TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (owner_uid, status, queue)
) WITHOUT ROWID;

CREATE TRIGGER tasks_counted AFTER INSERT ON tasks BEGIN
    INSERT INTO tallies VALUES (NEW.owner_uid, ifnull(NEW.status, ''), ifnull(NEW.queue, ''), 1)
        ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;

CREATE TRIGGER tasks_recounted AFTER UPDATE OF status, queue, owner_uid ON tasks
WHEN OLD.status IS NOT NEW.status OR OLD.queue IS NOT NEW.queue OR OLD.owner_uid IS NOT NEW.owner_uid
BEGIN
    UPDATE tallies SET tasks = tasks - 1
        WHERE owner_uid = OLD.owner_uid AND status = ifnull(OLD.status, '') AND queue = ifnull(OLD.queue, '');
    INSERT INTO tallies VALUES (NEW.owner_uid, ifnull(NEW.status, ''), ifnull(NEW.queue, ''), 1)
        ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;

CREATE TRIGGER tasks_uncounted AFTER DELETE ON tasks BEGIN
    UPDATE tallies SET tasks = tasks - 1
        WHERE owner_uid = OLD.owner_uid AND status = ifnull(OLD.status, '') AND queue = ifnull(OLD.queue, '');
END;
