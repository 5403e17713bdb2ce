"""Confidence intervals of means of a few values (Student's t)."""
# SPDX-License-Identifier: Apache-2.0
import math
import statistics

# Two-sided 95 % quantiles for 1, 2, ... degrees of freedom.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]


def interval(values: list[float]) -> float:
    """Half the width of the 95 % confidence interval of the mean; nan for one value."""
    if len(values) < 2:
        return math.nan
    t = T95[min(len(values) - 2, len(T95) - 1)]
    return t * statistics.stdev(values) / math.sqrt(len(values))
