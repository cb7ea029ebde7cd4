"""Whether a store honours conditions is proven on a canary, which goes again."""

from __future__ import annotations

from typing import Any

import pytest

from safedelete.errors import StoreError
from safedelete.s3.canary import prove_conditional
from safedelete.testing.servers import RUNNER, UPLOADER, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import Honest, Request, refusing
from tests.s3.support import reach


def test_a_store_that_honours_conditions_is_proven(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    found = prove_conditional(reach(weed, RUNNER), bucket, "d/")
    assert found.both
    assert weed.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_store_that_ignores_them_in_batches_is_not(moto: Moto, bucket: str) -> None:
    moto.create_bucket(bucket)
    found = prove_conditional(reach(moto), bucket, "d/")
    assert (found.together, found.alone, found.both) == (False, True, False)
    assert "DeleteObjects ignored" in found.said
    assert moto.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_an_object_that_stays_without_a_word_proves_nothing(stub: StubS3) -> None:
    from safedelete.testing.servers.faults import Answer, delete_result

    stub.create_bucket("b")
    stub.always(lambda request, _: Answer(200, delete_result(deleted=request.keys)))
    assert not prove_conditional(reach(stub), "b", "d/").together


@pytest.mark.parametrize("operation", ["PutObject", "DeleteObjects", "HeadObject"])
def test_what_could_not_be_tried_is_an_error(stub: StubS3, operation: str) -> None:
    stub.create_bucket("b")
    stub.always(refusing(403, "AccessDenied"), operation)
    with pytest.raises(StoreError):
        prove_conditional(reach(stub), "b", "d/")
    assert not stub.keys("b")


def test_a_canary_that_cannot_be_removed_is_named(stub: StubS3) -> None:
    stub.create_bucket("b")

    def keep(request: Request, honest: Honest) -> Any:
        return honest() if "if-match" in request.headers else refusing(403, "AccessDenied")(request, honest)

    stub.always(keep, "DeleteObject")
    with pytest.raises(StoreError, match="could not be removed") as caught:
        prove_conditional(reach(stub), "b", "d/")
    (left,) = stub.keys("b")
    assert left in str(caught.value)


def test_who_may_not_delete_proves_nothing(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    with pytest.raises(StoreError):
        prove_conditional(reach(weed, UPLOADER), bucket, "d/")
