-- Receipts that are over go.
delete from {table receipts} where subscriber = $subscriber and gone_at <= $at limit $limit
