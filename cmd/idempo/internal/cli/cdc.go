package cli

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

func (a *app) outboxCDCCommand() *cobra.Command {
	var connector, group, slot, topics string
	c := &cobra.Command{
		Use: "cdc", Short: "print what change data capture needs to publish the outbox",
		Long: "Print the publication in SQL and the configuration of a Debezium connector with its Outbox Event Router, for teams that publish\n" +
			"by change data capture instead of a relay. Nothing is connected to.",
		Example:     "idempo outbox cdc --connector debezium\nidempo outbox cdc --connector debezium --slot idempo_cdc --topic-prefix shop.",
		Annotations: exits(exitUnsafe),
		RunE: func(c *cobra.Command, _ []string) error {
			if f := checkWord("--connector", connector, "debezium"); f != nil {
				return f
			}
			s, err := a.settings(c)
			if err != nil {
				return err
			}
			if len(s.Encrypt.Keys) > 0 {
				return &failure{exit: exitUnsafe, code: "encrypted", message: "payloads are encrypted in the store, and a connector would publish them so",
					hint: "publish by idempo relay, which opens them"}
			}
			if s.Store.MySQL != "" || s.Store.Postgres == "" {
				return usage("change data capture is for PostgreSQL: give --store postgres://…")
			}
			return a.printCDC(s.Store, group, slot, topics)
		},
	}
	f := c.Flags()
	f.StringVar(&connector, "connector", "debezium", "`kind` of connector: debezium")
	f.StringVar(&group, "group", "cdc", "`name` of the group that stands for it")
	f.StringVar(&slot, "slot", "idempo_cdc", "`name` of the replication slot")
	f.StringVar(&topics, "topic-prefix", "", "`text` before each topic")
	completeWords(c, "connector", "debezium")
	a.storeFlags(c)
	return c
}

// cdcColumns are the columns of the log that a connector reads, each with what it becomes. They are columns, since a view
// cannot be captured.
func cdcColumns() (id, key, payload, at, topic, kind string, headers []string) {
	return "id", "key", "payload", "recorded_at", "topic", "type", []string{"source", "tenant_id", "content_type", "seq", "headers", "traceparent", "tracestate", "correlation_id", "key_ref"}
}

// printCDC prints SQL as comments and statements, then the connector as JSON.
func (a *app) printCDC(s config.Store, group, slot, prefix string) error {
	schema := s.Schema
	if schema == "" {
		schema = "idempo"
	}
	table := schema + "." + s.Prefix + "outbox"
	id, key, payload, at, topic, kind, headers := cdcColumns()
	a.out.line("-- once, as the owner of the tables:")
	a.out.line("create publication " + slot + " for table " + table + " with (publish = 'insert', publish_via_partition_root = true);")
	a.out.line("-- and so that rows are kept until the slot has passed them:")
	a.out.line("--   idempo outbox groups add " + group + " --external --slot " + slot + " --from now --reason \"Debezium\" --yes")
	place := []string{kind + ":header:ce_type"}
	names := map[string]string{"source": "ce_source", "tenant_id": "ce_tenant", "content_type": "content-type", "seq": "ce_sequence", "headers": "idempo-headers",
		"traceparent": "traceparent", "tracestate": "tracestate", "correlation_id": "correlation-id", "key_ref": "ce_keyref"}
	for _, h := range headers {
		place = append(place, h+":header:"+names[h])
	}
	connector := struct {
		Name   string            `json:"name"`
		Config map[string]string `json:"config"`
	}{slot, map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput", "publication.name": slot,
		"publication.autocreate.mode": "disabled", "slot.name": slot, "topic.prefix": "idempo", "table.include.list": table, "tombstones.on.delete": "false",
		"database.hostname": "${env:PGHOST}", "database.port": "${env:PGPORT}", "database.user": "${env:PGUSER}", "database.password": "${env:PGPASSWORD}",
		"database.dbname": "${env:PGDATABASE}",
		"transforms":      "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.id": id, "transforms.outbox.table.field.event.key": key, "transforms.outbox.table.field.event.payload": payload,
		"transforms.outbox.table.field.event.timestamp": at, "transforms.outbox.route.by.field": topic, "transforms.outbox.route.topic.replacement": prefix + "${routedByValue}",
		"transforms.outbox.table.fields.additional.placement": strings.Join(place, ","), "transforms.outbox.table.op.invalid.behavior": "warn",
		"value.converter": "io.debezium.converters.BinaryDataConverter", "key.converter": "org.apache.kafka.connect.storage.StringConverter",
		"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}}
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(connector)
}
