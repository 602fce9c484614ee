"""Talks to a fleet step by step, for the tests of its rules."""

from typing import Any

from mme_fleet import Downloaded, Fleet, FleetSettings, Forward, InstanceUp, Load, Loaded, Replied, Reply, Request, Router, Unload, Unloaded

OVERHEAD = 10
WAIT_SECONDS = 5


class Driver:
    """Talks to a fleet and keeps the time; by default one instance that holds three models of 20 bytes and overhead."""

    def __init__(
        self, *instances: str, memory: int = 90, disk: int = 1000, load_attempts: int = 3, router: Router | None = None, **settings: Any
    ) -> None:
        self.fleet = Fleet(FleetSettings(OVERHEAD, WAIT_SECONDS, load_attempts, **settings), router)
        self.now = 0.0
        self.memory, self.disk = memory, disk
        self.ids = iter(range(1, 1000))
        for instance in instances or ("i",):
            assert self.up(instance) == ()

    def on(self, event):
        self.now += 0.001
        return self.fleet.on(event, self.now)

    def up(self, instance: str, *, disk_kept: bool = False, zone: str = ""):
        return self.on(InstanceUp(instance, self.memory, self.disk, disk_kept=disk_kept, zone=zone))

    def request(self, model: str):
        number = next(self.ids)
        return number, self.on(Request(number, model))

    def serve(self, model: str, instance: str = "i", size: int = 20) -> int:
        """Bring a model into memory with one request and answer that; returns the number of evictions it took."""
        number, actions = self.request(model)
        if actions and type(actions[0]).__name__ == "Download":
            assert actions[0].instance == instance
            actions = self.on(Downloaded(instance, model, size))
        evicted = [action for action in actions if isinstance(action, Unload)]
        for action in evicted:
            actions = self.on(Unloaded(instance, action.model))
        if actions == (Load(instance, model),):
            actions = self.on(Loaded(instance, model))
        assert actions[0] == Forward(number, instance, model, cold=actions[0].cold)
        assert self.on(Replied(number, 200)) == (Reply(number),)
        return len(evicted)

    def resident(self, instance: str = "i") -> list[str]:
        return [model.model for model in self.instance(instance).models if model.state == "loaded"]

    def instance(self, instance: str = "i"):
        return next(entry for entry in self.fleet.snapshot().instances if entry.instance == instance)


def error_of(actions):
    (reply,) = [action for action in actions if isinstance(action, Reply)]
    return reply.error
