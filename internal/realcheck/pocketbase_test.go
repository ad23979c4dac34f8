package realcheck

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	_ "github.com/pocketbase/pocketbase/migrations"

	"github.com/idempo/idempo/internal/crashtest"
)

// upstreamEnv names the data folder of PocketBase; the test binary that finds it is PocketBase, instead of a test.
const upstreamEnv = "IDEMPO_REALCHECK_UPSTREAM"

// orders is the path where records are made.
const orders = "/api/collections/orders/records"

func TestMain(m *testing.M) {
	dir, child := os.LookupEnv(upstreamEnv)
	if !child {
		flag.Uint64("seed", rand.Uint64(), "decides the cuts of TestPocketBaseCutAtPoints, which prints its own")
		os.Exit(m.Run())
	}
	if err := servePocketBase(dir); err != nil {
		fmt.Fprintln(os.Stderr, "pocketbase:", err)
		os.Exit(1)
	}
}

// servePocketBase runs until its input ends. It says where it serves.
func servePocketBase(dir string) error {
	stage := crashtest.NewStage("", "serving", os.Stdout)
	app := core.NewBaseApp(core.BaseAppConfig{DataDir: dir})
	if err := app.Bootstrap(); err != nil {
		return err
	}
	if err := app.RunAllMigrations(); err != nil {
		return err
	}
	c := core.NewBaseCollection("orders")
	c.Fields.Add(&core.TextField{Name: "intent", Required: true}, &core.NumberField{Name: "amount"})
	open := ""
	c.ListRule, c.ViewRule, c.CreateRule = &open, &open, &open
	if err := app.Save(c); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		e.Listener, e.InstallerFunc = ln, nil
		stage.At("serving", ln.Addr().String())
		return e.Next()
	})
	go func() {
		stage.Serve(os.Stdin, func(json.RawMessage) any { return nil })
		os.Exit(0)
	}()
	return apis.Serve(app, apis.ServeConfig{HttpAddr: ln.Addr().String()})
}

// startPocketBase starts an empty PocketBase and returns its address.
func startPocketBase(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := crashtest.Start(exe, upstreamEnv+"="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	var address string
	at, err := p.Await(t.Context(), "serving")
	if err == nil {
		err = json.Unmarshal(at.Say, &address)
	}
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// records returns the ids of the records that PocketBase has, by intent.
func records(ctx context.Context, address string) (map[string][]string, error) {
	all := map[string][]string{}
	for page, pages := 1, 1; page <= pages; page++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s%s?perPage=500&page=%d", address, orders, page), nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		var list struct {
			TotalPages int
			Items      []struct{ ID, Intent string }
		}
		err = json.NewDecoder(resp.Body).Decode(&list)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("list records: %s %w", resp.Status, err)
		}
		pages = list.TotalPages
		for _, r := range list.Items {
			all[r.Intent] = append(all[r.Intent], r.ID)
		}
	}
	return all, nil
}
