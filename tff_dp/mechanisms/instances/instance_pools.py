# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A pool of k model instances, drawn and overwritten at random.

The spread of a weight is the sample variance over the k instances, denominator
k - 1. Noise of variance `noise_variance` that every update adds widens it,
overwriting narrows it; with m clients in flight at once (a round: all of them
draw from the pool as it stands, then overwrite one by one) its expectation S
obeys, without gradients,

    S' = S (1 - (1 - q2)/k) + noise_variance (1 - q1)          per round,
    q1 = (1 - 1/k)^m,  q2 = (1 - 2/k)^m

For m = 1 that is S' = S (1 - 2/k^2) + noise_variance/k, with fixed point
k noise_variance/2 (arXiv:1807.04369, theorem 1). Only the spread is stable: the
mean of the instances drifts, its variance growing by noise_variance/k with
every update at m = 1, as that of one model with k times fewer updates does.

Derivations: docs/draw_and_discard_privacy.md.
"""

import math

from tff_dp import _checks


def stationary_variance(
    num_instances: int, *, noise_variance: float, concurrency: int = 1
) -> float:
  """Returns the spread that stays, S*(k, m) = k sigma^2 (1 - q1)/(1 - q2).

  Exact without gradients. k sigma^2/2 for m = 1, towards k sigma^2 for m far
  above k. One instance has no spread: 0.

  Args:
    num_instances: k, at least 1.
    noise_variance: sigma^2 of one weight of one update.
    concurrency: m, clients that draw before any of them is written.
  """
  _check(num_instances, concurrency)
  _checks.non_negative(noise_variance=noise_variance)
  if num_instances == 1:
    return 0.0
  hit, split = _shares(num_instances, concurrency)
  return num_instances * float(noise_variance) * hit / split


def paper_variance(num_instances: int, *, noise_variance: float) -> float:
  """Returns k sigma^2/2, the initial spread of arXiv:1807.04369, theorem 1.

  Exact for one client at a time; of one instance 0, which starts where it is
  told to.

  Args:
    num_instances: k.
    noise_variance: sigma^2.
  """
  return stationary_variance(num_instances, noise_variance=noise_variance)


def next_variance(
    variance: float,
    num_instances: int,
    *,
    noise_variance: float,
    concurrency: int = 1,
) -> float:
  """Returns the expected spread after one more round. Exact, see the module.

  Args:
    variance: S before, at least 0.
    num_instances: k.
    noise_variance: sigma^2.
    concurrency: m, the clients of the round; 0 changes nothing.
  """
  _checks.non_negative(variance=variance)
  _checks.integer_at_least(1, num_instances=num_instances)
  _checks.integer_at_least(0, concurrency=concurrency)
  _checks.non_negative(noise_variance=noise_variance)
  if num_instances == 1 or concurrency == 0:
    return 0.0 if num_instances == 1 else float(variance)
  hit, split = _shares(num_instances, concurrency)
  return float(variance) * (1 - split / num_instances) + noise_variance * hit


def time_constant(num_instances: int, *, concurrency: int = 1) -> float:
  """Returns the rounds in which a wrong spread loses all but 1/e. Exact.

  About k^2/2 for one client at a time.

  Args:
    num_instances: k, at least 1; 0.0 for k = 1.
    concurrency: m.
  """
  _check(num_instances, concurrency)
  if num_instances == 1:
    return 0.0
  _, split = _shares(num_instances, concurrency)
  # k = 2, m = 1: split/k = 1/2; it never reaches 1.
  return -1.0 / math.log1p(-split / num_instances)


def survival_probability(num_instances: int, *, concurrency: int = 1) -> float:
  """Returns the probability that an update outlives all others: 1/k for m = 1.

  Exact: (1 - q1)/m. The update is still there when its round ends with
  probability (1 - q1)/(m/k), on one instance of k; no later overwriting changes
  the expected share of instances that descend from it, which in the long run is
  0 or 1. (Lemma 2 of the paper says so for m = 1; its printed p_k = 1 must read
  0.)

  Args:
    num_instances: k.
    concurrency: m.
  """
  _check(num_instances, concurrency)
  if num_instances == 1:
    return 1.0 / concurrency
  hit, _ = _shares(num_instances, concurrency)
  return hit / concurrency


def _shares(num_instances: int, concurrency: int) -> tuple[float, float]:
  """Returns (1 - q1, 1 - q2); k is at least 2."""
  hit = -math.expm1(concurrency * math.log1p(-1.0 / num_instances))
  if num_instances == 2:
    return hit, 1.0
  split = -math.expm1(concurrency * math.log1p(-2.0 / num_instances))
  return hit, split


def _check(num_instances: int, concurrency: int) -> None:
  _checks.integer_at_least(1, num_instances=num_instances)
  _checks.integer_at_least(1, concurrency=concurrency)
