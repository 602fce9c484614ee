"""Events of AWS services: what is sent, and how often."""

from __future__ import annotations

from mme_local.events import Events


def sent(share, chances, times=3):
    delivered, heard, chances = [], [], iter(chances)
    events = Events(delivered.append, now=lambda: 5.0, duplicate_share=share, chance=lambda: next(chances))
    events.listen(heard.append)
    for number in range(times):
        events.publish("type", {"number": number}, ["arn"])
    assert heard == delivered
    return delivered


def test_a_share_of_the_events_is_sent_twice_each_time_with_an_id_of_its_own():
    delivered = sent(0.5, [0.9, 0.1, 0.5])
    assert [event.detail["number"] for event in delivered] == [0, 1, 1, 2]
    assert len({event.event_id for event in delivered}) == 4
    assert {(event.source, event.detail_type, event.time) for event in delivered} == {("aws.sagemaker", "type", 5.0)}


def test_a_share_of_none_and_a_share_of_all():
    assert len(sent(0.0, [0.0, 0.0, 0.0])) == 3
    assert len(sent(1.0, [0.9, 0.99, 0.999])) == 6


def test_the_same_run_has_the_same_duplicates():
    def run():
        delivered = []
        events = Events(delivered.append, now=lambda: 0.0, duplicate_share=0.3)
        for number in range(40):
            events.publish("type", {"number": number}, [])
        return [event.detail["number"] for event in delivered]

    first = run()
    assert first == run()
    assert 40 < len(first) < 80
