package contract

import "regexp"

var notName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// AsyncAPI is what consumers promise, as an AsyncAPI 3.0 document.
func (c *Contract) AsyncAPI() *Node {
	channels, operations := object(), object()
	for _, s := range c.Consumers {
		name := notName.ReplaceAllString(s.Name, "_")
		message := object("name", name)
		if id := s.Message.ID; id != nil && id.In == "header" && id.Name != "" {
			headers := object("type", "object", "properties", object(id.Name, object("type", "string", "description", "the identity of the message, the same on every delivery")))
			if id.Required != nil && *id.Required {
				headers.set("required", node([]string{id.Name}))
			}
			message.set("headers", headers)
		}
		channels.set(name, object("address", s.Channel, "messages", object(name, message)))
		operations.set("receive_"+name, object("action", "receive", "channel", object("$ref", "#/channels/"+name),
			"messages", []*Node{object("$ref", "#/channels/"+name+"/messages/"+name)}, "x-idempotency", nodeOf(s.Message)))
	}
	return object("asyncapi", "3.0.0", "info", object("title", c.Title, "version", c.Version), "channels", channels, "operations", operations)
}
