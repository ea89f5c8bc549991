-- An array: which tasks it has and what their parameters are, and how far they are, as JSON (store/arrays.py).
ALTER TABLE jobs ADD COLUMN array_spec TEXT CHECK (array_spec IS NULL OR json_valid(array_spec));
ALTER TABLE jobs ADD COLUMN array_state TEXT CHECK ((array_state IS NULL) = (array_spec IS NULL));
-- A task: of which array, and its index there. What it runs is in its array's row.
ALTER TABLE jobs ADD COLUMN array_id INTEGER;
ALTER TABLE jobs ADD COLUMN task INTEGER CHECK ((task IS NULL) = (array_id IS NULL));
DROP INDEX jobs_of_user;
CREATE INDEX jobs_of_user ON jobs (uid, id) WHERE array_id IS NULL;
CREATE UNIQUE INDEX jobs_task ON jobs (array_id, task);
