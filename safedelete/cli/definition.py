"""Whether the job file at hand is the one that the task was rendered from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from safedelete.declare import Declared


def hold_definition(job: Declared, *, required: bool) -> None:
    """Hold a job against ``$SAFEDELETE_REVISION``, which the task was rendered with. Touches neither database nor bucket.

    The task says what the repository declares, and the image brings a job file of its own: an old one, where it was built
    before the change. Without ``required`` that is logged and the job runs, since the hash may differ for a reason that
    changes nothing: another version of the library or of SQLAlchemy in the image, or a value of the environment that the
    job file reads.

    Args:
        job: As the job file here declares it.
        required: Whether to refuse another definition.

    Raises:
        ConfigError: It is another definition, and ``required``.
    """
    from safedelete.wiring import Settings

    rendered = Settings.read().revision
    if not rendered:
        return
    from safedelete.deploy.aws.revision import revision_of

    here = revision_of(job)
    if here == rendered:
        return
    if required:
        raise ConfigError(
            f"{job.name}: this task was rendered from the definition {rendered} ($SAFEDELETE_REVISION); the job file here "
            f"declares {here}.",
            hint="The image holds another job file than the one that was rendered: build it anew from the same commit. The "
            "same file gives another definition where safedelete or SQLAlchemy have other versions than where it was "
            "rendered, or where it reads its environment.",
        )
    import structlog

    structlog.get_logger("safedelete.run").warning(
        "the job file is not what this task was rendered from", job=job.name, rendered=rendered, here=here
    )
