"""Reasons why a private model can be useless, and remedies, in sentences that plans, fits and statements share.

All of them follow from public and released numbers alone. A plan uses the same words as the fit for reasons that are
known beforehand.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

# Part of the features that stay out, or of the values outside of bounds, above which there is a concern.
MOST = 0.5
# Predictions count as a constant if they move by less than this part of the target's spread, or of a unit of log odds.
HARDLY = 0.01


class UselessModelWarning(UserWarning):
    """Warning that a model can be of little use, for reasons that follow from public and released numbers."""


def warn_of(concerns: Sequence[str], stacklevel: int) -> None:
    """Warn once of all concerns about a fit, if there are any."""
    if concerns:
        lines = "".join(f"\n- {concern}" for concern in concerns)
        warnings.warn(f"the model can be of little use:{lines}", UselessModelWarning, stacklevel + 1)


def no_update(remedy: str) -> str:
    """Concern: the budget is too small for a single update."""
    return f"the budget bought no update: coefficients are where they started; {remedy}"


def stay_out(count: int, n_features: int, names: str = "") -> str:
    """Note: features that noise hides take no part in the fit."""
    return f"{count} of {n_features} features stay out, coefficient 0" + (f": {names}" if names else "")


def most_stay_out(count: int, n_features: int, remedy: str, bounds_help: bool, names: str = "") -> str:
    """Concern: most features take no part in the fit."""
    declare = "declare feature_bounds, so that they need not be found, or " if bounds_help else ""
    return f"{stay_out(count, n_features, names)}; {declare}{remedy}"


def unseen_target(remedy: str) -> str:
    """Concern: noise hides where the target lies and how far it spreads."""
    return f"nothing of the target could be seen at this budget; declare target_bounds, or {remedy}"


def only_a_constant() -> str:
    """Concern: the fitted coefficients are 0 or nearly so."""
    return "coefficients are 0 or nearly so, and predictions a constant; take a smaller alpha, or more of a budget"


def outside_bounds(what: str, parameter: str) -> str:
    """Concern: most values of a column or the target lie outside of declared bounds, so clipping leaves a constant."""
    return f"most values of {what} lie outside of their declared bounds, and are clipped to them; correct {parameter}"


def too_many_classes(n_classes: int, remedy: str) -> str:
    """Concern: the part of the budget for each class is too small."""
    return f"{n_classes} classes are too many for the budget, which each has a part of; merge some, or {remedy}"


def large_delta(delta: float, n_records: int) -> str:
    """Concern: publishing whole records at random would satisfy such a delta."""
    return (
        f"delta = {delta:g} is not below 1/n = {1.0 / n_records:.3g}, which lets whole records be published; leave it "
        f"at None, which means 1/n². A fit takes it with allow_large_delta=True only"
    )
