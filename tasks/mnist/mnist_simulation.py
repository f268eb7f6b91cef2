# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A fast simulation of check-in SGD with one image per client.

Does what the TFF processes of `tff_dp.learning.check_ins` do, without a graph
for each client: gradients of a batch of clients at once, and the sum of all reports of
an update drawn from its exact law, see `sphere_sums`; a sum of k Gaussian draws is
one draw times sqrt(k), and correlated noise is what the mechanism itself makes of
a draw for each update. Without noise the models are the same up to rounding, with
noise they have the same law.

It is a simulation: whoever runs it sees all data, and the coins and the noise of
all clients follow from one key. That key stays secret all the same, so that the
*model* it makes is as private as the protocol says.
"""

from collections.abc import Iterator
from concurrent import futures
import dataclasses
import math
import os
from typing import NamedTuple, Optional, Union

import numpy as np

from tasks.common import digits_data
from tasks.mnist import mnist_gradients
from tasks.mnist import mnist_model
from tasks.mnist import noise_stream
from tasks.mnist import sphere_sums
from tff_dp import _checks
from tff_dp.aggregators import clipping
from tff_dp.mechanisms import randomizers
from tff_dp.mechanisms.matrix import banded
from tff_dp.participation import coins
from tff_dp.participation import protocol as protocol_lib
from tff_dp.participation import samplers

# Clients whose gradients are computed at once. Larger batches no longer fit
# into a processor's cache, smaller ones are mostly overhead.
_BATCH_SIZE = 512


@dataclasses.dataclass(frozen=True)
class ServerNoise:
  """Clipping at the clients, Gaussian noise at a server that is trusted.

  Attributes:
    noise_multiplier: Standard deviation per coordinate of the noise on the sum,
      over the clip norm; 0 for no noise at all.
    l2_norm_clip: Bound on a client's gradient.
    clients_per_update: The constant that the sum is divided by.
    mechanism: Correlates the noise of all updates; `None` if it is independent.
  """

  noise_multiplier: float
  l2_norm_clip: float
  clients_per_update: float
  mechanism: Optional[banded.Banded] = None

  def __post_init__(self):
    _checks.non_negative(noise_multiplier=self.noise_multiplier)
    _checks.positive(l2_norm_clip=self.l2_norm_clip)
    _checks.positive(clients_per_update=self.clients_per_update)


Noise = Union[randomizers.Sphere, randomizers.Gaussian, ServerNoise]


@dataclasses.dataclass(frozen=True)
class Server:
  """What the server does with the mean of the reports of an update.

      v = momentum * v + mean
      theta = theta - learning_rate * factor * v

  Attributes:
    learning_rate: Above 0.
    momentum: In [0, 1).
    decays: Whether `factor` falls linearly, from 1 towards 0 at the last update;
      otherwise it is 1.
  """

  learning_rate: float
  momentum: float = 0.0
  decays: bool = False

  def __post_init__(self):
    _checks.positive(learning_rate=self.learning_rate)
    _checks.in_half_open(0, 1, momentum=self.momentum)

  def rate(self, update: int, num_updates: int) -> float:
    """Returns the learning rate of an update, counted from 1."""
    if not self.decays:
      return self.learning_rate
    return self.learning_rate * (num_updates - update + 1) / num_updates


class Update(NamedTuple):
  """Who reports for one update of the model.

  Attributes:
    clients: Positions in the population.
    num_dummies: Reports of no client that hide empty slots.
  """

  clients: np.ndarray
  num_dummies: int

  @property
  def num_reports(self) -> int:
    return len(self.clients) + self.num_dummies


@dataclasses.dataclass(frozen=True)
class Population:
  """Clients with one image each.

  Attributes:
    digits: The images.
    rows: Row of `digits` that a client holds, shape [num_clients].
  """

  digits: digits_data.Digits
  rows: np.ndarray

  @classmethod
  def of(
      cls, digits: digits_data.Digits, num_clients: int, *, seed: int = 0
  ) -> 'Population':
    """Returns a population of any size.

    Args:
      digits: What the clients hold.
      num_clients: As many as there are digits, and each holds its own; fewer,
        and some are left out; more, and each draws one with replacement.
      seed: Public, of the draws.
    """
    _checks.integer_at_least(1, num_clients=num_clients)
    rng = np.random.default_rng([seed, 0xB007])
    if num_clients > len(digits):
      rows = rng.integers(len(digits), size=num_clients, dtype=np.int32)
    else:
      rows = np.sort(rng.permutation(len(digits))[:num_clients])
    return cls(digits, rows)

  def __len__(self) -> int:
    return len(self.rows)


def updates(
    protocol: protocol_lib.CheckInProtocol,
    *,
    num_clients: int,
    root_key: bytes,
    slots_per_update: int = 1,
    first: int = 1,
) -> Iterator[Update]:
  """Yields who reports for the updates of one pass after another, endlessly.

  Args:
    protocol: Whose coins to flip.
    num_clients: Size of the population.
    root_key: Secret, 128 bits.
    slots_per_update: Slots whose reports are one update of the model; whatever
      that is, the guarantee is the same, as averaging is post-processing. For a
      fixed window it has to be the protocol's own number.
    first: Number of the update to begin with, counted from 1.
  """
  sampler = samplers.build(
      protocol,
      root_key=coins.subkey(root_key, 'participation'),
      num_clients=num_clients,
  )
  num_warm_up = getattr(protocol, 'window', 1) - 1
  per_pass = (protocol.num_rounds - num_warm_up) // slots_per_update
  for number in range(first - 1, 2**62):
    pass_index, in_pass = divmod(number, per_pass)
    start = num_warm_up + in_pass * slots_per_update
    clients = np.concatenate([
        sampler.cohort(pass_index, start + slot + 1).clients
        for slot in range(slots_per_update)
    ])
    is_client = clients != samplers.DUMMY
    yield Update(clients[is_client], int((~is_client).sum()))


class Reports:
  """Sums of the reports of many clients."""

  def __init__(
      self,
      architecture: mnist_model.Architecture,
      population: Population,
      noise: Noise,
      *,
      batch_size: int = _BATCH_SIZE,
      num_threads: int | None = None,
  ):
    """Initializes the object.

    Args:
      architecture: The model.
      population: Who holds which image.
      noise: What is done to the gradients.
      batch_size: Clients whose gradients are computed at once.
      num_threads: Batches that are worked on at a time; `None` for one on each
        processor. Changes the speed only.
    """
    self._gradients = mnist_gradients.PerExampleGradients(architecture)
    self._population = population
    self._noise = noise
    self._batch_size = batch_size
    self._shapes = architecture.shapes
    self._num_params = architecture.num_params
    mechanism = getattr(noise, 'mechanism', None)
    self._stream = mechanism and noise_stream.NoiseStream(
        mechanism, architecture.num_params
    )
    num_threads = num_threads or len(os.sched_getaffinity(0))
    self._threads = futures.ThreadPoolExecutor(num_threads)

  def total(
      self, weights: np.ndarray, update: Update, *, key: bytes, number: int
  ) -> np.ndarray:
    """Returns the sum of all reports, float64, shape [num_params].

    Args:
      weights: The model, float32, shape [num_params].
      update: Who reports.
      key: Secret, 128 bits: the noise is a function of it and of `number`.
      number: Of the update.
    """
    rng = coins.generator(key, 'update', number)
    if isinstance(self._noise, randomizers.Sphere):
      return self._sphere_total(weights, update, rng, key, number)
    clip = self._noise.l2_norm_clip
    total = self._sum(
        lambda gradients, _: gradients.weighted_sum(
            _clip_factors(gradients.norms(), clip)
        ),
        weights,
        update.clients,
        key,
        number,
    )
    num_draws = update.num_reports
    if isinstance(self._noise, ServerNoise):
      num_draws = 1
    stddev = self._noise.noise_multiplier * clip * np.sqrt(num_draws)
    if self._stream is not None:
      return total + stddev * self._stream.at(key, number)
    return total + stddev * rng.standard_normal(self._num_params)

  def logits(self, weights: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Returns float32 logits of float32 images."""
    return self._gradients.logits(self._split(weights), images)

  def _sphere_total(self, weights, update, rng, key, number) -> np.ndarray:
    """Returns the sum of sphere reports; the names are those of `sphere_sums`."""
    clip = self._noise.l2_norm_clip
    # p is at most 2 alpha - 1, whatever the data are: whom a coin of that
    # probability makes uniform on the whole sphere needs no gradient.
    most = math.tanh(self._noise.local_epsilon / 2)
    is_open = rng.random(len(update.clients)) < most
    num_halves = []

    def on_halves(gradients, batch_rng):
      norms = gradients.norms()
      shares = norms * _clip_factors(norms, clip) / clip
      is_half = batch_rng.random(len(norms)) < shares
      num_halves.append(int(is_half.sum()))
      return sphere_sums.sum_on_halves(gradients, is_half, batch_rng)

    total = self._sum(
        on_halves, weights, update.clients[is_open], key, number
    )
    num_uniform = update.num_reports - sum(num_halves)
    total += sphere_sums.sum_on_sphere(num_uniform, self._num_params, rng)
    return self._noise.scale(self._num_params) * total

  def _sum(self, function, weights, clients, key, number) -> np.ndarray:
    """Returns the sum of `function(gradients, generator)` over batches."""
    variables = self._split(weights)

    def one(start):
      rows = self._population.rows[clients[start : start + self._batch_size]]
      batch = self._population.digits.rows(rows).arrays()
      return function(
          self._gradients(variables, batch['x'], batch['y']),
          coins.generator(key, 'batch', number, start),
      )

    total = np.zeros(self._num_params)
    # In order, so that the sum does not depend on which thread is faster.
    for part in self._threads.map(
        one, range(0, len(clients), self._batch_size)
    ):
      total += part
    return total

  def _split(self, weights: np.ndarray) -> list:
    return split(weights, self._shapes)


def split(weights: np.ndarray, shapes) -> list[np.ndarray]:
  """Returns the variables in a vector of all weights."""
  sizes = [int(np.prod(shape)) for shape in shapes]
  parts = np.split(weights, np.cumsum(sizes)[:-1])
  return [part.reshape(shape) for part, shape in zip(parts, shapes)]


@dataclasses.dataclass
class State:
  """A run after some updates.

  Attributes:
    weights: The model, float32, shape [num_params].
    velocity: Of the momentum, likewise.
    num_updates: Updates that are done, those without any report included.
    num_reports: Of clients, so far.
  """

  weights: np.ndarray
  velocity: np.ndarray
  num_updates: int = 0
  num_reports: int = 0

  @classmethod
  def initial(
      cls, architecture: mnist_model.Architecture, *, seed: int
  ) -> 'State':
    """Returns the state before the first update."""
    variables = mnist_model.initial_weights(architecture, seed=seed)
    weights = np.concatenate([variable.ravel() for variable in variables])
    return cls(weights, np.zeros_like(weights))


def step(
    state: State,
    update: Update,
    reports: Reports,
    server: Server,
    *,
    noise: Noise,
    num_updates: int,
    key: bytes,
) -> State:
  """Returns the state after one more update.

  Without a report nothing moves, neither the model nor its velocity, unless the
  server adds the noise: then every update has noise, an empty one too.

  Args:
    state: The state before.
    update: Who reports.
    reports: Computes the sum of the reports.
    server: What to do with their mean.
    noise: What `reports` does to gradients.
    num_updates: Of the whole run.
    key: Secret, of the noise.
  """
  number = state.num_updates + 1
  weights, velocity = state.weights, state.velocity
  if isinstance(noise, ServerNoise):
    divisor = noise.clients_per_update
  else:
    divisor = update.num_reports
  if divisor:
    total = reports.total(weights, update, key=key, number=number)
    mean = (total / divisor).astype(np.float32)
    velocity = np.float32(server.momentum) * velocity + mean
    rate = np.float32(server.rate(number, num_updates))
    weights = weights - rate * velocity
  return State(
      weights, velocity, number, state.num_reports + len(update.clients)
  )


def _clip_factors(norms: np.ndarray, l2_norm_clip: float) -> np.ndarray:
  """Returns what vectors of these norms are multiplied by, at most 1."""
  bound = l2_norm_clip * (1 - clipping.NORM_MARGIN)
  return bound / np.maximum(norms, bound)
