-- Higher ones start first.
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000);
-- What has to come before a job waits for its turn: a time, other jobs (conditions.py), that nobody holds it.
ALTER TABLE jobs ADD COLUMN begin_at INTEGER;
ALTER TABLE jobs ADD COLUMN dependencies TEXT CHECK (dependencies IS NULL OR json_valid(dependencies));
ALTER TABLE jobs ADD COLUMN held_uid INTEGER CHECK (held_uid IS NULL OR status = 'INIT');
ALTER TABLE jobs ADD COLUMN held_user TEXT CHECK ((held_uid IS NULL) = (held_user IS NULL));
