# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training metrics that leave a silo with noise, paid from its budget.

A metric is released together with the gradient of the round, from the same
records, as one longer vector. A record adds to this vector its clipped
gradient, of norm at most C. For metric j, with the range [0, B_j], it adds its
value minus B_j / 2, of size at most B_j / 2. The noise has std sigma_g on the
gradient and sigma_j on metric j. The whole vector costs exactly as much as a
gradient alone with noise sigma if

    (C / sigma_g)^2 + sum_j (B_j / (2 sigma_j))^2  =  (C / sigma)^2.

A share f_j of this square goes to metric j, and the rest to the gradient:

    sigma_j = B_j sigma / (2 C sqrt(f_j)),  sigma_g = sigma / sqrt(1 - sum f_j)

So metrics cost no epsilon, but more noise on the gradient. This is exact for
any sampling, because the event is the same as for the gradient alone with
sigma.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any, Optional

import tensorflow as tf

from tff_dp import _checks


@dataclasses.dataclass(frozen=True)
class PrivateMetric:
  """A mean over the records of a round, released with noise.

  Attributes:
    name: Key of the metric in the measurements.
    upper_bound: Bound B. Values are clipped to [0, B] in the silo.
    share: Share of a message's privacy cost that goes to the metric, in (0, 1).
      It is the f of the module docstring.
    function: Function that maps (output, label) of a batch of one record to the
      value of the metric. `None` means the model's loss.
  """

  name: str
  upper_bound: float
  share: float
  function: Optional[Callable[[Any, Any], tf.Tensor]] = None

  def __post_init__(self):
    if not isinstance(self.name, str) or not self.name.isidentifier():
      raise _checks.ArgumentError('name', self.name, 'a Python identifier')
    _checks.positive(upper_bound=self.upper_bound)
    _checks.in_open(0.0, 1.0, share=self.share)


def split_noise(
    noise_stddev: float,
    *,
    l2_norm_clip: float,
    metrics: Sequence[PrivateMetric],
) -> tuple[float, tuple[float, ...]]:
  """Returns (std on the gradient, stds on the metrics).

  Exact, see the module docstring.

  Args:
    noise_stddev: Std sigma that a gradient alone would need.
    l2_norm_clip: Clip norm C.
    metrics: Metrics that are released with the gradient.

  Raises:
    ArgumentError: If two metrics have the same name, or if their shares add up
      to 1 or more.
  """
  shares = sum(metric.share for metric in metrics)
  names = [metric.name for metric in metrics]
  if len(set(names)) < len(names):
    raise _checks.ArgumentError('private_metrics', names, 'different names')
  if not shares < 1:
    raise _checks.ArgumentError(
        'private_metrics',
        [metric.share for metric in metrics],
        'shares that add up to less than 1: the rest is for the gradient',
    )
  return noise_stddev / math.sqrt(1.0 - shares), tuple(
      metric.upper_bound * noise_stddev
      / (2.0 * l2_norm_clip * math.sqrt(metric.share))
      for metric in metrics
  )


def centred(values: tf.Tensor, metrics: Sequence[PrivateMetric]) -> tf.Tensor:
  """Returns clipped values minus the middles of their ranges, in float64.

  A NaN counts as a value of 0.

  Args:
    values: Values, float32 of shape [batch size, number of metrics].
    metrics: Metrics in the same order.
  """
  bounds = tf.constant(
      [metric.upper_bound for metric in metrics], tf.float64, [len(metrics)]
  )
  values = tf.cast(values, tf.float64)
  values = tf.where(tf.math.is_nan(values), tf.zeros_like(values), values)
  return tf.clip_by_value(values, 0.0, bounds) - bounds / 2


def middles(metrics: Sequence[PrivateMetric]) -> tf.Tensor:
  """Returns B / 2 of every metric, to be added to the noised centred means."""
  return tf.constant(
      [metric.upper_bound / 2 for metric in metrics],
      tf.float64,
      [len(metrics)],
  )
