-- Bodies and headers that are over go; what they belong to stays.
with over as (select r.tenant_id, r.receipt_key from {table receipts} r
    where r.subscriber = $subscriber and r.body is not null and r.body_until <= coalesce($now, clock_timestamp()) limit $limit for update of r skip locked),
gone as (update {table receipts} r set body = null, headers = null, sealed = '' from over o
    where r.tenant_id = o.tenant_id and r.subscriber = $subscriber and r.receipt_key = o.receipt_key returning 1)
select count(*) from gone
