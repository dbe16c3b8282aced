"""What makes a private model useless, and what would help: sentences that plans, fits and statements share.

They follow from public and released numbers alone. What a plan can know it says beforehand, in the same words as a fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

# Of the features that stay out, and of the values that lie outside of bounds: more of them than this.
MOST = 0.5
# Predictions that move by less than this part of the target's spread, or of a unit of log odds, are a constant.
HARDLY = 0.01


class UselessModelWarning(UserWarning):
    """A fit whose model can be of little use, for reasons that public and released numbers tell."""


def warn_of(concerns: Sequence[str], stacklevel: int) -> None:
    """One warning for all concerns about a fit, if there are any."""
    if concerns:
        lines = "".join(f"\n- {concern}" for concern in concerns)
        warnings.warn(f"the model can be of little use:{lines}", UselessModelWarning, stacklevel + 1)


def no_update(remedy: str) -> str:
    """Nothing was learnt besides ranges and constants."""
    return f"the budget bought no update: coefficients are where they started; {remedy}"


def stay_out(count: int, n_features: int, names: str = "") -> str:
    """Features of which nothing is seen."""
    return f"{count} of {n_features} features stay out, coefficient 0" + (f": {names}" if names else "")


def most_stay_out(count: int, n_features: int, remedy: str, bounds_help: bool, names: str = "") -> str:
    """The same, where it is a reason to worry."""
    declare = "declare feature_bounds, so that they need not be found, or " if bounds_help else ""
    return f"{stay_out(count, n_features, names)}; {declare}{remedy}"


def unseen_target(remedy: str) -> str:
    """Without its place and spread nothing can be learnt."""
    return f"nothing of the target could be seen at this budget; declare target_bounds, or {remedy}"


def only_a_constant() -> str:
    """Updates were made, and left nothing."""
    return "coefficients are 0 or nearly so, and predictions a constant; take a smaller alpha, or more of a budget"


def outside_bounds(what: str, parameter: str) -> str:
    """Values are clipped to bounds, so that these have become one."""
    return f"most values of {what} lie outside of their declared bounds, and are clipped to them; correct {parameter}"


def too_many_classes(n_classes: int, remedy: str) -> str:
    """Each class has its own part of the budget."""
    return f"{n_classes} classes are too many for the budget, which each has a part of; merge some, or {remedy}"


def large_delta(delta: float, n_records: int) -> str:
    """Publishing a record at random would satisfy it."""
    return (
        f"delta = {delta:g} is not below 1/n = {1.0 / n_records:.3g}, which lets whole records be published; leave it "
        f"at None, which means 1/n²"
    )
