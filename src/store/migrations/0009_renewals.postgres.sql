-- When a credential was last renewed by itself, if it was since its owner set it.
ALTER TABLE credential ADD COLUMN renewed_ms BIGINT;
