-- Excludes every claim, so that each is either lost or of the new epoch.
lock tables {table records} write, {table meta} write
