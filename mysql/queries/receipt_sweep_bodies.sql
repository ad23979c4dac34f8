-- Bodies and headers that are over go; what they belong to stays.
update {table receipts} set body = null, headers = null, sealed = ''
where subscriber = $subscriber and body_until <= $at and body is not null limit $limit
