"""Mechanisms that release a whole minimum: output perturbation and objective perturbation.

Both work in scaled coordinates u = s·w, with rows x/s scaled down to l2 norm R where they are longer, and with the
loss's slope clamped to ± L. The data term is F(u) = Σ_i φ(y_i, x_i·u), φ' = clamp(ℓ', −L, L), and what is minimised is

    J(u) = F(u) + Σ_j ½ n·ridge_j u_j² + ½ n·strength ‖u‖² + b·u,

with b = 0 for output perturbation. Write m for n·(strength + least ridge), β for the loss's curvature and G = L·R.

What both rest on
-----------------
**The loss.** Everywhere else in this library a loss can be anything, because contributions are clamped. A minimum is
different: how far one record moves it depends on all the others being *convex*, and for objective perturbation on
their curvature, which no clamp enforces. So these mechanisms take the library's own losses only, whose derivatives are
non-decreasing and β-Lipschitz in z (for labels ±1, and any other label is made one). Clamping keeps both properties:
φ is a convex, G-Lipschitz and β-smooth function of x·u whatever the record holds. Rows that are no numbers become zero.

**The minimum moves little.** ∇J is m-strongly monotone, m‖u − u'‖² ≤ ⟨∇J(u) − ∇J(u'), u − u'⟩. Hence (i) a point with
‖∇J(u)‖ ≤ t is within t/m of the minimum; (ii) the minima for b and b' are within ‖b − b'‖/m of each other; (iii) if D'
has the record (x', y') where D has (x, y), the two gradients at a point differ by v = g·x − g'·x', where g and g' are
the records' slopes there, ‖v‖ ≤ 2G, and the minima are within 2G/m.

**The tolerance is part of the argument.** A point is accepted on a certificate: the norm of its gradient in floating
point, plus a bound on all that rounding may have done to it, is at most a public number, `tolerance`. Nothing is
released without one. Newton's method finds such a point in a handful of steps. Should it not have after a hundred,
Nesterov's accelerated steps follow, with M = nβR² + n·(strength + largest ridge): for J with Hessians between m and M
the distance from the minimum falls as (1 − √(m/M))^(k/2), so in exact arithmetic there always is a certificate,
after a number of steps that is public. The tolerance is four times the worst rounding. If rounding prevailed all the
same, the fit would go on for ever, and release nothing. How long a fit takes is not covered, here as elsewhere.

**Rounding.** Sums over n records are formed in chunks of c: their error is (c + n/c)·2⁻⁵³ of nG in any order of
additions. A predictor x·u is wrong by (p + 2)·2⁻⁵³·R‖u‖ at most, its slope by β times that and some last places of L.
`_PerturbedProblem.rounding` takes twice these bounds. Rows are shortened to R in floating point: G and R are taken 10⁻⁸
larger for that.

**What comes out are integers.** The accepted point, in units of a power of two (an exact division), is rounded (√p/2
units), and discrete Gaussian noise of at least 2³⁰ units is added. Entries are cut off at ± 2⁶¹ units, which brings
points closer together if anything.

Objective perturbation: the theorem
-----------------------------------
Let b ~ N(0, σ²I) be continuous, s = σ/2G, and u*(b) the exact minimum.

**Theorem.** Releasing u*(b) has Rényi divergence of order α, between data sets that differ in one record, at most

    ρ(α) = log(1 + βR²/m) + α/(2s²) + log(2Φ((α − 1)/s))/(α − 1).

*Proof.* The gradient ∇J₀ of J without its term b·u is Lipschitz and strongly monotone, so b ↦ u*(b) is a bijection,
Lipschitz in both directions, with inverse b_D(u) = −∇J₀(u). By the area formula u* has the density
N(b_D(u); 0, σ²I)·det H_D(u). The Hessian H_D exists for almost every u: φ' has finitely many kinks, and x·u meets one
of them on a null set, unless x = 0. Write H_D = A + c·xxᵀ and H_D' = A + c'·x'x'ᵀ, with A that of the records in common
and of the penalty, A ⪰ mI, and 0 ≤ c, c' ≤ β. At a point u = u*(b) for D, the noise that D' needs is b + v, with v as
in (iii), and the log ratio of the densities is

    log p/p' = (2b·v + ‖v‖²)/2σ² + log(det H_D/det H_D').

*Determinants.* det H_D = det A·(1 + c·xᵀA⁻¹x) lies between det A and det A·(1 + βR²/m), and so does det H_D': replacing
a record costs *one* factor. *Gaussian part.* v depends on u and thereby on b, so b·v is not Gaussian. But v is a
combination of two directions that do not depend on b: b·v ≤ L(|b·x| + |b·x'|), and ‖v‖ ≤ 2G. The divergence is
log E exp((α − 1)·log p/p')/(α − 1) with b ~ N(0, σ²I). By the Cauchy–Schwarz inequality and |x|, |x'| ≤ R,
E exp((α − 1)L(|b·x| + |b·x'|)/σ²) ≤ E exp((α − 1)|Z|/s) with Z ~ N(0, 1), and E e^{t|Z|} = 2Φ(t)e^{t²/2}. Together:
log(1 + βR²/m) + 1/(2s²) + (α − 1)/(2s²) + log(2Φ((α − 1)/s))/(α − 1). ∎

That is the divergence of a Gaussian release with noise multiplier s, plus the determinant's term, plus at most
log 2/(α − 1) for the sign that v may take from b.

**From the theorem to the mechanism** (approximate minima perturbation, Iyengar et al. 2019, with noise on a lattice).
The mechanism draws b on a lattice of unit h, minimises approximately, and adds noise of multiplier z to the result.
Couple its noise with a continuous b: rounding to the lattice moves each entry by at most h/2. So the accepted point is
within τ = (tolerance + h√p/2)/m of u*(b). *Suppose u*(b) were released first*, at the theorem's price. Given u*(b) = u
and the data, b = b_D(u), and the accepted point is a function of it, within τ of u on D and on D' alike: a quantity of
sensitivity 2τ, released with Gaussian noise of z·2τ. The two releases compose adaptively to ρ(α) + α/2z², and
forgetting the first is post-processing. At last, the noise drawn is discrete Gaussian and not rounded Gaussian: the
lemma in `accounting` bounds the ratio of their laws, hence of the laws of any function of the noise, here 2p draws.

**Why a Rényi curve and not a μ.** Were log p/p' Lipschitz in b with constant K, the mechanism would be Kσ-GDP: along
Brownian motion the likelihood ratio is a martingale exp(M − ⟨M⟩/2) with ⟨M⟩ ≤ K²σ², and a convex function of it has no
larger mean than at the full time. But the gradient contains (∂v/∂b)ᵀb, which is small and not bounded. From the bound
on |log p/p'| alone a μ must be about 1.6/s, because near ε = 0 nothing excludes that the sign of the log ratio goes
with the larger half of |Z|; at the ε and δ of a budget the curve costs a few per cent instead.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dpcd.compilation import compiled, derivative
from dpcd.losses import ABOUT_LABELS, Huber, Logistic, Loss, SmoothedHinge, Squared
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.lattice import Floats
from dpcd.privacy.mechanism import check_columns, check_loss, check_multipliers, freeze
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.rivals.rows import bounded_rows
from dpcd.privacy.statement import REPLACE_ONE

#: Losses whose derivative is known to be non-decreasing and `curvature`-Lipschitz; the latter two for labels ±1.
CONVEX_LOSSES = (Squared, Huber, Logistic, SmoothedHinge)

_ROUNDOFF = 2.0**-53
# Records whose gradients are added up before the next level of additions.
_CHUNK = 4096
_NEWTON_STEPS = 100
# What is asked of the minimisation beyond rounding, in units of what one record can do to the gradient.
_TOLERANCE = 1e-6
# Covers the rounding of norms of rows of up to 10⁷ entries, and of the few operations on constants.
_SLACK = 1.0 + 1e-8


def slopes_and_curvatures(loss, target, predictor, clip, width, slopes, curvatures):  # type: ignore[no-untyped-def]
    """Clamped slopes φ' and, by differences over `width`, curvatures, which only make Newton's method fast."""
    for i in range(predictor.shape[0]):
        y, z = target[i], predictor[i]
        # Without any clip only the squared loss has no width of its own, and its curvature is the same over any.
        step = width if width < np.inf else 1.0 + abs(y) + abs(z)
        slope, above, below = derivative(loss, y, z), derivative(loss, y, z + step), derivative(loss, y, z - step)
        # Written so that NaN, for which every comparison is false, falls on a bound.
        slope = slope if slope < clip else clip
        slopes[i] = slope if slope > -clip else -clip
        above, below = min(max(above, -clip), clip), min(max(below, -clip), clip)
        curvature = (above - below) / (2.0 * step)
        curvatures[i] = curvature if curvature > 0.0 else 0.0


class _Minimization:
    """One problem with its data: gradients, what rounding does to them, and the minimum."""

    def __init__(self, problem: _PerturbedProblem, table: Any, tilt: Floats) -> None:
        self._problem, self._tilt = problem, tilt
        columns = problem.active
        self._rows, _ = bounded_rows(table.doubles()[:, columns] / problem.scales[columns], problem.row_norm)
        target = table.signed_target(problem.positive_class)
        labels = isinstance(problem.loss, ABOUT_LABELS)
        self._target = np.where(target > 0.0, 1.0, -1.0) if labels else np.where(np.isnan(target), 0.0, target)
        self._kernel = compiled(slopes_and_curvatures, type(problem.loss))
        self._width = 1e-4 * min(problem.clip, problem.loss.lipschitz) / problem.loss.curvature
        self._pull = problem.n_records * (problem.ridge[columns] + problem.strength)
        # Keeps Newton's steps within reason where few records are curved and little pulls.
        self._damping = 1e-10 * problem.loss.curvature * float(np.einsum("ij,ij->", self._rows, self._rows)) + 1e-100

    def _slopes(self, predictor: Floats) -> tuple[Floats, Floats]:
        slopes, curvatures = np.empty_like(predictor), np.empty_like(predictor)
        problem = self._problem
        self._kernel(problem.loss, self._target, predictor, problem.clip, self._width, slopes, curvatures)
        return slopes, curvatures

    def _gradient(self, point: Floats, slopes: Floats) -> Floats:
        starts = range(0, len(slopes), _CHUNK)
        sums = [self._rows[i : i + _CHUNK].T @ slopes[i : i + _CHUNK] for i in starts]
        gradient: Floats = np.sum(sums, axis=0) + self._pull * point + self._tilt
        return gradient

    def certified(self, tolerance: float) -> Floats:
        """A point where the gradient's norm is at most `tolerance`, whatever rounding did."""
        point = before = np.zeros(len(self._pull))
        largest, least = self._problem.smoothness, float(np.min(self._pull))
        momentum = (math.sqrt(largest) - math.sqrt(least)) / (math.sqrt(largest) + math.sqrt(least))
        for step in itertools.count():
            predictor = self._rows @ point
            slopes, curvatures = self._slopes(predictor)
            gradient = self._gradient(point, slopes)
            rounding = self._problem.rounding(float(np.linalg.norm(point)), float(np.linalg.norm(self._tilt)))
            if _SLACK * float(np.linalg.norm(gradient)) + rounding <= tolerance:
                break
            if step < _NEWTON_STEPS:
                point = before = point + self._newton_step(point, predictor, gradient, curvatures)
            else:
                after = point - gradient / largest
                point, before = after + momentum * (after - before), after
        return point

    def converged(self) -> Floats:
        """The minimum as well as it can be found. For ε = ∞ only: there may be none, and nothing is certified."""
        point = np.zeros(len(self._pull))
        for _ in range(_NEWTON_STEPS):
            predictor = self._rows @ point
            slopes, curvatures = self._slopes(predictor)
            gradient = self._gradient(point, slopes)
            step = self._newton_step(point, predictor, gradient, curvatures)
            point = point + step
            if np.max(np.abs(self._rows @ step), initial=0.0) <= 1e-13 * np.max(np.abs(predictor), initial=0.0):
                break
        return point

    def _newton_step(self, point: Floats, predictor: Floats, gradient: Floats, curvatures: Floats) -> Floats:
        """A Newton direction, as far along it as the objective falls."""
        hessian = (self._rows * curvatures[:, None]).T @ self._rows
        hessian[np.diag_indices_from(hessian)] += self._pull + self._damping
        direction: Any
        try:
            direction = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            direction = -np.linalg.lstsq(hessian, gradient)[0]
        if not float(gradient @ direction) < 0.0:
            direction = -gradient
        change = self._rows @ direction
        before = float(gradient @ direction)
        length, low, high = 1.0, 0.0, math.inf
        for _ in range(50):
            slopes, _ = self._slopes(predictor + length * change)
            pull = self._pull * (point + length * direction) + self._tilt
            along = float(slopes @ change + pull @ direction)
            if abs(along) <= 0.25 * abs(before):
                break
            low, high = (length, high) if along < 0.0 else (low, length)
            length = 0.5 * (low + high) if high < math.inf else 2.0 * length
        return np.asarray(length * direction, dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class _PerturbedProblem:
    """The minimisation that both mechanisms share; every field is public.

    Parameters
    ----------
    loss
        One of `CONVEX_LOSSES`.
    scales
        s_j of every column; one with 0 stays out, and its weight is 0.
    ridge
        The penalty's part: ½ ridge_j u_j² is added to the mean loss. Zeros for no penalty, or for an intercept.
    strength
        ½ strength ‖u‖² is added to the mean loss besides.
    row_norm
        R, the largest norm of a row x/s; longer rows are scaled down. Infinite where there is no noise only.
    clip
        L, the largest slope |ℓ'|; larger ones are clamped. Infinite as above.
    n_records
        n.
    positive_class
        As in `CoordinateUpdates`.
    """

    loss: Loss
    scales: Floats
    ridge: Floats
    strength: float
    row_norm: float
    clip: float
    n_records: int
    positive_class: int | None = None

    relation = REPLACE_ONE
    count = 1

    def __post_init__(self) -> None:
        check_loss(self.loss)
        check_convex(self.loss)
        freeze(self, scales=np.float64, ridge=np.float64, strength=float, row_norm=float, clip=float)
        if self.scales.ndim != 1 or self.scales.shape != self.ridge.shape or len(self.scales) > 10**7:
            raise ValueError("scales and ridge need one value for each column, of which there may be 10 million")
        if not (np.all(self.scales >= 0.0) and np.all(np.isfinite(self.scales)) and np.any(self.scales > 0.0)):
            raise ValueError("scales must be finite and not negative, and one must be positive")
        if not (np.all(self.ridge >= 0.0) and np.all(np.isfinite(self.ridge)) and 0.0 <= self.strength < math.inf):
            raise ValueError("ridge and strength must be finite and not negative")
        if not (self.row_norm > 0.0 and self.clip > 0.0):
            raise ValueError("row_norm and clip must be positive")
        if self.n_records < 1 or self.n_records != int(self.n_records):
            raise ValueError(f"n_records must be a whole number of at least 1, got {self.n_records}")

    def _check_bounded(self) -> None:
        """Refuse what no noise covers."""
        constants = (self.row_norm, self.clip, self.convexity, self.smoothness, self.loss.curvature)
        if not all(1e-30 <= value <= 1e30 for value in constants):
            raise ValueError(
                "noise covers a minimum only if rows, slopes and curvatures are bounded: row_norm, clip, the loss's "
                "curvature and strength + ridge must lie between 1e-30 and 1e30, far from where numbers overflow; "
                "infinite ones are for epsilon=math.inf"
            )

    @property
    def active(self) -> NDArray[np.int64]:
        """Columns that take part."""
        return np.flatnonzero(self.scales)

    @property
    def record_gradient(self) -> float:
        """G: the largest norm of one record's gradient."""
        return self.clip * self.row_norm * _SLACK

    @property
    def convexity(self) -> float:
        """m: the objective (a sum over records) is at least so strongly convex."""
        return self.n_records * (self.strength + float(self.ridge[self.active].min()))

    @property
    def smoothness(self) -> float:
        """M: and its curvature is at most this."""
        largest = self.strength + float(self.ridge[self.active].max())
        return self.n_records * (self.loss.curvature * (self.row_norm * _SLACK) ** 2 + largest)

    def rounding(self, length: float, tilt: float) -> float:
        """What rounding may do to the norm of a gradient at a point of norm `length`: twice what is argued above."""
        n, p, curvature = self.n_records, len(self.active), self.loss.curvature
        chunk = min(n, _CHUNK)
        predictor = (p + 8.0) * self.row_norm * length + (8.0 if isinstance(self.loss, ABOUT_LABELS) else 0.0)
        slope = curvature * predictor + 64.0 * self.clip
        sums = (chunk + n / chunk + 8.0) * n * self.record_gradient
        pull = n * (self.strength + float(self.ridge[self.active].max())) * length
        return 2.0 * _ROUNDOFF * (n * self.row_norm * slope + sums + 8.0 * (pull + tilt))

    def tolerance(self, tilt: float) -> float:
        """The gradient's norm that is asked for where the objective is tilted by at most so much."""
        # The gradient at 0 is at most nG + tilt, so the minimum is no farther than this; a certified point may be
        # farther by the tolerance, hence the factors of 2.
        farthest = 2.0 * (self.n_records * self.record_gradient + tilt) / self.convexity
        return _TOLERANCE * self.record_gradient + 4.0 * self.rounding(farthest, tilt)

    def _check_shape(self, table: Any) -> None:
        check_columns(table, len(self.scales))
        if table.n_records != self.n_records:
            raise ValueError(f"made for {self.n_records} records, not for {table.n_records}")

    def _weights(self, point: Floats) -> Floats:
        weights = np.zeros(len(self.scales))
        weights[self.active] = point / self.scales[self.active]
        return weights


def check_convex(loss: Any) -> None:
    """Refuse losses whose convexity is not known: a record's pull on a minimum could then be anything."""
    if type(loss) not in CONVEX_LOSSES:
        names = ", ".join(kind.__name__ for kind in CONVEX_LOSSES)
        raise ValueError(
            f"perturbing a minimum is private only if the loss is convex with a known curvature, so the loss must be "
            f"one of dpcd.losses' own ({names}), not {type(loss).__name__}; solvers such as DPCD() take any loss"
        )
    if not (0.0 < loss.curvature < math.inf and loss.lipschitz > 0.0):
        raise ValueError(f"the loss needs a positive threshold or width, got {loss!r}")


def _unit(scale: float) -> float:
    """A power of two of which `scale` is between 2³¹ and 2³², so that multiples below 2⁵³ are exact."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 32)


def _released(point: Floats, sensitivity: float, noise_multiplier: float, noise: NoiseSource) -> Floats:
    """The point on a lattice, with noise: it moves by at most `sensitivity` between neighbours, rounding aside."""
    unit = _unit(noise_multiplier * sensitivity)
    # Both points are rounded, by at most √p/2 units.
    scale = noise_multiplier * (sensitivity / unit + math.sqrt(len(point)))
    integers = np.rint(np.clip(point / unit, -(2.0**61), 2.0**61)).astype(np.int64)
    return np.asarray((integers + noise.gaussian(scale, len(point))) * unit, dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyMinimum(_PerturbedProblem):
    """Output perturbation: the minimum, plus noise.

    Parameters
    ----------
    noise_multiplier
        Noise over sensitivity. 0, for ε = ∞: the minimum itself.

    Notes
    -----
    Privacy. The minima for two neighbours are within 2G/m (see the module), and what is released is computed from
    points that are certified to be within tolerance/m of them: in all a sensitivity of 2(G + tolerance)/m in l2 norm.
    Both points are then rounded to a lattice, which adds √p units, and the noise in every entry is discrete Gaussian of
    scale z times that. Certificates hold whatever the records are, so there is no data set for which the bound fails.
    """

    noise_multiplier: float

    description = "minimum"

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, noise_multiplier=float)
        if self.noise_multiplier > 0.0:
            self._check_bounded()

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """The one noise multiplier, twice."""
        return self.noise_multiplier, self.noise_multiplier

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=len(self.active))

    @property
    def sensitivity(self) -> float:
        """Largest distance, in scaled coordinates, of what is computed for two neighbours, before rounding."""
        return 2.0 * (self.record_gradient + self.tolerance(0.0)) / self.convexity * _SLACK

    def run(self, table: Any, noise: NoiseSource) -> Floats:
        """Weights, in the columns' own coordinates."""
        self._check_shape(table)
        problem = _Minimization(self, table, np.zeros(len(self.active)))
        if self.noise_multiplier == 0.0:
            return self._weights(problem.converged())
        point = problem.certified(self.tolerance(0.0))
        return self._weights(_released(point, self.sensitivity, self.noise_multiplier, noise))


@dataclass(frozen=True, eq=False, kw_only=True)
class MinimumOfNoisyObjective(_PerturbedProblem):
    """Objective perturbation: the minimum of an objective with a random linear term, plus a little noise.

    Parameters
    ----------
    noise_multiplier
        s = σ/2G: noise in the objective, over what replacing a record does to the gradient. 0, for ε = ∞: none.
    output_multiplier
        z: noise in the output, over what tolerance and rounding may do to it.

    Notes
    -----
    Privacy. By the theorem in this module, with noise on a lattice, an approximate minimum and noise on top: Rényi
    divergence at most log(1 + βR²/m) + α/(2s²) + log(2Φ((α − 1)/s))/(α − 1), and α/(2z²) for the output.
    """

    noise_multiplier: float
    output_multiplier: float

    description = "minimum of a perturbed objective"
    law = "objective perturbation"

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, noise_multiplier=float, output_multiplier=float)
        check_multipliers(self.noise_multipliers)
        if (self.noise_multiplier == 0.0) != (self.output_multiplier == 0.0):
            raise ValueError("noise in the objective and noise in the output come together, or not at all")
        if self.noise_multiplier > 0.0:
            self._check_bounded()

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Smaller and larger of the two."""
        return (
            min(self.noise_multiplier, self.output_multiplier),
            max(self.noise_multiplier, self.output_multiplier),
        )

    @property
    def determinant(self) -> float:
        """log(1 + βR²/m): what one record can do to the density's determinant."""
        return determinant(self.loss.curvature * self.row_norm**2, self.convexity)

    @property
    def cost(self) -> PrivacyCost:
        """That of the theorem, and one Gaussian release."""
        if self.noise_multiplier == 0.0:
            return PrivacyCost(mu_squared=math.inf)
        draws = len(self.active)
        tilted = PrivacyCost.renyi_curve(
            lambda orders: self.determinant + tilt_divergence(orders, self.noise_multiplier), draws
        )
        return tilted + PrivacyCost.gaussian(self.output_multiplier, draws)

    @property
    def tilt(self) -> float:
        """Standard deviation σ of the objective's linear term."""
        return 2.0 * self.noise_multiplier * self.record_gradient

    @property
    def largest_tilt(self) -> float:
        """What its norm exceeds with a probability that the accounting counts as 0."""
        return 64.0 * self.tilt * math.sqrt(len(self.active))

    @property
    def distance(self) -> float:
        """τ: the accepted point is so close to the exact minimum for continuous noise."""
        rounding = 0.5 * _unit(self.tilt) * math.sqrt(len(self.active))
        return (self.tolerance(self.largest_tilt) + rounding) / self.convexity * _SLACK

    def run(self, table: Any, noise: NoiseSource) -> Floats:
        """Weights, in the columns' own coordinates."""
        self._check_shape(table)
        size = len(self.active)
        if self.noise_multiplier == 0.0:
            return self._weights(_Minimization(self, table, np.zeros(size)).converged())
        unit = _unit(self.tilt)
        # Below 2⁵³ times a power of two: exact.
        tilt = np.asarray(noise.gaussian(self.tilt / unit, size) * unit, dtype=np.float64)
        point = _Minimization(self, table, tilt).certified(self.tolerance(self.largest_tilt))
        return self._weights(_released(point, 2.0 * self.distance, self.output_multiplier, noise))


def determinant(record_curvature: float, convexity: float) -> float:
    """log(1 + βR²/m), rounded up."""
    return math.log1p(record_curvature * _SLACK**2 / convexity) * (1.0 + 1e-12)


def tilt_divergence(orders: Any, noise_multiplier: Any) -> Any:
    """α/(2s²) + log(2Φ((α − 1)/s))/(α − 1), rounded up: the part of the theorem that noise makes small."""
    orders, s = np.asarray(orders, dtype=float), np.asarray(noise_multiplier, dtype=float)
    folded = math.log(2.0) + log_ndtr((orders - 1.0) / s)
    return (orders / (2.0 * s**2) + np.maximum(folded, 0.0) / (orders - 1.0)) * (1.0 + 1e-12) + 1e-15
