package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// into copies what is set in v to dst, a pointer to a struct whose fields carry the names of the schema as yaml tags.
// What is not set stays zero, which means the default of the type. A schema key without a field, or a kind that does not
// fit, panics: both are mistakes of the program, and a test decodes every key.
func (v *value) into(dst any) { v.fill(reflect.ValueOf(dst).Elem()) }

func (v *value) fill(dst reflect.Value) {
	if !v.set {
		v.markAll()
		return
	}
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	switch v.field.kind {
	case section:
		for _, m := range v.members {
			v.at(m.name).fill(tagged(dst, m))
		}
	case list:
		dst.Set(reflect.MakeSlice(dst.Type(), len(v.members), len(v.members)))
		for i, m := range v.members {
			m.fill(dst.Index(i))
		}
	case mapping:
		dst.Set(reflect.MakeMapWithSize(dst.Type(), len(v.members)))
		for _, m := range v.members {
			item := reflect.New(dst.Type().Elem()).Elem()
			m.fill(item)
			dst.SetMapIndex(mapKey(m.name, dst.Type().Key()), item)
		}
	default:
		v.fillScalar(dst)
	}
}

func (v *value) fillScalar(dst reflect.Value) {
	switch kind := v.field.kind; {
	case kind == anything:
		if v.any != nil {
			dst.Set(reflect.ValueOf(v.any))
		}
	case kind == truth && dst.Kind() == reflect.Bool:
		dst.SetBool(v.isTrue())
	case (kind == whole || kind == size) && dst.CanInt() && dst.Type() != reflect.TypeFor[time.Duration]():
		dst.SetInt(v.num)
	case kind == duration && dst.Type() == reflect.TypeFor[time.Duration]():
		dst.SetInt(v.num)
	case (kind == text || kind == word || kind == path) && dst.Kind() == reflect.String:
		dst.SetString(v.text)
	default:
		panic(fmt.Sprintf("config: %s does not fit %s", v.path, dst.Type()))
	}
}

// tagged finds the field of a struct for a member.
func tagged(dst reflect.Value, m *value) reflect.Value {
	t := dst.Type()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name == m.name {
			return dst.Field(i)
		}
	}
	panic(fmt.Sprintf("config: %s has no field for %s", t, m.path))
}

func mapKey(name string, t reflect.Type) reflect.Value {
	if t.Kind() == reflect.Int {
		n, err := parseWhole(name)
		if err != nil {
			panic("config: name " + name + " is no number")
		}
		return reflect.ValueOf(int(n))
	}
	return reflect.ValueOf(name).Convert(t)
}

// markAll notes that a place whose defaults are those of the Go type was decoded.
func (v *value) markAll() {
	for _, m := range v.members {
		v.at(m.name).markAll()
	}
}
