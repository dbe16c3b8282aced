"""Where records lie: tables, and the blocks of records that they are made of.

Whatever a mechanism wants of a table is a sum of integers over its records, so that is the one thing a table does for
it: `Table.sums`. Sums over parts add up, whatever the cut: neither mechanisms nor solvers know how a table is stored.
"""

from dpcd.tables.dense import Columns
from dpcd.tables.table import Part, Summand, Table

__all__ = ["Columns", "Part", "Summand", "Table"]
