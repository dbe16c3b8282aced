"""The trusted core: the only code that sees raw data and lets something out.

Read it in one sitting, in this order: `accounting`, `noise`, `lattice`, `mechanism`, `columns`, `records`,
`coordinates`, `choices`, `kernels`, `curator`, `statement`. Two more files are trusted: `dpcd.compilation`, whose
rounding trick makes the integers, and `dpcd.tables`, which adds them up. Then `ledger` if you use a ledger, `search` if
you search for settings, and `rivals` if you use the methods that DP-CD is compared with.

The argument, on one page
-------------------------
1. **Neighbours** replace one record. The number of records n, the columns, the classes, declared bounds and every
   argument of a constructor are public.
2. **One door.** Raw data go into a `Curator` and come out only through `Curator.release`, which charges a mechanism's
   cost before the mechanism sees the data and refuses what the budget cannot cover. Nothing is refunded.
   With a `Ledger` the budget of a data set spans processes and crashes: the charge is on disk before data are read.
3. **A record contributes integers.** What a mechanism wants of the data is a sum, over the records, of integers that
   depend on one record each and on values released before. Each lies in [−B, B]; NaN and infinities land on a bound.
   Sums of int64 are exact, so they do not depend on the order of the records, on threads, or on how a table is cut into
   parts. By how much replacing a record moves them is the mechanism's `sensitivity`, argued in its docstring.
4. **The noise is an integer** from OpenDP's exact discrete Gaussian sampler, of scale noise multiplier × sensitivity,
   at least 2³⁰, added once to the sum. No floating-point number touches the sum before the noise is in it, so no attack
   on floating-point noise applies. With a seed the noise is reproducible instead, and the statement says so.
5. **Costs add exactly.** Gaussian releases, chosen adaptively, compose to μ² = Σ 1/z², converted to (ε, δ) without
   slack. What the discreteness of the noise costs is proved and charged in `accounting`. Releases with δ = 0 count
   as the Gaussian that dominates them, secret sampling at a Rényi order that is fixed before anything is released.
6. **Everything else is post-processing:** steps, proximal operators, averages, models, statements. Losses and penalties
   run inside the kernels but only shape a contribution that is clamped afterwards. A wrong one costs accuracy alone, as
   long as it is pure and never raises, for which the code of losses from elsewhere is looked through (`dpcd.plugins`).

What leaves
-----------
B is the bound of the lattice, d the number of sums, z the noise multiplier. "l2" is the norm of the vector of all sums.

====================== ============================================ ================================ ================
mechanism              what leaves, with noise                      moved by a replaced record       file
====================== ============================================ ================================ ================
ClippedMeans           means of columns, clamped                    2B√d in l2                       columns
SecondMoments          mean squares of columns, clamped             B√d in l2                        columns
DyadicCounts           histograms of sign and octave, c columns     B√(2c) in l2                     columns
JointGradient          mean gradient, records clipped as vectors    2(B + √d) in l2                  records
MomentMatrix           matrix of second moments, or a Hessian, of   √2(b + √p)² in Frobenius norm,   records
                       p columns; rows clipped                      rows being at most b
GradientSizes          histogram of lengths of gradients            B√2 in l2                        records
CoordinateUpdates      a clamped partial derivative at each update  2B each                          coordinates
DerivativeSizes        histogram of partial derivatives             B√2 in l2                        coordinates
TopCoordinates,        which sums are largest (no number leaves)    2B each sum; 4B two scores       choices
SteepestVertex                                                      against each other
MeanLoss               mean loss of a released model                B                                search
BestCandidate          the best of a secret number of fits          that of its fits, by a theorem   search
GradientSteps          gradients of secret batches of a table       2(B + √p) in l2                  rivals/batches
VarianceReducedSteps   changes of gradients of secret batches       2(B + √p) in l2                  rivals/batches
DualSteps              increments of dual variables and weights     2√2(B + √p) in l2                rivals/batches
NoisyMinimum           the minimum of an objective                  2(G + tolerance)/m in l2         rivals/minima
MinimumOfNoisyObjective the minimum of a tilted objective           a Rényi curve, by a theorem      rivals/minima
LaplaceSecondMoments   mean squares, with Laplace noise             B each                           rivals/laplace
====================== ============================================ ================================ ================

Not covered: how long a fit takes; that data which cannot be validated are refused; fits with a seed.
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
