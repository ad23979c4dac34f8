-- A row of a lane that has none, to be locked until the transaction ends; lane_untake takes it away before anybody sees it.
insert into {table lanes} (tenant_id, subscriber, lane, created_at, changed_at) values ($tenant_id, $subscriber, $lane, $at, $at)
on duplicate key update changed_at = changed_at + interval 0 * last_insert_id(1) second
