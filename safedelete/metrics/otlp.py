"""OpenTelemetry, over HTTP."""

from __future__ import annotations

from safedelete.core.event import ENVIRONMENT_LABEL, JOB_LABEL, NAMESPACE, RunEvent, lasting
from safedelete.metrics.addresses import SECONDS, web_address, without_password


class OtlpSink:
    """Gauges to an OTLP endpoint, flushed before it returns: the process is about to end.

    Args:
        url: The endpoint for metrics (``https://host:4318/v1/metrics``); empty for what ``$OTEL_EXPORTER_OTLP_ENDPOINT``
            and its kin say.
    """

    def __init__(self, url: str = "") -> None:
        self._url = web_address(url, "SAFEDELETE_METRICS") if url else None
        self.name = f"otlp:{without_password(url)}" if url else "otlp"

    def send(self, event: RunEvent) -> None:
        """Send the event's numbers.

        Raises:
            ConnectionError: They could not be delivered.
        """
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
        from opentelemetry.sdk.resources import Resource

        reader = InMemoryMetricReader()
        provider = MeterProvider(
            [reader], resource=Resource.create({"service.name": NAMESPACE}), shutdown_on_exit=False
        )
        meter = provider.get_meter(NAMESPACE)
        whose = {JOB_LABEL: event.job, ENVIRONMENT_LABEL: event.environment}
        for metric, number in lasting(event).items():
            gauge = meter.create_gauge(metric.series, unit=_UNITS[metric.unit], description=metric.meaning)
            gauge.set(number, {**whose, **dict(metric.labels)})
        data = reader.get_metrics_data()
        exporter = OTLPMetricExporter(endpoint=self._url, timeout=SECONDS)
        try:
            # Exported here rather than by a reader that exports: that one only logs a failure.
            if data is not None and exporter.export(data) is not MetricExportResult.SUCCESS:
                raise ConnectionError("the OTLP endpoint did not take the metrics")
        finally:
            exporter.shutdown()
            provider.shutdown()


_UNITS = {"Count": "1", "Seconds": "s", "Bytes": "By"}
