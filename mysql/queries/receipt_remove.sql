delete from {table receipts} where tenant_id = $tenant_id and subscriber = $subscriber and receipt_key = $receipt_key and ($rev = 0 or rev = $rev)
