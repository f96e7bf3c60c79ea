"""States of a node, as scontrol(1) prints them: what each means, and how sinfo(1) shows them."""

import re
from enum import Flag, auto


class Means(Flag):
    """Meanings of a state for its node."""

    FINE = auto()
    """The node does, or will do, what it is there for."""
    UP = auto()
    """The base state of a node that takes or runs jobs."""
    BUSY = auto()
    """Jobs are on it."""
    DOWN = auto()
    """The node takes no jobs, and this was not requested."""
    ASLEEP = auto()
    """The node is off, or about to start or stop, on request: not down."""
    SILENT = auto()
    """The node does not answer slurmctld."""
    HELD = auto()
    """`scontrol update State=RESUME` has an effect."""
    REBOOTING = auto()
    """slurmctld will reboot it, or waits until it has booted."""


_POWER = Means.FINE | Means.ASLEEP
_SILENT = Means.DOWN | Means.SILENT
NODE_STATES = {
    "IDLE": Means.FINE | Means.UP,
    "MIXED": Means.FINE | Means.UP | Means.BUSY,
    "ALLOCATED": Means.FINE | Means.UP | Means.BUSY,
    "COMPLETING": Means.BUSY,
    "PLANNED": _POWER,
    "CLOUD": _POWER,
    "POWERED_DOWN": _POWER,
    "POWERING_DOWN": _POWER,
    "POWER_DOWN": _POWER,
    "POWERING_UP": _POWER,
    "POWER_UP": _POWER,
    "RESERVED": Means.FINE,
    "MAINTENANCE": Means.FINE,
    "DYNAMIC_NORM": Means.FINE,
    "DYNAMIC_FUTURE": Means.FINE,
    "REBOOT_REQUESTED": Means.REBOOTING,
    "REBOOT_ISSUED": Means.REBOOTING | Means.ASLEEP,
    "DRAIN": Means.HELD,
    "DOWN": Means.DOWN | Means.HELD,
    "FAIL": Means.DOWN | Means.HELD,
    "NOT_RESPONDING": _SILENT,
    "NO_RESPOND": _SILENT,
    "ERROR": Means.DOWN,
    "INVALID_REG": Means.DOWN,
    "UNKNOWN": Means.DOWN,
    "FUTURE": Means.DOWN,
}
"""Base states and flags. A state that is not here means nothing to this program: its node is not fine and not down."""


def parse(text: str) -> frozenset[str]:
    """Base state and flags of `State=IDLE*+DRAIN`.

    The star is slurmctld's mark for a node that does not answer; every other mark stands beside a flag that says it.
    """
    return frozenset(re.sub(r"[^A-Z_]", "", word) for word in text.replace("*", "+NOT_RESPONDING").split("+"))


class InStates:
    """Properties that follow from a node's states; a base of classes that have `states`."""

    states: frozenset[str]
    """Base state and flags."""

    def _any(self, meaning: Means) -> bool:
        return any(meaning in NODE_STATES.get(state, Means(0)) for state in self.states)

    @property
    def fine(self) -> bool:
        """True if the node takes or runs jobs, and nothing is wrong with it."""
        return self._any(Means.UP) and all(Means.FINE in NODE_STATES.get(state, Means(0)) for state in self.states)

    @property
    def drained(self) -> bool:
        """True if the node takes no new jobs because an administrator or slurmctld drained it."""
        return "DRAIN" in self.states

    @property
    def down(self) -> bool:
        """True if slurmctld has lost the node."""
        return self._any(Means.DOWN) and not self._any(Means.ASLEEP)

    @property
    def silent(self) -> bool:
        """True if the node does not answer slurmctld."""
        return self._any(Means.SILENT)

    @property
    def rebooting(self) -> bool:
        """True if slurmctld will reboot the node, or waits until it has booted."""
        return self._any(Means.REBOOTING)

    @property
    def held(self) -> bool:
        """True if RESUME has an effect."""
        return self._any(Means.HELD)

    @property
    def word(self) -> str:
        """The state as sinfo(1) prints it; `*` without an answer, `@` where a reboot is pending, `^` during it."""
        if "REBOOT_ISSUED" in self.states:
            return "reboot^"
        if self.drained:
            word = "draining" if self._any(Means.BUSY) else "drained"
            word = f"down, {word}" if "DOWN" in self.states else word
        else:
            named = ("DOWN", "FAIL", "COMPLETING", "MIXED", "ALLOCATED", "IDLE")
            word = next((name for name in named if name in self.states), "+".join(sorted(self.states))).lower()
        star = "*" if "NOT_RESPONDING" in self.states else ""
        return word + star + ("@" if "REBOOT_REQUESTED" in self.states else "")
