"""How a default solver shares out its budget: as data, from public numbers alone.

Shares are of the solver's μ². What is not taken by anything else goes to the steps, so that shares add up to 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpcd.losses import ABOUT_LABELS, Huber, Loss
from dpcd.policy import POLICY


class Allocation(NamedTuple):
    """Shares of a solver's μ².

    Parameters
    ----------
    moments, start, hessians, distances, move
        For second moments, the mean label, Hessians, how far targets are away, and what the last move does.
    sizes, later_sizes
        For the sizes of gradients at the first step, and at each of the later steps `looks`.
    looks
        Later steps before which sizes are seen again.
    """

    moments: float = 0.0
    start: float = 0.0
    hessians: float = 0.0
    distances: float = 0.0
    move: float = 0.0
    sizes: float = 0.0
    later_sizes: float = 0.0
    looks: tuple[int, ...] = ()

    @property
    def before_sizes(self) -> float:
        """What is taken besides sizes and steps."""
        return self.moments + self.start + self.hessians + self.distances + self.move

    @property
    def steps(self) -> float:
        """What is left for the steps' gradients."""
        return 1.0 - self.before_sizes - (self.sizes + self.later_sizes * len(self.looks))

    @property
    def spare(self) -> float:
        """What more looks at sizes may take, where the first one shows nothing."""
        return POLICY.for_size_looks * (1.0 - self.before_sizes - self.sizes - self.later_sizes * len(self.looks))

    def to_dict(self) -> dict[str, float]:
        """Shares by what they buy, those that buy nothing left out."""
        shares = {
            "second moments": self.moments + self.hessians,
            "start": self.start + self.distances,
            "last move": self.move,
            "sizes of gradients": self.sizes + self.later_sizes * len(self.looks),
            "gradients": self.steps,
        }
        return {name: share for name, share in shares.items() if share > 0.0}


def allocate(
    records: float,
    loss: Loss,
    n_steps: int,
    moments: float,
    start: float = 0.0,
    hessians: float = 0.0,
    move: float = 0.0,
) -> Allocation:
    """Share out a budget in records among so many steps and what they need."""
    labels = isinstance(loss, ABOUT_LABELS)
    distances = POLICY.distance_share if eases(loss, n_steps) else 0.0
    sizes = counting_share(records, labels)
    later_sizes = min(sizes, POLICY.seen_again_share)
    least = POLICY.seen_again_records_labels if labels else POLICY.seen_again_records
    looks: tuple[int, ...] = ()
    if records * math.sqrt(later_sizes) >= least:
        # Where the loss changes for the last time, sizes do.
        changes = {n_steps - POLICY.own_threshold_steps} if distances else set[int]()
        looks = tuple(t for t in sorted({*POLICY.seen_again, *changes}) if t < n_steps)
    return Allocation(moments, start, hessians, distances, move, sizes, later_sizes, looks)


def eases(loss: Loss, n_steps: int) -> bool:
    """Whether there are steps with other thresholds before those with the loss itself."""
    return isinstance(loss, Huber) and n_steps > POLICY.own_threshold_steps


def counting_share(records: float, labels: bool) -> float:
    """The share that tells counts of records apart, within limits."""
    least, most = POLICY.counting_least, POLICY.counting_most
    if labels:
        # An even-handed clip does not depend on how long the tail of sizes is, and there is one to fall back on.
        least, most = POLICY.counting_least_labels, POLICY.counting_most_labels
    return min(max((POLICY.counting / records) ** 2, least), most)
