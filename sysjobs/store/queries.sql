-- name: environment
SELECT id FROM environments WHERE hash = :hash

-- name: add_environment
INSERT INTO environments (hash, data) VALUES (:hash, :data) RETURNING id

-- name: find_key
SELECT id FROM jobs WHERE uid = :uid AND key = :key

-- name: add_job
INSERT INTO jobs (
    uid, gid, user, name, key, payload, environment_id, cpus, memory, has_setup, time_limit, grace,
    submitted_at, priority, begin_at, dependencies, held_uid, held_user, status,
    gpus, gpu_model, others, hard_cpus, notice_signal, notice_before, array_spec, array_state,
    retry
) VALUES (
    :uid, :gid, :user, :name, :key, :payload, :environment_id, :cpus, :memory, :has_setup, :time_limit, :grace,
    :submitted_at, :priority, :begin_at, :dependencies, :held_uid, :held_user, :status,
    :gpus, :gpu_model, :others, :hard_cpus, :notice_signal, :notice_before, :array_spec, :array_state,
    :retry
) RETURNING id

-- name: add_task
INSERT INTO jobs (
    uid, gid, user, name, payload, cpus, memory, has_setup, time_limit, grace, submitted_at, priority, status,
    gpus, gpu_model, others, hard_cpus, notice_signal, notice_before, retry, array_id, task
) SELECT
    uid, gid, user, name, 'null', cpus, memory, has_setup, time_limit, grace, submitted_at, priority, 'PENDING',
    gpus, gpu_model, others, hard_cpus, notice_signal, notice_before, retry, id, :task
FROM jobs WHERE id = :id RETURNING id

-- name: tasks
SELECT jobs.task, jobs.id FROM json_each(:ranges) AS wanted CROSS JOIN jobs
ON array_id = :id AND task BETWEEN wanted.value ->> 0 AND wanted.value ->> 1

-- name: begin_ids
INSERT INTO sqlite_sequence (name, seq)
SELECT 'jobs', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'jobs')

-- name: reserve_ids
UPDATE sqlite_sequence SET seq = max(seq, :id) WHERE name = 'jobs'

-- name: last_id
SELECT seq FROM sqlite_sequence WHERE name = 'jobs'

-- name: save_job
UPDATE jobs SET
    status = :status, reason_code = :reason_code, reason = :reason, attempt = :attempt, boot_id = :boot_id,
    shard = :shard, started_at = :started_at, deadline = :deadline, invocation_id = :invocation_id,
    running_at = :running_at, ended_at = :ended_at, exit_code = :exit_code, signal = :signal, dumped = :dumped,
    setup_exit_code = :setup_exit_code, setup_signal = :setup_signal, setup_dumped = :setup_dumped,
    cancel_uid = :cancel_uid, cancel_user = :cancel_user, cancel_reason = :cancel_reason,
    cancel_at = :cancel_at, cancel_grace = :cancel_grace, timed_out = :timed_out, kill_at = :kill_at,
    peak_memory = :peak_memory, cpu_time = :cpu_time, io_read = :io_read, io_written = :io_written, held_uid = :held_uid, held_user = :held_user, dependencies = :dependencies, devices = :devices, noticed = :noticed,
    sent_signal = :sent_signal, sent_user = :sent_user, sent_at = :sent_at, sent_everybody = :sent_everybody,
    sent_due = :sent_due, array_state = :array_state, begin_at = :begin_at, past = :past, over = :over, requeue = :requeue,
    priority = :priority, cpus = :cpus, memory = :memory, gpus = :gpus, gpu_model = :gpu_model, time_limit = :time_limit
WHERE id = :id

-- name: payload
SELECT jobs.id, jobs.payload, jobs.environment_id, data, own.task, jobs.array_spec
FROM jobs AS own JOIN jobs ON jobs.id = coalesce(own.array_id, own.id)
LEFT JOIN environments ON environments.id = jobs.environment_id WHERE own.id = :id

-- name: own_payload
SELECT payload, environment_id, data, NULL AS task
FROM jobs LEFT JOIN environments ON environments.id = environment_id WHERE jobs.id = :id

-- name: job
SELECT * FROM jobs WHERE id = :id

-- name: jobs
SELECT jobs.* FROM json_each(:ids) AS wanted CROSS JOIN jobs ON jobs.id = wanted.value ORDER BY jobs.id

-- name: uses
SELECT uid, cpus, started_at, ended_at FROM jobs
WHERE id > (SELECT coalesce(max(id), 0) - :jobs FROM jobs) AND started_at IS NOT NULL AND cpus > 0
    AND array_spec IS NULL

-- name: unfinished
SELECT * FROM jobs WHERE status IN ('INIT', 'PENDING', 'SETTING_UP', 'RUNNING') ORDER BY id

-- name: sums
SELECT :key, count(*), sum(status = 'SUCCEEDED'), sum(status LIKE 'FAILED%'), sum(status = 'CANCELLED'),
    total(cpu_time / 1e6), total((ended_at - started_at) / 1e6 * cpus / 1e3),
    total((ended_at - started_at) / 1e6 * gpus / 1e3), total((ended_at - started_at) / 1e6),
    total((coalesce(started_at, ended_at) - submitted_at) / 1e6), max(peak_memory)
FROM jobs
WHERE id BETWEEN :first AND :last AND ended_at >= :since AND (:until IS NULL OR ended_at < :until)
    AND (:uid IS NULL OR uid = :uid) AND array_spec IS NULL
GROUP BY 1
