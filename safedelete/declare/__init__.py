"""What a user declares in a job file: targets, purges and jobs, each checked the moment it is made."""

from safedelete.core.limits import Guard
from safedelete.declare.jobs import Declared, Job, Purge, RunContext, job
from safedelete.declare.orphans import S3Orphans
from safedelete.declare.targets import Rows, S3Keys, S3Prefix
from safedelete.declare.time import older_than, past

__all__ = [
    "Declared",
    "Guard",
    "Job",
    "Purge",
    "Rows",
    "RunContext",
    "S3Keys",
    "S3Orphans",
    "S3Prefix",
    "job",
    "older_than",
    "past",
]
