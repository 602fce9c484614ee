"""The local cloud's scaled clock."""

import asyncio
import time

from mme_facts.scaled_time import ScaledTime
from mme_local.clock import CloudClock


def test_scaled_seconds_pass_faster():
    async def story():
        clock = CloudClock(600.0)
        began, real = clock.time(), time.monotonic()
        await clock.sleep(60.0)
        assert clock.time() - began >= 60.0
        return time.monotonic() - real

    assert asyncio.run(story()) < 30.0  # not the 60 s it shows


def test_a_jump_ends_a_wait():
    async def story():
        clock = CloudClock()
        wait = asyncio.create_task(clock.sleep(3600.0))
        await asyncio.sleep(0)
        clock.jump(3600.0)
        await asyncio.wait_for(wait, 10)

    asyncio.run(story())


def test_a_jump_back_lengthens_a_wait():
    async def story():
        clock = CloudClock(1000.0)
        goal = clock.time() + 100.0
        wait = asyncio.create_task(clock.sleep_until(goal))
        await asyncio.sleep(0)
        clock.jump(-50.0)
        await asyncio.wait_for(wait, 10)
        assert clock.time() >= goal

    asyncio.run(story())


def test_followers_hear_of_a_jump():
    async def story():
        clock = CloudClock()
        settings = [clock.setting]
        clock.on_jump(lambda: settings.append(clock.setting))
        clock.jump(3600.0)
        return settings

    before, after = map(ScaledTime.read, asyncio.run(story()))
    assert abs(after.at(0.0) - before.at(0.0) - 3600.0) < 1.0
