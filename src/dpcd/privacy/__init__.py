"""The trusted core: the only code that sees raw data and lets something out.

Read it in one sitting, in this order: `accounting`, `noise`, `kernels`, `mechanisms`, `ledger`, `curator`,
`statement`.

The argument, on one page
-------------------------
1. **Neighbours** replace one record. The number of records n, the columns, the classes, declared bounds and every
   argument of a constructor are public.
2. **One door.** Raw data go into a `Curator` and come out only through `Curator.release`, which charges a mechanism's
   cost before the mechanism sees the data and refuses what the budget cannot cover. Nothing is refunded.
   With a `Ledger` the budget of a data set spans processes and crashes: the charge is on disk before data are read.
3. **A record's contribution is an integer.** Mechanisms release integer sums plus integer noise. A record adds
   q = round(B·clamp(g/C, −1, 1)) in [−B, B], a function of that record and of values released before; NaN and
   infinities land on a bound. int64 sums are exact, so the sensitivity is 2B whatever the order of the additions.
   `selection` releases no number at all but which columns have the largest sums, by the exponential mechanism.
4. **The noise is an integer** from OpenDP's exact discrete Gaussian sampler, of scale z·(sensitivity), at least 2³⁰.
   No floating-point number touches the sum before the noise is in it, so no attack on floating-point noise applies.
   With a seed the noise is reproducible instead, and the statement says "seeded: not private".
5. **Costs add exactly.** Gaussian releases, chosen adaptively, compose to μ² = Σ 1/z², converted to (ε, δ) without
   slack. What the discreteness of the noise costs is proved and charged in `accounting`. Releases with δ = 0 count
   as the Gaussian that dominates them, secret sampling at a Rényi order that is fixed before anything is released.
6. **Everything else is post-processing:** steps, proximal operators, averages, models, statements. Losses and penalties
   run inside the kernels but only shape a contribution that is clamped afterwards: a wrong one costs accuracy alone.

Not covered: how long a fit takes; that data which cannot be validated (non-finite values, unknown labels) are refused;
losses with side effects; fits with a seed. `sampling` and `stochastic` serve the rivals that need secret batches, and
assume that the generator which draws those is unpredictable. `perturbation` serves rivals that release a minimum, whose
sensitivity rests on the loss being convex: no clamp enforces that, so it takes the library's own losses only.
`candidates` is for searches: it keeps secret how many settings were tried, and how the losers did.
"""

from dpcd.privacy.accounting import BudgetExceeded, PrivacyBudget, PrivacyCost, noise_multiplier
from dpcd.privacy.curator import Curator
from dpcd.privacy.ledger import Account, Charge, Ledger, LedgerError, Standing
from dpcd.privacy.noise import SecureNoise, SeededNoise, randomness
from dpcd.privacy.statement import PrivacyStatement, Release
from dpcd.tables import Columns

__all__ = [
    "Account",
    "BudgetExceeded",
    "Charge",
    "Columns",
    "Curator",
    "Ledger",
    "LedgerError",
    "PrivacyBudget",
    "PrivacyCost",
    "PrivacyStatement",
    "Release",
    "SecureNoise",
    "SeededNoise",
    "Standing",
    "noise_multiplier",
    "randomness",
]
