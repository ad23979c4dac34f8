package operator

import "slices"

// Role is what a principal may do; each includes the ones before.
type Role string

const (
	// RoleViewer sees metadata.
	RoleViewer Role = "viewer"
	// RoleOperator resolves, releases, retries and skips as well.
	RoleOperator Role = "operator"
	// RoleAdmin purges, discards and reveals stored answers as well.
	RoleAdmin Role = "admin"
)

// Principal is who asks. The zero value may do nothing.
type Principal struct {
	Actor   string   // as the audit names it
	Role    Role     //
	Tenants []string // the only ones it sees; nil: all
	Channel string   // cli, api, dashboard
}

// may says whether the role allows a.
func (p Principal) may(a Action) bool {
	switch a {
	case ActionPurge, ActionDiscard, ActionReveal, ActionRemove, ActionAdopt:
		return p.Role == RoleAdmin
	}
	return p.Role == RoleOperator || p.Role == RoleAdmin
}

// reads says whether it is anybody at all.
func (p Principal) reads() bool {
	return p.Role == RoleViewer || p.Role == RoleOperator || p.Role == RoleAdmin
}

// sees says whether the tenant is one of its own.
// Sees says whether what belongs to a tenant may be shown to p.
func (p Principal) Sees(tenant string) bool { return p.reads() && p.sees(tenant) }

func (p Principal) sees(tenant string) bool {
	return p.Tenants == nil || slices.Contains(p.Tenants, tenant)
}

// tenants are those to ask for where the filter says tenant: "" stands for all, none for nothing.
func (p Principal) tenants(tenant string) []string {
	switch {
	case p.Tenants == nil:
		return []string{tenant}
	case tenant == "":
		all := slices.Clone(p.Tenants)
		slices.Sort(all)
		return slices.Compact(all)
	case p.sees(tenant):
		return []string{tenant}
	}
	return nil
}
