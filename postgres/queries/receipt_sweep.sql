-- Receipts that are over go. Rows that somebody has locked wait for the next batch.
with over as (select r.tenant_id, r.receipt_key from {table receipts} r
    where r.subscriber = $subscriber and r.gone_at <= coalesce($now, clock_timestamp()) limit $limit for update of r skip locked),
gone as (delete from {table receipts} r using over o where r.tenant_id = o.tenant_id and r.subscriber = $subscriber and r.receipt_key = o.receipt_key returning 1)
select count(*) from gone
