package idempo

// QuotaTenants is the number of tenants whose usage is kept.
func (e *Engine) QuotaTenants() int {
	e.quota.mu.Lock()
	defer e.quota.mu.Unlock()
	return len(e.quota.tenants)
}
