package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// Connector is what a change data capture tool needs to publish the outbox instead of a relay: see Store.Debezium.
type Connector struct {
	// Publication is the SQL that makes the publication and the replication slot; a superuser, or the tables' owner with
	// the right to replicate, runs it.
	Publication string
	// Config is the connector's configuration as JSON. Host, user and password are left to be filled in.
	Config []byte
}

// Debezium returns publication and configuration for Debezium's Outbox Event Router over this store's log: the event's id,
// key, payload as bytes, time and topic, and everything else as headers in the form of CloudEvents. slot names the
// replication slot of an external group (outbox.GroupParams), which the emptying of the log waits for.
//
// It refuses, with the reason, where payloads are encrypted: a connector would publish them so. Each column that it names
// is in the table with the type that the router takes; it is checked here.
func (s *Store) Debezium(ctx context.Context, slot string) (Connector, error) {
	if !sqlkit.Identifier(slot) {
		return Connector{}, misuse("cdc", idempo.Key{}, "the slot must match [a-z_][a-z0-9_]{0,39}")
	}
	if err := s.routable(ctx); err != nil {
		return Connector{}, err
	}
	name := s.names.Schema + "." + s.names.Prefix + "outbox"
	headers := []string{"source:header:ce_source", "type:header:ce_type", "appended_at:header:ce_time", "tenant_id:header:ce_tenant", "topic:header:ce_topic",
		"seq:header:ce_sequence", "key:header:ce_partitionkey", "content_type:header:content-type", "traceparent:header:traceparent",
		"tracestate:header:tracestate", "correlation_id:header:correlation-id", "key_ref:header:ce_keyref", "headers:header:idempo-headers"}
	config, err := json.MarshalIndent(map[string]string{
		"connector.class":  "io.debezium.connector.postgresql.PostgresConnector",
		"plugin.name":      "pgoutput",
		"publication.name": slot, "publication.autocreate.mode": "disabled", "slot.name": slot,
		"table.include.list": name, "tombstones.on.delete": "false", "skipped.operations": "u,d,t",
		"heartbeat.interval.ms": "10000", "binary.handling.mode": "bytes",
		"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "io.debezium.converters.BinaryDataConverter",
		"transforms":      "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.id": "id", "transforms.outbox.table.field.event.key": "key",
		"transforms.outbox.table.field.event.timestamp": "recorded_at", "transforms.outbox.table.field.payload": "payload",
		"transforms.outbox.route.by.field": "topic", "transforms.outbox.route.topic.replacement": "${routedByValue}",
		"transforms.outbox.table.fields.additional.placement": strings.Join(headers, ","),
	}, "", "  ")
	if err != nil {
		return Connector{}, err
	}
	return Connector{Config: config, Publication: fmt.Sprintf(`-- the root stands for every slot of the log
create publication "%[1]s" for table %[2]s with (publish = 'insert', publish_via_partition_root = true);
select pg_create_logical_replication_slot('%[1]s', 'pgoutput');
`, slot, s.names.Table("outbox"))}, nil
}

// columnTypes are what the router takes: a time as microseconds (a timestamp without time zone), payload as bytes, the
// rest as text, numbers or times.
const columnTypes = "id uuid,key text,payload bytea,recorded_at timestamp without time zone,topic text,source text,type text," +
	"appended_at timestamp with time zone,tenant_id text,seq bigint,content_type text,traceparent text,tracestate text,correlation_id text,key_ref text,headers text"

// routable checks the columns, and that nothing is encrypted.
func (s *Store) routable(ctx context.Context) error {
	types := map[string]string{}
	columns := s.q["outbox_columns"].with(nil)
	columns.Row = func(scan func(...any) error) error {
		var name, kind string
		err := scan(&name, &kind)
		types[name] = kind
		return err
	}
	sealed := false
	encrypted := s.q["outbox_sealed"].with(nil)
	encrypted.Row = func(scan func(...any) error) error { return scan(&sealed) }
	for _, st := range []Statement{columns, encrypted} {
		if err := s.run(ctx, nil, st); err != nil {
			return failed("cdc", idempo.Key{}, err, false)
		}
	}
	for want := range strings.SplitSeq(columnTypes, ",") {
		name, kind, _ := strings.Cut(want, " ")
		if types[name] != kind {
			return misuse("cdc", idempo.Key{}, fmt.Sprintf("column %s of table outbox is %q, a connector needs %q: run idempo migrate up", name, types[name], kind))
		}
	}
	if sealed {
		return misuse("cdc", idempo.Key{}, "payloads are encrypted in the store, and a connector would publish them so: publish by idempo relay, which opens them")
	}
	return nil
}
