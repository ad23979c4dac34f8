delete from {table lanes} where tenant_id = $tenant_id and subscriber = $subscriber and lane = $lane
