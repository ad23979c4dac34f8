-- Stores the places that are still the owner's, and says which are. A snapshot of before a crash of the server is not stored: $places
-- names the life of the server it was read in. This transaction has its number after every snapshot that it stores was taken.
with given as (
    select g.*, $wins::jsonb ->> g.win as window_text from jsonb_to_recordset($places::jsonb) g (part int, fence bigint, win int, seq bigint, alive text)
),
t as materialized (select coalesce($at, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as now),
mine as materialized (
    select c.part, g.window_text, g.seq from {table outbox_cursors} c join given g on g.part = c.part, t
    where c.group_name = $group and c.owner = $owner and c.fence = g.fence
        and exists (select from {table outbox_relays} r where r.group_name = $group and r.owner = $owner and r.until_at > t.now)
        and (g.alive is null or g.alive = (select a.token from {table outbox_alive} a))
    order by c.part for update of c
),
moved as (
    update {table outbox_cursors} c set win = m.window_text, seq = m.seq, starts = 0, moved_at = t.now
    from mine m, t where c.group_name = $group and c.part = m.part and m.window_text is not null
)
select part from mine
