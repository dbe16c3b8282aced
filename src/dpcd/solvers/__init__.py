"""How to spend a budget: solvers, and the private estimates they start from."""

from dpcd.solvers.auto import Auto
from dpcd.solvers.block import DPBlockCD
from dpcd.solvers.cd import DPCD
from dpcd.solvers.frank_wolfe import DPFrankWolfe
from dpcd.solvers.greedy import DPGCD
from dpcd.solvers.newton import DPNewton
from dpcd.solvers.perturbation import ObjectivePerturbation, OutputPerturbation
from dpcd.solvers.problem import Problem, Solution, Solver
from dpcd.solvers.quadratic import Quadratic
from dpcd.solvers.scales import GaussianSmoothness, LaplaceSmoothness
from dpcd.solvers.scd import DPSCD
from dpcd.solvers.screening import Screened
from dpcd.solvers.sgd import DPSGD
from dpcd.solvers.statistics import AdaSSP, BoostedAdaSSP
from dpcd.solvers.svrg import DPSVRG

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
