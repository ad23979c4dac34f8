select set_config('lock_timeout', '50', true)
