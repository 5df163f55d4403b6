-- Keys that end by themselves, and when each was last used.
-- The file of the same number for PostgreSQL has the same columns.

-- `expires_at` NULL: never. `last_used_at`: to the minute, NULL = never yet.
ALTER TABLE api_key ADD COLUMN expires_at INTEGER;
ALTER TABLE api_key ADD COLUMN last_used_at INTEGER;
