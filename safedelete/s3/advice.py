"""What is said beside the proofs, and never stops a run: IAM's own simulation, and what no probe can see.

A simulation knows identity policies, boundaries and the organisation's; it does not know bucket policies for roles, VPC
endpoints or the session's own policy. So it never replaces a probe: a permission that it denies is a warning, one that it
allows is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import structlog
from botocore.config import Config

from safedelete.core.item import ObjectRef
from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.ports import Proof, Verdict
from safedelete.s3.client import CONNECT_TIMEOUT, Connection
from safedelete.s3.codes import SDK_ERRORS, code_of, detail_of
from safedelete.s3.keys import parent
from safedelete.s3.probe import S3Prober

log = structlog.get_logger("safedelete.preflight")

FOLDERS: Final = 20
"""Folders of a bucket that are simulated."""

_ROLE: Final = re.compile(r"arn:(?P<partition>[a-z0-9-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)")
_PRINCIPAL: Final = re.compile(r"arn:[a-z0-9-]+:iam::\d+:(user|role)/.+")


class S3Adviser:
    """Advises on the buckets of one endpoint; implements :class:`safedelete.ports.Prober` by advice alone.

    Args:
        connection: The endpoint.
        modes: The declared mode of each bucket that the purge deletes from.
        prefixes: (bucket, prefix) of each prefix target.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        modes: Mapping[str, Mode | None],
        prefixes: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._connection = connection
        self._modes = dict(modes)
        self._prefixes = tuple(prefixes)

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Ask IAM, and name the blind spots of the probes. Reads only; a failure is told and stops nothing."""
        del as_of
        found: list[Proof] = []
        for bucket, mode in self._modes.items():
            folders = dict.fromkeys(parent(ref.key) for ref in sample if ref.bucket == bucket)
            folders |= dict.fromkeys(prefix for owner, prefix in self._prefixes if owner == bucket)
            if folders:
                found += self._simulated(bucket, mode, list(folders)[:FOLDERS])
                spots = "; ".join(S3Prober.blind_spots())
                found.append(Proof(f"blind spots on s3://{bucket}/", Verdict.ADVICE, spots))
        return found

    def _simulated(self, bucket: str, mode: Mode | None, folders: Sequence[str]) -> Iterator[Proof]:
        subject = f"iam:SimulatePrincipalPolicy for s3://{bucket}/"
        try:
            principal = principal_of(self._connection.describe_caller())
        except StoreError as error:
            log.info("not simulated", bucket=bucket, why=str(error))
            return
        if principal is None:
            # A store without IAM, or the account's root, which no policy limits.
            return
        action = "s3:DeleteObjectVersion" if mode == "purge" else "s3:DeleteObject"
        partition = principal.split(":")[1]
        arn = bucket if bucket.startswith("arn:") else f"arn:{partition}:s3:::{bucket}"
        objects = f"{arn}/object" if ":accesspoint/" in arn else arn
        places = {f"{objects}/{folder}object": folder for folder in folders}
        try:
            pages = iam_of(self._connection).get_paginator("simulate_principal_policy")
            results = [
                result
                for page in pages.paginate(
                    PolicySourceArn=principal, ActionNames=[action], ResourceArns=list(places)
                )
                for result in page.get("EvaluationResults") or ()
            ]
        except SDK_ERRORS as error:
            # Few callers may ask, and a role below a path has an ARN that its session does not tell.
            said = f"not asked as {principal}: {code_of(error)}: {detail_of(error)}"
            yield Proof(subject, Verdict.ADVICE, said)
            return
        denied = dict(_denials(results))
        for place, why in denied.items():
            folder = places.get(place, "")
            yield Proof(
                f"{action} on s3://{bucket}/{folder}",
                Verdict.ADVICE,
                f"WARNING: IAM's simulation denies it to {principal}: {why}",
            )
        if not denied:
            yield Proof(
                subject, Verdict.ADVICE, f"denies {action} to {principal} in none of {len(folders)} folder(s)"
            )


def principal_of(caller: str) -> str | None:
    """Return the user or role that a caller's ARN stands for; None where there is none that policies limit.

    A session's ARN does not hold its role's path, so a role below a path is not found by what this returns.
    """
    role = _ROLE.match(caller)
    if role is not None:
        return f"arn:{role['partition']}:iam::{role['account']}:role/{role['role']}"
    return caller if _PRINCIPAL.fullmatch(caller) else None


def iam_of(connection: Connection) -> Any:
    """Return a client for IAM with the connection's credentials; sends nothing."""
    config = Config(connect_timeout=CONNECT_TIMEOUT, read_timeout=10, retries={"total_max_attempts": 2})
    return connection.client_for("iam", config)


def _denials(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for result in results:
        # The whole's resource is a template only; each resource has its own decision.
        specific = result.get("ResourceSpecificResults") or ()
        for one in specific:
            if one.get("EvalResourceDecision") != "allowed":
                yield str(one.get("EvalResourceName")), _why(one.get("EvalResourceDecision"), one)
        if not specific and result.get("EvalDecision") != "allowed":
            yield str(result.get("EvalResourceName")), _why(result.get("EvalDecision"), result)


def _why(decision: object, result: Mapping[str, Any]) -> str:
    statements = [
        f"{s.get('SourcePolicyId') or '?'} ({s.get('SourcePolicyType') or 'policy'})"
        for s in result.get("MatchedStatements") or ()
    ]
    if decision == "explicitDeny":
        return f"an explicit deny in {', '.join(statements) or 'a policy that it does not name'}"
    if (result.get("PermissionsBoundaryDecisionDetail") or {}).get("AllowedByPermissionsBoundary") is False:
        return "the permissions boundary does not allow it"
    return "no statement allows it"
