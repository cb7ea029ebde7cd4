"""The verb that renders deployment files, and holds the committed ones against what would be rendered."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from safedelete.cli.common import echo, load
from safedelete.errors import ConfigError, DriftError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safedelete.declare import Declared
    from safedelete.deploy.aws.resources import Deployment
    from safedelete.deploy.files import Difference
    from safedelete.deploy.spec import Spec


class Kind(StrEnum):
    """What can be rendered."""

    CLOUDFORMATION = "cloudformation"
    TASKDEF = "taskdef"
    IAM = "iam"
    GRANTS = "grants"
    SYSTEMD = "systemd"
    PROMETHEUS = "prometheus"


def render(
    kind: Annotated[Kind, typer.Argument(help="What to render.", show_default=False)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The directory of the rendered files.")
    ] = Path("deploy"),
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="PATH", help="Settings; safedelete.toml beside the job file unless said."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="The image of the task definitions; else ecs.image."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 10 when a committed file differs.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite also files that were not rendered.")
    ] = False,
) -> None:
    """Render deployment files from the job file. Deletes nothing, and asks nobody: the same input, the same files."""
    from safedelete.deploy.files import compare, left_over, write
    from safedelete.deploy.spec import NAME, read

    path = config or file.parent / NAME
    declared = list(load(file).jobs.values())
    files = _rendered(kind, declared, read(path), path, image)
    if not check:
        written = write(files, out, force=force)
        for changed in written:
            echo(f"Wrote {changed}.")
        echo(f"{len(files)} file(s) in {out}, {len(files) - len(written)} of them as they were.")
        if left := left_over(files, out):
            echo(_leftovers(left))
        return
    differences = compare(files, out)
    for difference in differences:
        echo(f"{difference.path}: {difference.what}")
    if differences:
        options = {"--config": config, "--image": image}
        given = "".join(
            f" {name} {quote(str(value))}" for name, value in options.items() if value is not None
        )
        raise DriftError(
            f"{len(differences)} file(s) in {out} differ from what {file} and {path} render.",
            hint=_remedy(
                differences, f"safedelete render {kind} {quote(str(file))} --out {quote(str(out))}{given}"
            ),
        )
    echo(f"{len(files)} file(s) in {out} are what {file} and {path} render.")


def _remedy(differences: Sequence[Difference], command: str) -> str:
    """Say what takes these differences away: what is left over, rendering again does not."""
    others = [str(one.path) for one in differences if one.foreign]
    left = [one.path for one in differences if one.left]
    lines = []
    if len(left) < len(differences):
        forced = " --force" if others else ""
        lines.append(f"`{command}{forced}`, then look at the difference and commit it.")
    if others:
        lines.append(f"Not written by render, and overwritten by --force alone: {', '.join(others)}.")
    if left:
        lines.append(_leftovers(left))
    return "\n".join(lines)


def _leftovers(left: Sequence[Path]) -> str:
    """Say what to do about files that no declared job renders any more."""
    text = (
        f"Left over, and not deleted by render; delete: git rm {' '.join(quote(str(path)) for path in left)}"
    )
    if any(path.suffix == ".timer" for path in left):
        text += "\nThe host goes on by them until its timer is disabled: docs/how-to/systemd.md, Remove or rename a job."
    return text


def _rendered(
    kind: Kind, declared: Sequence[Declared], spec: Spec, path: Path, image: str | None
) -> Mapping[str, str]:
    from safedelete.deploy.jobs import deployed

    match kind:
        case Kind.SYSTEMD:
            from safedelete.deploy import systemd

            if spec.systemd is None:
                raise _missing(path, "systemd")
            return systemd.render(deployed(declared), spec.systemd, spec.environment)
        case Kind.PROMETHEUS:
            from safedelete.deploy import prometheus

            return prometheus.render(deployed(declared), spec.prometheus, spec.environment)
        case Kind.GRANTS:
            from safedelete.deploy import grants

            return grants.render(declared, spec.grants)
        case Kind.CLOUDFORMATION | Kind.TASKDEF | Kind.IAM:
            from safedelete.deploy.aws import template

            made = on_aws(declared, spec, path, image, needs_image=kind is Kind.TASKDEF)
            # The other kinds hold neither alarms nor a topic.
            for note in made.notes if kind is Kind.CLOUDFORMATION else ():
                echo(f"[{note.code}] {note.message} {note.hint}", err=True)
            how = {
                Kind.CLOUDFORMATION: template.template,
                Kind.TASKDEF: template.bare_tasks,
                Kind.IAM: template.bare_roles,
            }
            return how[kind](made)


def on_aws(
    declared: Sequence[Declared], spec: Spec, path: Path, image: str | None, *, needs_image: bool
) -> Deployment:
    """Return what is deployed on AWS.

    Args:
        declared: The job file's jobs.
        spec: The settings.
        path: Where they were read from.
        image: Stands for ``ecs.image``: what was built last is not in the repository.
        needs_image: Whether a parameter of the template will not do.

    Raises:
        ConfigError: The settings have no ``[ecs]``, or no image where one is needed; or the image names no version, or
            is in a repository that the execution role may not pull from.
    """
    from safedelete.deploy.aws.resources import deployment
    from safedelete.deploy.ecs_spec import check_image

    if spec.ecs is None:
        raise _missing(path, "ecs")
    if image is not None:
        check_image(image, spec.ecs)
    chosen = image or spec.ecs.image
    if needs_image and chosen is None:
        raise ConfigError(f"{path}: ecs.image is missing.", hint="Set it, or say which image with --image.")
    return deployment(declared, spec.ecs, spec.environment, chosen or {"Ref": "Image"})


def _missing(path: Path, table: str) -> ConfigError:
    return ConfigError(
        f"{path}: the table [{table}] is missing.", hint="docs/reference/safedelete-toml.md lists its keys."
    )
