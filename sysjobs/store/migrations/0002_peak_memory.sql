-- What a job had of memory at most, in bytes, where that is known.
ALTER TABLE jobs ADD COLUMN peak_memory INTEGER CHECK (peak_memory >= 0);
