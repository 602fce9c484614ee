"""Where copies of inference components are: the instances of a variant, what each offers and what copies reserve. Pure.

Everything that an instance type has can be reserved. AWS keeps an unknown part for itself (API reference:
InferenceComponentComputeResourceRequirements says what can be asked for).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mme_facts.instances import InstanceTypeError, instance
from mme_local.wire import ValidationError

__all__ = ["Hosts", "Needs", "capacity_of"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a copy reserves, or what an instance has.

    Attributes:
        cpus: vCPUs.
        memory_mib: main memory.
        accelerators: GPUs and other accelerator devices.
    """

    cpus: float = 0.0
    memory_mib: int = 0
    accelerators: int = 0

    def within(self, room: Needs) -> bool:
        """Whether it fits into ``room``."""
        return self.cpus <= room.cpus + 1e-9 and self.memory_mib <= room.memory_mib and self.accelerators <= room.accelerators

    def less(self, other: Needs, times: int = 1) -> Needs:
        """What is left when ``other`` is taken some times."""
        return Needs(
            self.cpus - times * other.cpus, self.memory_mib - times * other.memory_mib, self.accelerators - times * other.accelerators
        )


def capacity_of(instance_type: str) -> Needs:
    """What an instance of a type has; raises `ValidationError` for one whose figures are not known."""
    try:
        known = instance(instance_type)
    except InstanceTypeError as error:
        raise ValidationError(str(error)) from None
    return Needs(float(known.vcpus), known.memory_mib, known.gpus + known.other_accelerators)


class Hosts:
    """The instances of a variant that hosts inference components, and the copies on them.

    Args:
        capacity: what each instance has.
        count: number of instances.
    """

    def __init__(self, capacity: Needs, count: int) -> None:
        self.capacity = capacity
        self._hosts: list[Counter[str]] = [Counter() for _ in range(count)]
        self._needs: dict[str, Needs] = {}
        self._packed: set[str] = set()

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self._hosts)

    @property
    def idle(self) -> int:
        """Instances without any copy."""
        return sum(not host.total() for host in self._hosts)

    @property
    def keys(self) -> Sequence[str]:
        """What has copies here."""
        return tuple(key for key in self._needs if self.copies(key))

    def needs(self, key: str) -> Needs:
        """What each copy of a key reserves."""
        return self._needs[key]

    def copies(self, key: str) -> int:
        """Copies of a key."""
        return sum(host[key] for host in self._hosts)

    def placed(self) -> list[dict[str, int]]:
        """The copies by key, instance by instance."""
        return [{key: number for key, number in host.items() if number} for host in self._hosts]

    def set(self, key: str, needs: Needs, copies: int, *, packed: bool = False) -> bool:
        """Make ``copies`` of a key, all of them or no change.

        Args:
            key: of a component and its generation.
            needs: what each copy reserves; the same for all copies of a key.
            copies: how many there shall be.
            packed: put copies together on few instances instead of spreading them.

        Returns:
            Whether there was room.
        """
        before = [host.copy() for host in self._hosts]
        self._needs[key] = needs
        self._packed.discard(key)
        if packed:
            self._packed.add(key)
        while self.copies(key) > copies:
            # From where most of its copies are; of those from the instance that is nearest to being idle.
            max((host for host in self._hosts if host[key]), key=lambda host: (not packed and host[key], -host.total()))[key] -= 1
        while self.copies(key) < copies:
            fitting = [host for host in self._hosts if needs.within(self._room(host))]
            if not fitting:
                self._hosts = before
                return False
            chosen = max(fitting, key=lambda host: host.total()) if packed else min(fitting, key=lambda host: (host[key], host.total()))
            chosen[key] += 1
        return True

    def resize(self, count: int) -> bool:
        """Have ``count`` instances; copies of those that go move to others. Returns whether there was room, else nothing changes."""
        before = self._hosts
        order = sorted(self._hosts, key=lambda host: -host.total())
        self._hosts = [host.copy() for host in order[:count]] + [Counter() for _ in range(count - len(order))]
        wanted = sum(order[count:], Counter())
        for key, copies in wanted.items():
            if not self.set(key, self._needs[key], self.copies(key) + copies, packed=key in self._packed):
                self._hosts = before
                return False
        return True

    def consolidated(self) -> int:
        """The least number of instances that holds all copies, found by putting them together."""
        for count in range(self.count):
            trial = Hosts(self.capacity, count)
            if all(trial.set(key, self._needs[key], self.copies(key), packed=True) for key in self.keys):
                return count
        return self.count

    def _room(self, host: Counter[str]) -> Needs:
        room = self.capacity
        for key, copies in host.items():
            room = room.less(self._needs[key], copies)
        return room
