select {table advance_epoch}($window::interval)
