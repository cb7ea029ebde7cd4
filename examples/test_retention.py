"""Hold the job file to its promises, in your CI. Copy this beside your retention.py, and run pytest.

pip install "safedelete-purge[testing]"
"""

import pytest
from retention import Upload, logins, scratch, uploads

from safedelete.testing import assert_purge_is_safe

EVERY = [uploads, logins, scratch]


@pytest.mark.parametrize("purge", EVERY, ids=lambda purge: purge.name)
def test_it_keeps_every_promise(purge):
    assert_purge_is_safe(purge, beside=[other for other in EVERY if other is not purge])


def test_a_file_on_legal_hold_stays(purge_lab):
    lab = purge_lab(uploads)
    lab.add(Upload, id=1, expires_at=lab.clock.now(), legal_hold=True, s3_key="a.jpg")
    lab.put("acme-uploads", "a.jpg")
    lab.clock.advance(days=400)
    lab.run(uploads)
    assert lab.store.keys("acme-uploads") == {"a.jpg"}
