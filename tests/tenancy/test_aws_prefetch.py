"""What is remembered of the use of models, in the bucket of the local cloud."""

from __future__ import annotations

import pytest

from mme_facts.grammar import GrammarError
from mme_tenancy.aws.clients import s3_client
from mme_tenancy.aws.prefetch import S3PrefetchStates


@pytest.fixture
def states(cloud_session, bucket_name):
    return S3PrefetchStates(s3_client(cloud_session), bucket_name)


def test_a_state_is_created_once_and_replaced_only_in_the_revision_that_was_read(states):
    assert states.get("shared") is None
    assert states.put("shared", b"one", None)
    assert not states.put("shared", b"other", None)
    content, revision = states.get("shared")
    assert content == b"one"
    assert states.put("shared", b"two", revision)
    assert not states.put("shared", b"three", revision)
    assert states.get("shared")[0] == b"two"


def test_pools_do_not_share_a_state_even_if_one_name_begins_like_the_other(states):
    states.put("shared-gpu", b"gpu", None)
    assert states.get("shared") is None
    _content, revision = states.get("shared-gpu")
    assert not states.put("shared", b"one", revision), "nothing is there to be replaced"


def test_a_pool_that_no_key_can_hold_is_refused(states):
    with pytest.raises(GrammarError, match="pool"):
        states.get("shared/../heat")
