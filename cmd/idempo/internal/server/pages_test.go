package server_test

import (
	"database/sql"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

func TestDashboard(t *testing.T) {
	t.Parallel()
	dir, u := t.TempDir(), newUpstream(t)
	s := running(t, settings(t, dir, "", behind(u)), server.Options{})
	admin := "http://" + s.AdminAddr().String()
	t.Run("[operations/UI1] a token is made on first start, mode 0600, and stays; the banner's link logs in", func(t *testing.T) {
		file := filepath.Join(dir, "admin.token")
		st, err := os.Stat(file)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Fatal(st, err)
		}
		token, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"", "Bearer wrong"} {
			if a := call(t, "GET", admin+"/api/v1/keys", "", "", "Authorization", secret); a.status != 401 || strings.Contains(a.body, "k_") {
				t.Error(a.status, a.body)
			}
		}
		if a := call(t, "GET", admin+"/api/v1/keys", "", "", "Authorization", "Bearer "+strings.TrimSpace(string(token))); a.status != 200 {
			t.Error(a.status, a.body)
		}
		code := regexp.MustCompile(`code=([A-Z2-7]{26})`).FindStringSubmatch(s.Banner())
		if code == nil || strings.Contains(s.Banner(), strings.TrimSpace(string(token))) {
			t.Fatal(s.Banner())
		}
		form := url.Values{"code": {code[1]}, "name": {"ann"}}
		r, err := http.NewRequestWithContext(t.Context(), "POST", admin+"/login", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", admin)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusSeeOther || !strings.Contains(resp.Header.Get("Set-Cookie"), "idempo_session=") {
			t.Error(resp.StatusCode, resp.Header)
		}
		other := running(t, settings(t, dir, "", behind(u)), server.Options{})
		if again, err := os.ReadFile(file); err != nil || string(again) != string(token) {
			t.Error(again, err)
		}
		if a := call(t, "GET", "http://"+other.AdminAddr().String()+"/api/v1/keys", "", "", "Authorization", "Bearer "+strings.TrimSpace(string(token))); a.status != 200 {
			t.Error(a.status)
		}
	})
	t.Run("[operations/UI5] only under the names of this machine; health and metrics under any", func(t *testing.T) {
		for path, status := range map[string]int{"/keys": 421, "/login": 421, "/api/v1/keys": 421, "/healthz": 200, "/metrics": 200} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "evil.example"
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != status {
				t.Error(path, resp.StatusCode)
			}
		}
	})
	t.Run("[operations/UI1] without a login, on loopback, everybody is admin", func(t *testing.T) {
		open := running(t, settings(t, t.TempDir(), "dashboard: {auth: none}\n", behind(u)), server.Options{})
		if a := call(t, "GET", "http://"+open.AdminAddr().String()+"/", "", ""); a.status != 200 || !strings.Contains(a.body, "Nothing is in doubt") {
			t.Error(a.status, a.body)
		}
		if !strings.Contains(open.Banner(), "without a login") {
			t.Error(open.Banner())
		}
	})
	t.Run("[security/SEC27] a row that cannot be read is listed as unreadable, on the page and in the API", func(t *testing.T) {
		dir := t.TempDir()
		open := running(t, settings(t, dir, "dashboard: {auth: none}\n", behind(u)), server.Options{})
		for _, key := range []string{"one", "two"} {
			if a := call(t, "POST", "http://"+open.Addr().String()+"/charge", key, "{}"); a.status >= 300 {
				t.Fatal(a.status, a.body)
			}
		}
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "idempo.db")+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		res, err := db.ExecContext(t.Context(), "UPDATE idempo_records SET response_headers = CAST('garbage' AS BLOB) WHERE rowid = (SELECT min(rowid) FROM idempo_records)")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		admin := "http://" + open.AdminAddr().String()
		if a := call(t, "GET", admin+"/api/v1/keys", "", ""); a.status != 200 || strings.Count(a.body, `"state":"unreadable"`) != 1 || strings.Count(a.body, `"state":"completed"`) != 1 {
			t.Error(a.status, a.body)
		}
		if a := call(t, "GET", admin+"/keys", "", ""); a.status != 200 || strings.Count(a.body, "</svg>unreadable") != 1 || !strings.Contains(a.body, "</svg>completed") {
			t.Error(a.status, a.body)
		}
	})
}
