update {table outbox_cursors} c set win = $win, seq = 0, owner = '', fence = c.fence + 1
from {table outbox_groups} g where g.name = c.group_name and g.identity <> $identity
