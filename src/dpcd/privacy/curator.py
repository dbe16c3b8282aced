"""The one door between raw data and the world."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any, NoReturn

import numpy as np

from dpcd.privacy.accounting import BudgetExceeded, PrivacyBudget, PrivacyCost
from dpcd.privacy.lattice import Floats
from dpcd.privacy.ledger import Account
from dpcd.privacy.mechanism import Mechanism
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import Release
from dpcd.tables import Columns


class Curator:
    """Holds the data and a budget; releases what is paid for.

    `release` is the only way out. It charges the cost before the data are read and never gives back what was
    charged, whatever happens afterwards.

    Parameters
    ----------
    columns
        The data, owned by the curator from now on.
    budget
        What everything released may cost together.
    noise
        Where the noise comes from.
    account
        A dataset's budget in a ledger, which every release is charged to as well. It must have room for all of
        `budget` from the start, so that no fit ends half way with part of it wasted; other processes may still be
        faster, and then a release is refused. None: there is no ledger.
    """

    def __init__(
        self, columns: Columns, budget: PrivacyBudget, noise: NoiseSource, account: Account | None = None
    ) -> None:
        if account is not None:
            if not noise.private:
                raise ValueError(
                    "a ledger records what is private, and a fit with seeded noise is not: leave random_state=None, or "
                    "leave out ledger and dataset"
                )
            account.require(budget)
        self._account = account
        self._columns = columns
        self._noise = noise
        self._lock = threading.Lock()
        self._spent = PrivacyCost()
        self._releases: list[Release] = []
        self._budget = budget

    @property
    def budget(self) -> PrivacyBudget:
        """What everything released may cost together."""
        return self._budget

    @property
    def n_records(self) -> int:
        """Number of records, which is public."""
        return self._columns.n_records

    @property
    def n_columns(self) -> int:
        """Number of columns, the intercept's included, which is public."""
        return self._columns.n_columns

    @property
    def spent(self) -> PrivacyCost:
        """What has been charged so far."""
        return self._spent

    @property
    def releases(self) -> tuple[Release, ...]:
        """What has been released so far, in order."""
        return tuple(self._releases)

    @property
    def noise_description(self) -> str:
        """Where the noise comes from, in words."""
        return self._noise.description

    @property
    def private(self) -> bool:
        """Whether nobody can reproduce the noise."""
        return self._noise.private

    @property
    def gaussian_room(self) -> float:
        """μ² of Gaussian releases that the budget still has room for."""
        return self._budget.gaussian_room(self._spent)

    def release(self, mechanism: Mechanism) -> Any:
        """Charge what the mechanism costs, then run it on the data.

        Raises
        ------
        BudgetExceeded
            If the budget, or the account, has no room for it. Nothing is charged and nothing is read.
        TypeError
            If it is no mechanism of this package, and not derived from one: nobody has argued what it costs.
        """
        if not any(kind.__module__.startswith(f"{__package__}.") for kind in type(mechanism).__mro__):
            raise TypeError(
                f"{type(mechanism).__name__} is no mechanism of {__package__}, where each argues what it costs: "
                f"release what is there, or derive a class from {__package__}.mechanism.Mechanism and argue it"
            )
        # Checked and charged in one go: kernels release the GIL, and two threads must not both pass the check.
        with self._lock:
            self._charge(mechanism)
        # Whether an overflow is worth a warning depends on the data, so nobody may see it.
        with np.errstate(all="ignore"):
            return mechanism.run(self._columns, self._noise)

    def _charge(self, mechanism: Mechanism) -> None:
        if any(mechanism.relation != release.relation for release in self._releases):
            raise ValueError(
                f"{mechanism.description} is accounted for neighbours that {mechanism.relation}, and what was released "
                f"before is not: their costs do not add up"
            )
        cost = mechanism.cost
        after = self._spent + cost
        if not self.budget.admits(after):
            total = after.epsilon(self.budget.delta, self.budget.order)
            raise BudgetExceeded(
                f"{mechanism.description} would bring the total to epsilon = {total:.6g} at "
                f"delta = {self.budget.delta:.3g}, and the budget is epsilon = {self.budget.epsilon:.6g}: "
                f"use more noise, fewer releases or a larger epsilon"
            )
        if self._account is not None:
            self._account.charge(cost, mechanism.description, mechanism.relation, mechanism.count)
        self._spent = after
        sampling = getattr(mechanism, "sampling", None)
        line = Release(
            mechanism.description,
            mechanism.count,
            *mechanism.noise_multipliers,
            cost,
            mechanism.relation,
            getattr(mechanism, "law", "gaussian"),
            None if sampling is None else {"kind": type(sampling).__name__, **asdict(sampling)},
            getattr(mechanism, "selection", None),
            getattr(mechanism, "multiplier_counts", ()),
        )
        self._releases.append(line)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a curator holds raw data and a budget: neither may be copied")

    def clip_features(self, lower: Floats, upper: Floats, center: Floats) -> None:
        """Replace x_j by clip(x_j, lower_j, upper_j) − center_j in the first columns.

        Each record is changed by public or released numbers only, so nothing is released and nothing is charged.
        """
        self._columns.clip_features(lower, upper, center)

    def clip_target(self, lower: float, upper: float, center: float) -> None:
        """Replace y by clip(y, lower, upper) − center, as `clip_features` does."""
        self._columns.clip_target(lower, upper, center)
