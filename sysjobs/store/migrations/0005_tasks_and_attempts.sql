-- An array: which tasks it has and what their parameters are, and how far they are, as JSON (store/arrays.py).
ALTER TABLE jobs ADD COLUMN array_spec TEXT CHECK (array_spec IS NULL OR json_valid(array_spec));
ALTER TABLE jobs ADD COLUMN array_state TEXT CHECK ((array_state IS NULL) = (array_spec IS NULL));
-- A task: of which array, and its index there. What it runs is in its array's row.
ALTER TABLE jobs ADD COLUMN array_id INTEGER;
ALTER TABLE jobs ADD COLUMN task INTEGER CHECK ((task IS NULL) = (array_id IS NULL));
-- How often it is tried again after which failures, as JSON (retry.py); the attempts before this one, as JSON
-- (store/attempts.py); whether this one has ended, and another one follows; whose wish that is, as JSON.
ALTER TABLE jobs ADD COLUMN retry TEXT CHECK (retry IS NULL OR json_valid(retry));
ALTER TABLE jobs ADD COLUMN past TEXT CHECK (past IS NULL OR json_valid(past));
ALTER TABLE jobs ADD COLUMN over INTEGER NOT NULL DEFAULT 0 CHECK (over IN (0, 1));
ALTER TABLE jobs ADD COLUMN requeue TEXT CHECK (requeue IS NULL OR json_valid(requeue));
DROP INDEX jobs_of_user;
CREATE INDEX jobs_of_user ON jobs (uid, id) WHERE array_id IS NULL;
CREATE UNIQUE INDEX jobs_task ON jobs (array_id, task);
