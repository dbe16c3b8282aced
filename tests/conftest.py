import os
from pathlib import Path

import numpy as np
import pytest

# The real data sets, where a checkout has them beside it; elsewhere set DPCD_DATA, or those tests are skipped.
_BESIDE = Path(__file__).parents[2] / "shared" / "data"
if "DPCD_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["DPCD_DATA"] = str(_BESIDE)


@pytest.fixture
def real_data():
    if not os.environ.get("DPCD_DATA"):
        pytest.skip("DPCD_DATA is not set: the real data sets would have to be downloaded")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
