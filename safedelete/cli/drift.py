"""The verb that holds what runs on AWS against what the repository says."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safedelete.cli.common import echo, load, print_json
from safedelete.cli.render import on_aws
from safedelete.core.redact import scrubbed
from safedelete.errors import DriftError, PreflightError, SafeDeleteError, StoreError

if TYPE_CHECKING:
    from safedelete.deploy.drift.model import Difference


def drift(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="PATH", help="Settings; safedelete.toml beside the job file unless said."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="The image that was deployed; else ecs.image."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, help="Wait until the schedules run what was just deployed."
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Hold what runs on AWS against what the repository says; exit 10 when they differ. Reads only."""
    from safedelete.deploy.drift.model import UNCHECKED
    from safedelete.deploy.drift.read import Aws
    from safedelete.deploy.drift.watch import differences
    from safedelete.deploy.spec import NAME, read

    path = config or file.parent / NAME
    made = on_aws(list(load(file).jobs.values()), read(path), path, image, needs_image=True)
    found, unread = differences(made, Aws(made.ecs.region), wait=wait, now=time.monotonic, sleep=time.sleep)
    elsewhere = [] if made.own_topic else [f"who listens to {made.names.topic}, another account's"]
    unchecked = [*(f"{what}: {_first(error)}" for what, error in unread.items()), *elsewhere, *UNCHECKED]
    if as_json:
        document = {"jobs": [job.name for job in made.jobs], "differences": [_plain(one) for one in found]}
        print_json(document | {"unchecked": unchecked})
    else:
        for one in found:
            echo(f"[{one.kind}] {one.message}")
            if one.changes:
                echo("  A deploy of this repository would undo:")
            for change in one.changes:
                echo(f"    {change.path}: {_said(change.there)} -> {_said(change.repository)}")
        for what in unchecked:
            echo(f"Not looked at: {what}.")
        if not found and not unread:
            echo(f"{len(made.jobs)} job(s), {len(made.alarms)} alarm(s): as the repository says.")
    if unread and not found:
        raise _unknown(unread)
    if found:
        more = f" Not looked at: {', '.join(unread)}." if unread else ""
        raise DriftError(
            f"{len(found)} difference(s) between AWS and what {file} and {path} render.{more}",
            hint="Deploy, or bring the change into the repository. CloudFormation touches only what changed in its "
            "template: what was changed by hand it leaves, so undo that by hand.",
        )


def _unknown(unread: Mapping[str, SafeDeleteError]) -> SafeDeleteError:
    """Return the error of a comparison that found nothing, and could not look at everything: that is not clean."""
    message = f"Not known to be as the repository says, for it could not be looked at: {', '.join(unread)}."
    denied = [(what, error) for what, error in unread.items() if isinstance(error, PreflightError)]
    _, first = denied[0] if denied else next(iter(unread.items()))
    message += f" {first}"
    if denied:
        return PreflightError(message, denied=[what for what, _ in denied], hint=first.hint)
    return StoreError(message, hint=first.hint)


def _first(error: SafeDeleteError) -> str:
    return str(error).rstrip(".")


def _said(value: Any) -> str:
    return "nothing" if value is None else json.dumps(_shown(value), sort_keys=True)


def _shown(value: Any) -> Any:
    """Return a value to print. What was made by hand may name a database anywhere: no password is repeated."""
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {str(name): _shown(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_shown(inner) for inner in value]
    return scrubbed(str(value))


def _plain(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "name": one.name,
        "message": one.message,
        "undone": [
            {"path": change.path, "there": _shown(change.there), "repository": _shown(change.repository)}
            for change in one.changes
        ],
    }
