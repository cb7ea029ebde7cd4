"""Where events go: a log line, CloudWatch, Prometheus, OpenTelemetry, a ping, a message to a person."""
