-- 1: another gateway had approved this definition, and handed it on. Here that approves nothing.
ALTER TABLE pin_version ADD COLUMN vouched BIGINT NOT NULL DEFAULT 0;
