// Package deploy holds what runs idempo somewhere: alerts and their tests for Prometheus, a dashboard for Grafana, a container file, a
// compose file and a unit for systemd. Its Go is the Grafana dashboard, which is made by it and checked in, and the tests of
// all the rest: that alerts fire and are silent where they should, that neither names a metric that is not exported, that the
// image holds nothing but the binary, that the unit is what systemd accepts.
//
// Nothing imports it. Layer: application.
package deploy
