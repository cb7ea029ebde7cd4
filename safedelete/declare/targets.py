"""``Rows`` and ``S3Keys``: the rows a purge deletes and the objects they own, checked when they are declared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from sqlalchemy import ColumnElement, FromClause, Table, and_, select
from sqlalchemy import inspect as sa_inspect
from sqlalchemy.exc import NoInspectionAvailable, SQLAlchemyError
from sqlalchemy.orm import InstrumentedAttribute

from safedelete.declare.endpoint import S3Endpoint
from safedelete.declare.predicates import check_predicates, enclosed
from safedelete.declare.time import AgeTest, age_tests
from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

KeyColumn: TypeAlias = "ColumnElement[Any] | InstrumentedAttribute[Any]"
Mode: TypeAlias = Literal["marker", "purge"]

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
_ARN: Final = re.compile(r"arn:[a-z0-9-]+:s3[a-z0-9-]*:[^\s]+")


class S3Keys:
    """Name the objects that a row owns.

    Args:
        bucket: Bucket name, or an access point's ARN.
        columns: Columns or SQL expressions that hold one object key each; NULL means "none".
        prefix: Column or SQL expression that holds a prefix, in whole path segments: with ``a/b`` go ``a/b/…`` and never
            ``a/bc``. Everything below it goes with the row; a row below whose prefix something has appeared since it was
            sealed is kept. NULL means "none"; a row whose prefix is empty, starts with a slash or is a URL is kept.
        shared: Whether several rows may name one object: it then goes with its last row. None asks the schema: a
            unique key column means no, a prefix always yes, since one prefix may lie below another.
        etag: Column that holds the object's ETag (with one key column only), so that an object overwritten since is
            kept.
        size: Column that holds the object's size in bytes (with one key column only), for counting bytes.
        mode: For a versioned bucket, and needed there: ``"marker"`` hides the object behind a delete marker,
            ``"purge"`` removes every version.
        client: A boto3 S3 client, or an ``S3Endpoint``, instead of the default chain.
        require_conditional: Delete only where the store itself compares ETags, in both of its delete requests. The preflight
            proves it by a canary: an object ``.safedelete-canary-<32 hex digits>``, put beside the first planned object, or in
            the folder given here (``"canary/"``), and removed again with all of its versions. Where it cannot be proven the
            run ends with exit code 9. Without it, an object with a known ETag is looked at right before it is deleted.
        missing_ok: Accept that most objects are gone before their rows (a lifecycle rule). Without it, a run whose sampled
            objects are mostly absent is stopped: that is what a wrong bucket looks like.

    Raises:
        ConfigError: No column, an empty bucket, or a column that is none.
    """

    def __init__(
        self,
        bucket: str,
        *columns: KeyColumn,
        prefix: KeyColumn | None = None,
        shared: bool | None = None,
        etag: KeyColumn | None = None,
        size: KeyColumn | None = None,
        mode: Mode | None = None,
        client: S3Client | S3Endpoint | None = None,
        missing_ok: bool = False,
        require_conditional: bool | str = False,
    ) -> None:
        self.bucket = check_bucket(bucket, "S3Keys")
        self.require_conditional = check_canary(require_conditional, f"S3Keys({bucket!r}")
        if not columns and prefix is None:
            raise ConfigError(
                f"S3Keys({bucket!r}): name at least one column that holds an object key, or prefix=.",
                hint=f"For example S3Keys({bucket!r}, Upload.s3_key).",
            )
        self.columns = tuple(_column(c, f"S3Keys({bucket!r})") for c in columns)
        self.prefix = None if prefix is None else _column(prefix, f"S3Keys({bucket!r}, prefix=...)")
        if (etag is not None or size is not None) and len(columns) != 1:
            raise ConfigError(
                f"S3Keys({bucket!r}): etag= and size= describe one object; {len(columns)} key columns are given.",
                hint="Declare one S3Keys per key column: owns=[S3Keys(...), S3Keys(...)].",
            )
        if shared not in (None, True, False):
            raise ConfigError(
                f"S3Keys({bucket!r}, shared={shared!r}): must be True, False or None.",
                hint="Leave it out unless no two rows can ever name one object.",
            )
        self.shared = shared
        self.etag = None if etag is None else _column(etag, "S3Keys(etag=...)")
        self.size = None if size is None else _column(size, "S3Keys(size=...)")
        self.mode = check_mode(mode, "S3Keys")
        self.client = client
        self.missing_ok = missing_ok


class Rows:
    """Delete the rows of one table that match every predicate.

    Args:
        entity: An ORM model or a Core table with a primary key.
        predicates: SQLAlchemy boolean expressions, joined by AND. At least one must be ``older_than`` or ``past``.
        owns: The objects each row owns; they go before the row does.
        anytime: Declare a purge without a time: rows may be deleted at any age.
        may_touch: Names of tables that triggers write to when a row goes (an audit table, for one). A delete that
            touches any other table outside the planned cascades is rolled back.
        allow_unindexed_fk: Accept foreign keys to this table whose child column has no index, so that each deleted row
            makes the database read the whole child table. Without it such a purge is refused when it is planned.
        allow_unseen: Accept, on MariaDB and MySQL, that the role may not see every table that references this one (no PROCESS),
            or what the table's triggers do (no TRIGGER): rows that go there by a cascade, or are written there, are in no plan
            and held against none. Without it the preflight stops such a run.

    Raises:
        ConfigError: No predicate, no time test, no primary key, or a predicate that names another table.

    Example:
        ``Rows(LoginEvent, older_than(LoginEvent.created_at, days=90))``
    """

    def __init__(
        self,
        entity: type[Any] | Table,
        *predicates: ColumnElement[bool],
        owns: S3Keys | Sequence[S3Keys] | None = None,
        anytime: bool = False,
        may_touch: Sequence[str] = (),
        allow_unindexed_fk: bool = False,
        allow_unseen: bool = False,
    ) -> None:
        self.table = _table(entity)
        where = f"Rows({self.table.name})"
        if not self.table.primary_key.columns:
            raise ConfigError(
                f"{where}: the table has no primary key, so a planned row cannot be told from another like it.",
                hint="Add a primary key, or declare the unique key as primary_key=True in the model.",
            )
        for option, value in (
            ("anytime", anytime),
            ("allow_unindexed_fk", allow_unindexed_fk),
            ("allow_unseen", allow_unseen),
        ):
            if not isinstance(value, bool):
                raise ConfigError(
                    f"{where}: {option}={value!r}; must be True or False.", hint="Leave it out for False."
                )
        check_predicates(predicates, self.table, where, anytime=anytime)
        self.predicates: tuple[ColumnElement[bool], ...] = tuple(predicates)
        self.age_tests: tuple[AgeTest, ...] = age_tests(self.predicates)
        self.anytime = anytime
        if not self.age_tests and not anytime:
            raise ConfigError(
                f"{where}: no predicate is a time test.",
                hint="Add older_than(column, days=...) or past(column), or say Rows(..., anytime=True) if age must not matter.",
            )
        if not predicates:
            raise ConfigError(
                f"{where}: there is no predicate, so every row would go.",
                hint="To empty a table on purpose, say so in SQL: sqlalchemy.true() as the predicate.",
            )
        strangers = _froms(self.table, self.predicates)
        if strangers:
            raise ConfigError(
                f"{where}: the predicate names {', '.join(strangers)} without joining it, which would match every pair.",
                hint="Use an EXISTS: sqlalchemy.exists().where(Other.id == ThisTable.other_id).",
            )
        self.owns: tuple[S3Keys, ...] = _owned(owns, where)
        for keys in self.owns:
            extra = [column for column in (keys.etag, keys.size, keys.prefix) if column is not None]
            foreign = _froms(self.table, [*keys.columns, *extra])
            if foreign:
                raise ConfigError(
                    f"{where}: S3Keys({keys.bucket!r}) names columns of {', '.join(foreign)}.",
                    hint="A row owns the objects that its own columns name; purge the other table by a Rows of its own.",
                )
        check_agreement(self.owns, where)
        if isinstance(may_touch, str) or not all(isinstance(name, str) for name in may_touch):
            raise ConfigError(
                f"{where}: may_touch={may_touch!r}; must be a list of table names.",
                hint='For example may_touch=["audit_log"].',
            )
        self.may_touch = tuple(may_touch)
        self.allow_unindexed_fk = allow_unindexed_fk
        self.allow_unseen = allow_unseen

    @property
    def name(self) -> str:
        """The table's name, schema-qualified where it has a schema."""
        return self.table.fullname

    @property
    def predicate(self) -> ColumnElement[bool]:
        """All predicates, joined by AND, SQL text in parentheses."""
        return and_(*map(enclosed, self.predicates))


def check_bucket(bucket: object, where: str) -> str:
    """Return a bucket's name, or say what is wrong with it."""
    if not isinstance(bucket, str) or not bucket.strip():
        raise ConfigError(f"{where}({bucket!r}): the bucket is empty.", hint="Name the bucket.")
    if not _ARN.fullmatch(bucket) and not _BUCKET.fullmatch(bucket):
        raise ConfigError(
            f"{where}({bucket!r}): not a bucket name (3 to 63 of a-z, 0-9, '-' and '.') nor an S3 ARN.",
            hint="Give the bucket's name alone, without s3:// and without a key.",
        )
    return bucket


def check_prefix(bucket: str, prefix: object, where: str, *, whole_bucket: bool, exact_prefix: bool) -> str:
    """Return a key prefix as leading characters, or say what is wrong with it."""
    named = f"{where}({bucket!r}, {prefix!r})"
    if not isinstance(prefix, str):
        raise ConfigError(f"{named}: the prefix must be text.", hint='For example "uploads/tmp".')
    if prefix.startswith("/") and not exact_prefix:
        raise ConfigError(
            f"{named}: a key seldom starts with '/'; a leading slash matches nothing else.",
            hint="Leave it out, or say exact_prefix=True if your keys do start with it.",
        )
    if not prefix and not whole_bucket:
        raise ConfigError(
            f"{named}: an empty prefix means every object of the bucket.",
            hint="Name a prefix, or say whole_bucket=True if you mean it.",
        )
    if prefix and whole_bucket:
        raise ConfigError(
            f"{named}: whole_bucket=True goes with an empty prefix only.",
            hint="Leave whole_bucket out to take what is below the prefix.",
        )
    return prefix if exact_prefix or not prefix or prefix.endswith("/") else prefix + "/"


def check_canary(wanted: object, where: str) -> bool | str:
    """Return where a canary may be put, or whether it may, or say what is allowed."""
    if isinstance(wanted, bool):
        return wanted
    if isinstance(wanted, str) and wanted.strip() and wanted.endswith("/") and not wanted.startswith("/"):
        return wanted
    raise ConfigError(
        f"{where}, require_conditional={wanted!r}): must be True, False, or a folder that ends with a slash.",
        hint='For example require_conditional="canary/".',
    )


def check_mode(mode: object, where: str) -> Mode | None:
    """Return a delete mode, or say what is allowed."""
    match mode:
        case None | "marker" | "purge":
            return mode
    raise ConfigError(
        f'{where}(mode={mode!r}): must be "marker" or "purge".',
        hint="Leave it out for a bucket without versions.",
    )


def check_agreement(owned: Sequence[S3Keys], where: str) -> None:
    """Raise unless all declarations of one bucket reach it by one client and delete from it in one mode."""
    first: dict[str, S3Keys] = {}
    for keys in owned:
        known = first.setdefault(keys.bucket, keys)
        if known.mode != keys.mode:
            raise ConfigError(
                f"{where}: the bucket {keys.bucket!r} is given mode={known.mode!r} and mode={keys.mode!r}; a bucket has one.",
                hint="Say the same mode= in every S3Keys of this bucket.",
            )
        if known.client is not keys.client:
            raise ConfigError(
                f"{where}: the bucket {keys.bucket!r} is given two different clients; a bucket is reached by one.",
                hint="Pass the same client= to every S3Keys of this bucket.",
            )


def _table(entity: object) -> Table:
    if isinstance(entity, Table):
        return entity
    try:
        mapper: Any = sa_inspect(entity)
        local = mapper.local_table
    except (NoInspectionAvailable, AttributeError) as error:
        raise ConfigError(
            f"Rows({entity!r}): the first argument must be an ORM model or a Table; it is a {type(entity).__name__}.",
            hint="For example Rows(Upload, older_than(Upload.created_at, days=90)).",
        ) from error
    except SQLAlchemyError as error:
        raise ConfigError(
            f"Rows({entity!r}): the model cannot be mapped: {error}.",
            hint="Correct the model, or pass its Table.",
        ) from error
    if not isinstance(local, Table):
        raise ConfigError(
            f"Rows({entity!r}): the model maps {type(local).__name__}, not a table.",
            hint="Pass the Table that holds the rows.",
        )
    if mapper.inherits is not None:
        raise ConfigError(
            f"Rows({entity!r}): a model that inherits from another model's table cannot be purged by itself.",
            hint="Purge the base table, with the discriminator in the predicate.",
        )
    return local


def _owned(owns: object, where: str) -> tuple[S3Keys, ...]:
    if owns is None:
        return ()
    several = owns if isinstance(owns, (list, tuple)) else (owns,)
    for keys in several:
        if not isinstance(keys, S3Keys):
            raise ConfigError(
                f"{where}: owns= takes S3Keys, or a list of them; it was given {owns!r}.",
                hint="For example owns=S3Keys(bucket, Upload.s3_key).",
            )
    return tuple(several)


def _column(column: object, where: str) -> ColumnElement[Any]:
    inner = column.__clause_element__() if hasattr(column, "__clause_element__") else column
    if not isinstance(inner, ColumnElement):
        raise ConfigError(
            f"{where}: {column!r} is a {type(column).__name__}, not a column or SQL expression.",
            hint="Name the column of the model or table, for example Upload.s3_key.",
        )
    return inner


def _froms(table: Table, expressions: Sequence[ColumnElement[Any]]) -> list[str]:
    found: Sequence[FromClause] = select(*table.primary_key.columns).where(*expressions).get_final_froms()
    return sorted(str(getattr(f, "name", f)) for f in found if f is not table)
