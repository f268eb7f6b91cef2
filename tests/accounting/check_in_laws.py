# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact laws of random check-ins, by enumeration. For tests of upper bounds.

Binary randomized response on bits, small n and m. Nothing here knows a theorem.
A law is a dict from what the adversary sees to its probability.
"""

import collections
import itertools
import math

import numpy as np


def divergences(first: dict, second: dict, epsilons) -> np.ndarray:
  """Returns H_E(first || second) for each epsilon. Exact."""
  outcomes = sorted(set(first) | set(second))
  p = np.array([first.get(outcome, 0.0) for outcome in outcomes])
  q = np.array([second.get(outcome, 0.0) for outcome in outcomes])
  return np.array([
      math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0))
      for epsilon in epsilons
  ])


def keep_probability(local_epsilon: float) -> float:
  return 1 / (1 + math.exp(-local_epsilon))


def _report(bit, local_epsilon: float) -> float:
  """Returns the probability of reporting 1; a bit of 1/2 is a fair coin."""
  keep = keep_probability(local_epsilon)
  return bit * keep + (1 - bit) * (1 - keep)


def fixed_window(
    bits, *, num_slots, check_in_probability, local_epsilon, dummy, adapts
) -> dict:
  """Returns the law of all reports of A_fix, in order, as tuples of bits.

  Args:
    bits: Of the clients.
    num_slots: m.
    check_in_probability: p0.
    local_epsilon: e0.
    dummy: The bit of a dummy update: 0, 1, or 1/2 for a fair coin.
    adapts: Whether clients flip their bit after a report of 1 in the slot
      before, so that inputs depend on what was released.
  """
  slots = [None] + list(range(num_slots))
  law = collections.defaultdict(float)
  for places in itertools.product(slots, repeat=len(bits)):
    weight = 1.0
    for place in places:
      weight *= (
          1 - check_in_probability
          if place is None
          else check_in_probability / num_slots
      )
    if weight == 0:
      continue
    members = [
        [bit for bit, place in zip(bits, places) if place == slot]
        for slot in range(num_slots)
    ]
    for outcome in itertools.product((0, 1), repeat=num_slots):
      probability = weight
      for slot in range(num_slots):
        flips = adapts and slot > 0 and outcome[slot - 1] == 1
        # One uniformly drawn winner, or a dummy.
        inputs = members[slot] or [dummy]
        ones = sum(
            _report(1 - bit if flips else bit, local_epsilon) for bit in inputs
        ) / len(inputs)
        probability *= ones if outcome[slot] else 1 - ones
      law[outcome] += probability
  return dict(law)


def averaged(bits, *, num_slots, local_epsilon) -> dict:
  """Returns the law of (number of reports, number of ones) of A_avg's slots."""
  law = collections.defaultdict(float)
  weight = num_slots ** -len(bits)
  for places in itertools.product(range(num_slots), repeat=len(bits)):
    partial = {(): weight}
    for slot in range(num_slots):
      members = [bit for bit, place in zip(bits, places) if place == slot]
      ones = np.ones(1)
      for bit in members:
        p = _report(bit, local_epsilon)
        ones = np.convolve(ones, [1 - p, p])
      partial = {
          seen + ((len(members), count),): weight_seen * probability
          for seen, weight_seen in partial.items()
          for count, probability in enumerate(ones)
      }
    for seen, probability in partial.items():
      law[seen] += probability
  return dict(law)


def lonely_fixed_window(
    bit, *, num_slots, check_in_probability, local_epsilon, dummy
) -> dict:
  """Returns the law of the number of ones of A_fix with a single client.

  All other slots hold dummies. Given this number, the order of the reports is
  uniform whatever the bit, so the number is sufficient: exact for large m.
  """
  present = _report(bit, local_epsilon)
  absent = _report(dummy, local_epsilon)
  others = _binomial(num_slots - 1, absent)
  chance = check_in_probability * present + (1 - check_in_probability) * absent
  ones = np.convolve(others, [1 - chance, chance])
  return dict(enumerate(ones))


def sum_of_all(bit, *, num_clients, other, local_epsilon) -> dict:
  """Returns the law of the number of ones among the reports of n clients.

  A function of what A_avg shows, so its divergence is a lower bound there.
  """
  chance = _report(bit, local_epsilon)
  others = _binomial(num_clients - 1, _report(other, local_epsilon))
  return dict(enumerate(np.convolve(others, [1 - chance, chance])))


def _binomial(count: int, chance: float) -> np.ndarray:
  k = np.arange(count + 1)
  log_binomial = np.array([
      math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1)
      for i in k
  ])
  logs = log_binomial + k * math.log(chance) + (count - k) * math.log1p(-chance)
  return np.exp(logs)
