package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/idempo/idempo/gateway"
)

// TestEveryGatewayFieldHasAKey: a setting that the gateway has and the file cannot name would be found by nobody.
func TestEveryGatewayFieldHasAKey(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	schema().walk("", func(p string, _ *field) { keys[p] = true })
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for {
			switch {
			case typ.Kind() == reflect.Pointer:
				typ = typ.Elem()
				continue
			case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
				prefix, typ = prefix+"[]", typ.Elem()
				continue
			case typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.Struct:
				prefix, typ = prefix+".*", typ.Elem()
				continue
			}
			break
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			if p := prefix + "." + name; !keys[p] {
				t.Errorf("%s.%s: no key %s", typ, field.Name, p)
			} else {
				walk(p, field.Type)
			}
		}
	}
	walk("gateway", reflect.TypeFor[gateway.Config]())
	walk("limits", reflect.TypeFor[gateway.Limits]())
	walk("outbound", reflect.TypeFor[gateway.Outbound]())
}
