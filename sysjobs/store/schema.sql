-- The whole database, as it is in this version. CHECKs and unique indexes refuse rows that can't be true.
-- Times: microseconds since 1970. Deadlines: microseconds of CLOCK_MONOTONIC in the boot of boot_id.

-- Environments of submitters, each stored once: NAME=VALUE entries with a NUL after each.
CREATE TABLE environments (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    data BLOB NOT NULL
) STRICT;

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uid INTEGER NOT NULL CHECK (uid >= 0),
    gid INTEGER NOT NULL CHECK (gid >= 0),
    user TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Chosen by the client: a submit that is repeated with its key is the same job.
    key TEXT,
    -- What to run and where, as JSON (payload.py); fixed once submitted.
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    environment_id INTEGER REFERENCES environments (id),
    cpus INTEGER NOT NULL CHECK (cpus >= 0),
    memory INTEGER NOT NULL CHECK (memory >= 0),
    has_setup INTEGER NOT NULL CHECK (has_setup IN (0, 1)),
    time_limit REAL CHECK (time_limit > 0),
    grace REAL NOT NULL CHECK (grace >= 0),
    submitted_at INTEGER NOT NULL,

    status TEXT NOT NULL CHECK (status IN (
        'INIT', 'PENDING', 'SETTING_UP', 'RUNNING',
        'SUCCEEDED', 'FAILED', 'FAILED_SETUP', 'FAILED_DRIVER', 'CANCELLED')),
    reason_code TEXT,
    reason TEXT,
    attempt INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    boot_id TEXT,
    shard INTEGER CHECK (shard >= 0),
    started_at INTEGER,
    deadline INTEGER,
    invocation_id TEXT,
    running_at INTEGER,
    ended_at INTEGER,
    exit_code INTEGER,
    signal INTEGER,
    dumped INTEGER NOT NULL DEFAULT 0 CHECK (dumped IN (0, 1)),
    setup_exit_code INTEGER,
    setup_signal INTEGER,
    setup_dumped INTEGER NOT NULL DEFAULT 0 CHECK (setup_dumped IN (0, 1)),
    cancel_uid INTEGER,
    cancel_user TEXT,
    cancel_reason TEXT,
    cancel_at INTEGER,
    cancel_grace REAL,
    timed_out INTEGER NOT NULL DEFAULT 0 CHECK (timed_out IN (0, 1)),
    kill_at INTEGER,
    -- What it had of memory at most, in bytes, where that is known.
    peak_memory INTEGER CHECK (peak_memory >= 0),
    -- Higher ones start first.
    priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000),
    -- What has to come before a job waits for its turn: a time, other jobs (conditions.py), that nobody holds it.
    begin_at INTEGER,
    dependencies TEXT CHECK (dependencies IS NULL OR json_valid(dependencies)),
    held_uid INTEGER CHECK (held_uid IS NULL OR status = 'INIT'),
    held_user TEXT CHECK ((held_uid IS NULL) = (held_user IS NULL)),
    -- Devices in thousandths, of a model or of any; what the settings name, as JSON {name: count}.
    gpus INTEGER NOT NULL DEFAULT 0 CHECK (gpus >= 0),
    gpu_model TEXT NOT NULL DEFAULT '',
    others TEXT CHECK (others IS NULL OR json_valid(others)),
    -- What the launch gave it of which device, as JSON [[name, thousandths], ...].
    devices TEXT CHECK (devices IS NULL OR json_valid(devices)),
    -- Whether it gets no more than its CPUs though others are idle.
    hard_cpus INTEGER NOT NULL DEFAULT 0 CHECK (hard_cpus IN (0, 1)),
    -- A signal so many seconds before its time limit, and whether it has got that.
    notice_signal INTEGER CHECK (notice_signal BETWEEN 1 AND 64),
    notice_before REAL CHECK ((notice_before IS NULL) = (notice_signal IS NULL)),
    noticed INTEGER NOT NULL DEFAULT 0 CHECK (noticed IN (0, 1)),
    -- What it used, where that is known: microseconds of CPUs, bytes read from and written to disks.
    cpu_time INTEGER CHECK (cpu_time >= 0),
    io_read INTEGER CHECK (io_read >= 0),
    io_written INTEGER CHECK (io_written >= 0),
    -- The last signal that somebody had sent to it, and whether that is still to be done.
    sent_signal INTEGER CHECK (sent_signal BETWEEN 1 AND 64),
    sent_user TEXT CHECK ((sent_user IS NULL) = (sent_signal IS NULL)),
    sent_at INTEGER CHECK ((sent_at IS NULL) = (sent_signal IS NULL)),
    sent_everybody INTEGER NOT NULL DEFAULT 0 CHECK (sent_everybody IN (0, 1)),
    sent_due INTEGER NOT NULL DEFAULT 0 CHECK (sent_due IN (0, 1)),
    -- An array: which tasks it has and what their parameters are, and how far they are, as JSON (store/arrays.py).
    array_spec TEXT CHECK (array_spec IS NULL OR json_valid(array_spec)),
    array_state TEXT CHECK ((array_state IS NULL) = (array_spec IS NULL)),
    -- A task: of which array, and its index there. What it runs is in its array's row.
    array_id INTEGER,
    task INTEGER CHECK ((task IS NULL) = (array_id IS NULL)),
    -- How often it is tried again after which failures, as JSON (retry.py); the attempts before this one, as JSON
    -- (store/attempts.py); whether this one has ended, and another one follows; whose wish that is, as JSON.
    retry TEXT CHECK (retry IS NULL OR json_valid(retry)),
    past TEXT CHECK (past IS NULL OR json_valid(past)),
    over INTEGER NOT NULL DEFAULT 0 CHECK (over IN (0, 1)),
    requeue TEXT CHECK (requeue IS NULL OR json_valid(requeue)),

    CHECK ((reason_code IS NULL) = (reason IS NULL)),
    CHECK ((ended_at IS NOT NULL) = (status NOT IN ('INIT', 'PENDING', 'SETTING_UP', 'RUNNING'))),
    CHECK (ended_at IS NULL OR ended_at >= submitted_at),
    -- A launch is one fact: which boot, which slice, when.
    CHECK ((boot_id IS NULL) = (started_at IS NULL) AND (boot_id IS NULL) = (shard IS NULL)),
    CHECK (status NOT IN ('SETTING_UP', 'RUNNING') OR started_at IS NOT NULL),
    CHECK (status NOT IN ('INIT', 'PENDING') OR started_at IS NULL),
    CHECK (status <> 'SETTING_UP' OR has_setup),
    CHECK (status <> 'FAILED_SETUP' OR has_setup),
    CHECK (status <> 'SUCCEEDED' OR (exit_code IS 0 AND signal IS NULL)),
    CHECK (status NOT LIKE 'FAILED%' OR reason IS NOT NULL),
    CHECK (exit_code IS NULL OR signal IS NULL),
    CHECK (setup_exit_code IS NULL OR setup_signal IS NULL),
    CHECK ((cancel_at IS NULL) = (cancel_uid IS NULL)
        AND (cancel_at IS NULL) = (cancel_user IS NULL)
        AND (cancel_at IS NULL) = (cancel_reason IS NULL)
        AND (cancel_at IS NULL) = (cancel_grace IS NULL)),
    CHECK (kill_at IS NULL OR status IN ('SETTING_UP', 'RUNNING'))
) STRICT;

CREATE UNIQUE INDEX jobs_key ON jobs (uid, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX jobs_invocation ON jobs (invocation_id) WHERE invocation_id IS NOT NULL;
CREATE INDEX jobs_unfinished ON jobs (id) WHERE status IN ('INIT', 'PENDING', 'SETTING_UP', 'RUNNING');
CREATE INDEX jobs_of_user ON jobs (uid, id) WHERE array_id IS NULL;
CREATE UNIQUE INDEX jobs_task ON jobs (array_id, task);
