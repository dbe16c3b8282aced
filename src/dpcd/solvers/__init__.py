"""How to spend a budget: solvers, and the private estimates they start from."""

from dpcd.quadratic.model import Quadratic
from dpcd.ranges.scales import GaussianSmoothness, LaplaceSmoothness
from dpcd.solvers.auto import Auto
from dpcd.solvers.block import DPBlockCD
from dpcd.solvers.cd import DPCD
from dpcd.solvers.newton import DPNewton
from dpcd.solvers.problem import Problem, Solution, Solver
from dpcd.solvers.rivals.adassp import AdaSSP, BoostedAdaSSP
from dpcd.solvers.rivals.frank_wolfe import DPFrankWolfe
from dpcd.solvers.rivals.greedy import DPGCD
from dpcd.solvers.rivals.perturbation import ObjectivePerturbation, OutputPerturbation
from dpcd.solvers.rivals.scd import DPSCD
from dpcd.solvers.rivals.sgd import DPSGD
from dpcd.solvers.rivals.svrg import DPSVRG
from dpcd.solvers.screening import Screened

__all__ = [
    "DPCD",
    "DPGCD",
    "DPSCD",
    "DPSGD",
    "DPSVRG",
    "AdaSSP",
    "Auto",
    "BoostedAdaSSP",
    "DPBlockCD",
    "DPFrankWolfe",
    "DPNewton",
    "GaussianSmoothness",
    "LaplaceSmoothness",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "Problem",
    "Quadratic",
    "Screened",
    "Solution",
    "Solver",
]
