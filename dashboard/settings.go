package dashboard

import (
	"net/http"

	"github.com/idempo/idempo"
)

// settingsPage is what was declared, and with what the process runs.
type settingsPage struct {
	Operations []idempo.Operation
	Settings   []Setting
	Role       string
	Tenants    []string
}

func (h *Handler) settings(v *visit) error {
	p := settingsPage{Role: string(v.by.Role), Tenants: v.by.Tenants}
	if h.config.Operations != nil {
		p.Operations = h.config.Operations()
	}
	if h.config.Settings != nil && v.by.Tenants == nil {
		p.Settings = h.config.Settings()
	}
	v.render(http.StatusOK, "settings", pageData{Title: "Settings", Nav: "settings", Body: p})
	return nil
}
