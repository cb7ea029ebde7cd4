"""What a user declares in a job file: targets, purges and jobs, each checked the moment it is made."""

from safedelete.core.limits import Guard
from safedelete.declare.endpoint import S3Endpoint
from safedelete.declare.inventory import Inventory
from safedelete.declare.jobs import Declared, Job, Purge, RunContext, job
from safedelete.declare.orphans import S3Orphans
from safedelete.declare.prefix import S3Prefix
from safedelete.declare.targets import Rows, S3Keys
from safedelete.declare.time import older_than, past

__all__ = [
    "Declared",
    "Guard",
    "Inventory",
    "Job",
    "Purge",
    "Rows",
    "RunContext",
    "S3Endpoint",
    "S3Keys",
    "S3Orphans",
    "S3Prefix",
    "job",
    "older_than",
    "past",
]
