"""CloudWatch, by PutMetricData."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from safedelete.core.event import NAMESPACE, RunEvent, dimensions, numbers

if TYPE_CHECKING:
    from botocore.client import BaseClient


def client() -> Any:
    """Return a CloudWatch client that gives up within seconds."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "cloudwatch",
        config=Config(
            connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2}
        ),
    )


class CloudWatchSink:
    """PutMetricData, one request an event. Needs ``cloudwatch:PutMetricData``; where the log goes to CloudWatch anyway,
    ``emf`` needs nothing.

    Args:
        connect: Makes the client, when it is first needed.
    """

    name = "cloudwatch"

    def __init__(self, connect: Callable[[], BaseClient] = client) -> None:
        self._connect = connect

    def send(self, event: RunEvent) -> None:
        """Send the event's numbers."""
        connection: Any = self._connect()
        whose = [
            {"Name": name, "Value": value} for name, value in dimensions(event.job, event.environment).items()
        ]
        connection.put_metric_data(
            Namespace=NAMESPACE,
            MetricData=[
                {
                    "MetricName": metric.name,
                    "Dimensions": whose,
                    "Timestamp": event.ended_at or event.started_at,
                    "Value": number,
                    "Unit": metric.unit,
                }
                for metric, number in numbers(event).items()
            ],
        )
