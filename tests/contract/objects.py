"""What every ``ObjectStore``, every ``ObjectTarget`` and every ``Prober`` promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.errors import LockLostError
from safedelete.ports import ObjectStore, ObjectTarget, Presence, Prober, Verdict

GONE = {Outcome.DELETED, Outcome.GONE}


@dataclass
class Bucket:
    """A store under test, with one empty bucket, and an administrator's hand on it.

    Attributes:
        store: What is tested.
        target: Over everything below ``tmp/`` that is older than a day.
        prober: For the same.
        name: The bucket.
        put: Write an object anew.
        keys: The keys there are.
        deny: Forbid deleting one key; None where the store has no permissions.
    """

    store: ObjectStore
    target: ObjectTarget
    prober: Prober
    name: str
    put: Callable[[str], None]
    keys: Callable[[], set[str]]
    deny: Callable[[str], None] | None = None

    def ref(self, key: str, etag: str | None = None) -> ObjectRef:
        return ObjectRef(self.name, key, etag)


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=2)


def allow() -> None:
    """A gate that lets everything pass."""


class ObjectStoreContract:
    """Inherit, and give a fixture ``bucket_of``: a Bucket."""

    # --- deleting

    def test_every_object_given_is_a_key_of_the_answer(self, bucket_of: Bucket) -> None:
        for key in ("a", "b", "c"):
            bucket_of.put(key)
        refs = [bucket_of.ref(key) for key in ("a", "c", "never-there")]
        answers = bucket_of.store.delete(refs, gate=allow)
        assert set(answers) == set(refs)
        assert {answer.state for answer in answers.values()} <= GONE
        assert bucket_of.keys() == {"b"}

    def test_deleting_is_idempotent(self, bucket_of: Bucket) -> None:
        bucket_of.put("a")
        refs = [bucket_of.ref("a")]
        for _ in range(2):
            assert bucket_of.store.delete(refs, gate=allow)[refs[0]].state in GONE
        assert bucket_of.keys() == set()

    def test_nothing_is_asked_of_nothing(self, bucket_of: Bucket) -> None:
        asked: list[None] = []
        assert dict(bucket_of.store.delete([], gate=lambda: asked.append(None))) == {}
        assert not asked

    def test_an_object_given_twice_has_one_outcome(self, bucket_of: Bucket) -> None:
        bucket_of.put("a")
        answers = bucket_of.store.delete([bucket_of.ref("a"), bucket_of.ref("a")], gate=allow)
        assert [answer.state in GONE for answer in answers.values()] == [True]

    def test_a_gate_that_raises_is_asked_before_anything_is_deleted(self, bucket_of: Bucket) -> None:
        bucket_of.put("a")

        def closed() -> None:
            raise LockLostError("lost")

        with pytest.raises(LockLostError):
            bucket_of.store.delete([bucket_of.ref("a")], gate=closed)
        assert bucket_of.keys() == {"a"}

    def test_an_object_overwritten_since_it_was_sealed_is_kept(self, bucket_of: Bucket) -> None:
        bucket_of.put("tmp/a")
        (page,) = bucket_of.target.scan(tomorrow(), batch=10, portion=None)
        bucket_of.put("tmp/a")
        answers = bucket_of.store.delete(page, gate=allow)
        assert [answer.state for answer in answers.values()] == [Outcome.CHANGED]
        assert bucket_of.keys() == {"tmp/a"}

    def test_an_object_with_the_sealed_etag_goes(self, bucket_of: Bucket) -> None:
        bucket_of.put("tmp/a")
        (page,) = bucket_of.target.scan(tomorrow(), batch=10, portion=None)
        assert page[0].etag
        assert bucket_of.store.delete(page, gate=allow)[page[0]].state in GONE
        assert bucket_of.keys() == set()

    def test_a_denied_object_is_failed_and_takes_no_other_with_it(self, bucket_of: Bucket) -> None:
        if bucket_of.deny is None:
            pytest.skip("this store has no permissions")
        for key in ("a", "b", "c"):
            bucket_of.put(key)
        bucket_of.deny("b")
        refs = [bucket_of.ref(key) for key in ("a", "b", "c")]
        answers = bucket_of.store.delete(refs, gate=allow)
        assert answers[refs[1]][:2] == (Outcome.FAILED, "AccessDenied")
        assert {answers[refs[0]].state, answers[refs[2]].state} <= GONE
        assert bucket_of.keys() == {"b"}

    # --- looking

    def test_presence_tells_there_from_not_there(self, bucket_of: Bucket) -> None:
        bucket_of.put("a")
        there, absent = bucket_of.ref("a"), bucket_of.ref("b")
        assert bucket_of.store.presence([there, absent]) == {there: Presence.PRESENT, absent: Presence.ABSENT}
        assert bucket_of.keys() == {"a"}

    def test_what_is_shown_of_a_key_is_whatever_version_of_it_is_current(self, bucket_of: Bucket) -> None:
        bucket_of.put("a")
        there, absent = bucket_of.ref("a"), bucket_of.ref("b")
        assert bucket_of.store.shown([there, absent]) == {there: Presence.PRESENT, absent: Presence.ABSENT}
        bucket_of.put("a")
        older = there._replace(version="00000000000000000000000000000000")
        assert bucket_of.store.shown([older]) == {older: Presence.PRESENT}

    def test_what_remains_is_what_is_not_known_to_be_absent(self, bucket_of: Bucket) -> None:
        bucket_of.put("a")
        there, absent = bucket_of.ref("a"), bucket_of.ref("b")
        assert bucket_of.store.remaining([there, absent]) == {there: Presence.PRESENT}
        assert bucket_of.store.remaining([]) == {}

    def test_an_object_overwritten_since_is_no_residue(self, bucket_of: Bucket) -> None:
        bucket_of.put("tmp/a")
        (page,) = bucket_of.target.scan(tomorrow(), batch=10, portion=None)
        assert bucket_of.store.remaining(page) == {page[0]: Presence.PRESENT}
        bucket_of.put("tmp/a")
        assert bucket_of.store.remaining(page) == {}

    def test_many_are_looked_for_as_one_is(self, bucket_of: Bucket) -> None:
        for number in range(20):
            bucket_of.put(f"many/{number:02}")
        refs = [bucket_of.ref(f"many/{number:02}") for number in range(40)]
        assert set(bucket_of.store.remaining(refs)) == set(refs[:20])

    # --- a prefix

    def test_a_survey_and_a_scan_agree_and_change_nothing(self, bucket_of: Bucket) -> None:
        for key in ("tmp/a", "tmp/b/c", "tmp2/x", "other"):
            bucket_of.put(key)
        plan = bucket_of.target.survey(tomorrow(), portion=None, since=None)
        assert (plan.items, plan.eligible, plan.total, plan.kind) == (2, 2, 2, "objects")
        assert plan.name == bucket_of.target.name == f"s3://{bucket_of.name}/tmp/"
        pages = list(bucket_of.target.scan(tomorrow(), batch=1, portion=None))
        assert [[ref.key for ref in page] for page in pages] == [["tmp/a"], ["tmp/b/c"]]
        assert all(ref.etag and ref.size for page in pages for ref in page)
        assert bucket_of.keys() == {"tmp/a", "tmp/b/c", "tmp2/x", "other"}

    def test_what_is_younger_than_the_age_is_not_eligible(self, bucket_of: Bucket) -> None:
        bucket_of.put("tmp/a")
        plan = bucket_of.target.survey(datetime.now(UTC), portion=None, since=None)
        assert (plan.items, plan.total) == (0, 1)
        assert list(bucket_of.target.scan(datetime.now(UTC), batch=10, portion=None)) == []

    def test_a_portion_bounds_what_is_taken(self, bucket_of: Bucket) -> None:
        for number in range(4):
            bucket_of.put(f"tmp/{number}")
        plan = bucket_of.target.survey(tomorrow(), portion=3, since=None)
        assert (plan.items, plan.eligible) == (3, 4)
        taken = [ref for page in bucket_of.target.scan(tomorrow(), batch=2, portion=3) for ref in page]
        assert len(taken) == 3

    # --- permissions

    def test_a_probe_is_idempotent_and_deletes_nothing(self, bucket_of: Bucket) -> None:
        bucket_of.put("tmp/a")
        sample = [bucket_of.ref("tmp/a")]
        for _ in range(2):
            proofs = bucket_of.prober.probe(tomorrow(), sample)
            assert proofs
            assert {proof.verdict for proof in proofs} == {Verdict.ALLOWED}, proofs
        assert bucket_of.keys() == {"tmp/a"}
