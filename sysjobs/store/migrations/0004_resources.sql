-- Devices in thousandths, of a model or of any; what the settings name, as JSON {name: count}.
ALTER TABLE jobs ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0 CHECK (gpus >= 0);
ALTER TABLE jobs ADD COLUMN gpu_model TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN others TEXT CHECK (others IS NULL OR json_valid(others));
-- What the launch gave it of which device, as JSON [[name, thousandths], ...].
ALTER TABLE jobs ADD COLUMN devices TEXT CHECK (devices IS NULL OR json_valid(devices));
-- Whether it gets no more than its CPUs though others are idle.
ALTER TABLE jobs ADD COLUMN hard_cpus INTEGER NOT NULL DEFAULT 0 CHECK (hard_cpus IN (0, 1));
-- A signal so many seconds before its time limit, and whether it has got that.
ALTER TABLE jobs ADD COLUMN notice_signal INTEGER CHECK (notice_signal BETWEEN 1 AND 64);
ALTER TABLE jobs ADD COLUMN notice_before REAL CHECK ((notice_before IS NULL) = (notice_signal IS NULL));
ALTER TABLE jobs ADD COLUMN noticed INTEGER NOT NULL DEFAULT 0 CHECK (noticed IN (0, 1));
-- What it used, where that is known: microseconds of CPUs, bytes read from and written to disks.
ALTER TABLE jobs ADD COLUMN cpu_time INTEGER CHECK (cpu_time >= 0);
ALTER TABLE jobs ADD COLUMN io_read INTEGER CHECK (io_read >= 0);
ALTER TABLE jobs ADD COLUMN io_written INTEGER CHECK (io_written >= 0);
-- The last signal that somebody had sent to it, and whether that is still to be done.
ALTER TABLE jobs ADD COLUMN sent_signal INTEGER CHECK (sent_signal BETWEEN 1 AND 64);
ALTER TABLE jobs ADD COLUMN sent_user TEXT CHECK ((sent_user IS NULL) = (sent_signal IS NULL));
ALTER TABLE jobs ADD COLUMN sent_at INTEGER CHECK ((sent_at IS NULL) = (sent_signal IS NULL));
ALTER TABLE jobs ADD COLUMN sent_everybody INTEGER NOT NULL DEFAULT 0 CHECK (sent_everybody IN (0, 1));
ALTER TABLE jobs ADD COLUMN sent_due INTEGER NOT NULL DEFAULT 0 CHECK (sent_due IN (0, 1));
