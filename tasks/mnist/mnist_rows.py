# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The runs of the MNIST task: protocol, noise and optimizer of each row.

Four groups (sizes are for all 60,000 training images):

* `ldp_sgd`: shuffled check-in with the one-bit sphere randomizer, epsilon0 2, of
  arXiv:2206.03151; and `non_private`, the same clients without noise.
* `federated_dp_sgd` and `federated_dp_sgd_e0_2`: shuffled check-in with local
  Gaussian noise. At delta0 = n^-1.5, epsilon0 is 8 with n = ten million
  clients, and 2 with one client for each image.
* `fixed_window`, `sliding_window`, `averaged`: the random check-ins of
  arXiv:2007.06605 with the sphere randomizer and ten million clients; and
  `uniform_local`, as many reports by shuffled check-in. All at the same epsilon,
  for replace-one: epsilon0 is calibrated.
* `allocation`: check-ins at a server that is trusted to add noise; `uniform`,
  Poisson sampling at the same rate; `banded`, correlated noise and clients that
  come once in as many updates as a pass has; and `cyclic`, between `allocation`
  and `banded`, at the stride of least error. All at the same epsilon, for
  zero-out: the noise multiplier is calibrated.

Each of ten million clients holds one of the images, drawn with replacement.
"""

import dataclasses
import json
import math
from typing import Any, Optional, Union

import dp_accounting

from tasks.mnist import calibration
from tasks.mnist import mnist_sizes
from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import search
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib
from tff_dp.plans import protocol_plan
from tff_dp.systems.allocation import plan as allocation_plan
from tff_dp.systems.allocation import protocols
from tff_dp.systems.allocation import strides as strides
from tff_dp.systems.check_ins import plan as check_in_plan
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import windows

NON_PRIVATE = 'non_private'
# Row -> server learning rate, chosen for all 60,000 images on held-out digits.
_LEARNING_RATES = {
    'ldp_sgd': 1.0,
    NON_PRIVATE: 4.0,
    'federated_dp_sgd': 2.0,
    'federated_dp_sgd_e0_2': 1.0,
    'fixed_window': 2.0,
    'sliding_window': 2.0,
    'averaged': 1.0,
    'uniform_local': 2.0,
    'allocation': 6.0,
    'uniform': 6.0,
    'banded': 6.0,
    'cyclic': 6.0,
}
NAMES = tuple(_LEARNING_RATES)
# Updates of each row at scale 1.
_LDP_ROUNDS = 6800
_FEDERATED_ROUNDS = {8.0: 2000, 2.0: 5540}
_FEDERATED_RATES = {8.0: 1e-4, 2.0: 0.1}
_FEDERATED_CLIP = 0.05
_PASSES = 20
# Of the noise of uniform sampling: the most, and how close to the least it is.
_MOST_NOISE = 1000.0
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class ServerNoise:
  """Gaussian noise that the server adds to the sum of clipped gradients.

  Attributes:
    noise_multiplier: Standard deviation over the clip norm, 0 for no noise.
    l2_norm_clip: Bound on the L2 norm of a client's gradient.
  """

  noise_multiplier: float
  l2_norm_clip: float


Noise = Union[randomizers.LocalRandomizer, ServerNoise]


@dataclasses.dataclass(frozen=True)
class Server:
  """SGD with momentum on the mean of the reports of an update.

  Attributes:
    learning_rate: Learning rate of the first update.
    momentum: Momentum, in [0, 1).
    decays: Whether the learning rate falls linearly, towards 0 at the last
      update.
  """

  learning_rate: float
  momentum: float = 0.0
  decays: bool = False

  def rates(self, num_updates: int) -> Union[float, list[float]]:
    """Returns the learning rate, or one for each update."""
    if not self.decays:
      return self.learning_rate
    left = range(num_updates, 0, -1)
    return [self.learning_rate * number / num_updates for number in left]


@dataclasses.dataclass(frozen=True)
class Row:
  """One run, apart from its seed.

  Attributes:
    name: One of `NAMES`.
    num_clients: Size of the population.
    plan: Protocol and noise, `None` for the two rows that others are compared
      with.
    protocol: Protocol of the clients.
    noise: Noise on the gradients, or on their sum.
    server: Optimizer of the server.
    num_updates: Number of updates of the model.
    slots_per_update: Number of slots, each a round of its own, whose reports
      make one update.
    reports_per_update: Expected number of reports of an update, dummies
      included.
    delta: Delta at which epsilon is stated.
    event: Event for zero-out of a row without a plan, if the row has noise.
    is_calibrated: Whether the noise follows from a requested epsilon.
  """

  name: str
  num_clients: int
  plan: Optional[protocol_plan.ProtocolPlan]
  protocol: protocol_lib.Protocol
  noise: Noise
  server: Server
  num_updates: int
  reports_per_update: float
  delta: float
  slots_per_update: int = 1
  event: Optional[dp_accounting.DpEvent] = None
  is_calibrated: bool = False

  @property
  def num_rounds(self) -> int:
    """Rounds of the process."""
    return self.num_updates if self.plan is None else self.plan.num_rounds

  @property
  def divisor(self) -> int:
    """Divisor of a sum with noise of the server."""
    return max(1, round(self.reports_per_update))

  @property
  def has_rest(self) -> bool:
    """Whether the rounds after any round are a run of their own.

    Then only the model connects the rounds: each client comes or stays away in
    each round, whatever it did before.
    """
    is_memoryless = isinstance(self.protocol, shuffled.ShuffledCheckIn)
    return is_memoryless and not self.server.momentum

  def with_rounds(self, num_rounds: int) -> 'Row':
    """Returns the row with more or fewer of the same rounds.

    An event or an epsilon of the row is not about these rounds.

    Args:
      num_rounds: Number of rounds.
    """
    if not self.has_rest:
      raise ValueError(f'the rounds of {self.name} depend on earlier ones')
    protocol = dataclasses.replace(self.protocol, num_rounds=num_rounds)
    return dataclasses.replace(
        self,
        plan=self.plan and dataclasses.replace(self.plan, protocol=protocol),
        protocol=protocol,
        num_updates=num_rounds,
    )

  def rest(self, rounds_done: int) -> 'Row':
    """Returns the row of the rounds after the first ones.

    Learning rates go on from there.

    Args:
      rounds_done: Number of rounds that were made.
    """
    left = self.num_rounds - rounds_done
    rate = self.server.learning_rate
    if self.server.decays:
      rate *= left / self.num_rounds
    server = dataclasses.replace(self.server, learning_rate=rate)
    return dataclasses.replace(self.with_rounds(left), server=server)

  def describe(self) -> dict[str, Any]:
    """Returns everything that the model depends on, as plain JSON types."""
    return {
        'name': self.name,
        'num_clients': self.num_clients,
        'protocol': self.protocol.describe(),
        'plan': self.plan and self.plan.describe(),
        'noise': {
            'kind': type(self.noise).__name__, **dataclasses.asdict(self.noise)
        },
        'server': dataclasses.asdict(self.server),
        'num_updates': self.num_updates,
        'slots_per_update': self.slots_per_update,
    }


def build(
    name: str,
    sizes: mnist_sizes.Sizes,
    calibrations: Optional[calibration.Calibrations] = None,
) -> Row:
  """Returns a row.

  Args:
    name: One of `NAMES`.
    sizes: Sizes of the rows.
    calibrations: Calibrated numbers, looked up and kept here.
  """
  _checks.one_of(NAMES, rows=name)
  builder = _Builder(
      name, sizes, calibrations or calibration.Calibrations()
  )
  if name in ('ldp_sgd', NON_PRIVATE):
    return builder.ldp_sgd()
  if name == 'federated_dp_sgd':
    return builder.federated(8.0, sizes.bootstrap_clients)
  if name == 'federated_dp_sgd_e0_2':
    return builder.federated(2.0, sizes.num_clients)
  if name in ('allocation', 'uniform'):
    return builder.central()
  if name in ('banded', 'cyclic'):
    return builder.correlated()
  return builder.random_check_ins()


def federated_noise_multiplier(
    local_epsilon: float, num_clients: int
) -> float:
  """Returns tau / C for which a report is (epsilon0, n^-1.5)-DP, replace-one.

  Exact up to rounding upwards. The sensitivity is 2 C.
  """
  return 2 * gaussian.sigma_for(
      epsilon=local_epsilon, delta=num_clients**-1.5
  )


def federated_local_epsilon(
    noise_multiplier: float, num_clients: int
) -> float:
  """Returns epsilon0 at delta0 = n^-1.5 of a report, for replace-one. Exact."""
  return gaussian.exact_epsilon(
      sigma=noise_multiplier / 2, delta=num_clients**-1.5
  )


class _Builder:
  """Makes one row."""

  def __init__(
      self,
      name,
      sizes: mnist_sizes.Sizes,
      calibrations: calibration.Calibrations,
  ):
    self._name = name
    self._sizes = sizes
    self._calibrations = calibrations

  def _row(self, num_clients, plan, **fields) -> Row:
    sizes = self._sizes
    rate = sizes.learning_rate
    if rate is None:
      rate = _LEARNING_RATES[self._name]
    if plan is not None:
      noise = getattr(plan, 'randomizer', None) or ServerNoise(
          plan.noise_multiplier, plan.l2_norm_clip
      )
      fields |= {'protocol': plan.protocol, 'noise': noise}
    return Row(
        name=self._name,
        num_clients=num_clients,
        plan=plan,
        server=Server(rate, sizes.momentum, sizes.decays),
        delta=self._delta(num_clients),
        **fields,
    )

  def _delta(self, num_clients: int) -> float:
    return self._sizes.delta or 1 / num_clients

  def ldp_sgd(self) -> Row:
    sizes = self._sizes
    num_rounds = sizes.scaled(_LDP_ROUNDS)
    protocol = shuffled.ShuffledCheckIn(
        num_rounds, sizes.check_in_rate, sizes.num_clients
    )
    reports = sizes.check_in_rate * sizes.num_clients
    if self._name == NON_PRIVATE:
      return self._row(
          sizes.num_clients,
          None,
          protocol=protocol,
          noise=ServerNoise(0.0, sizes.l2_norm_clip),
          num_updates=num_rounds,
          reports_per_update=reports,
      )
    noise = randomizers.Sphere(sizes.local_epsilon, sizes.l2_norm_clip)
    return self._row(
        sizes.num_clients,
        check_in_plan.CheckInPlan(protocol, noise),
        num_updates=num_rounds,
        reports_per_update=reports,
    )

  def federated(self, local_epsilon: float, num_clients: int) -> Row:
    rate = _FEDERATED_RATES[local_epsilon]
    if local_epsilon == 2.0:
      rate = self._sizes.check_in_rate
    num_rounds = self._sizes.scaled(_FEDERATED_ROUNDS[local_epsilon])
    noise = randomizers.Gaussian(
        federated_noise_multiplier(local_epsilon, num_clients), _FEDERATED_CLIP
    )
    return self._row(
        num_clients,
        check_in_plan.CheckInPlan(
            shuffled.ShuffledCheckIn(num_rounds, rate, num_clients), noise
        ),
        num_updates=num_rounds,
        reports_per_update=rate * num_clients,
    )

  def random_check_ins(self) -> Row:
    """Returns a row with as many reports as the others of its group.

    A slot of a fixed window stays empty with probability about 1/e, so 63 % of
    the reports are no dummies.
    """
    sizes = self._sizes
    n = sizes.bootstrap_clients
    per_update = n // mnist_sizes.CHECK_IN_UPDATES
    num_updates = sizes.scaled(mnist_sizes.CHECK_IN_UPDATES)
    num_slots = num_updates * per_update
    fields = {'slots_per_update': per_update}
    reports = float(per_update)
    if self._name == 'fixed_window':
      protocol = windows.FixedWindowCheckIn(
          num_slots, slots_per_update=per_update
      )
    elif self._name == 'sliding_window':
      window = max(1, num_slots // 10)
      protocol = windows.SlidingWindowCheckIn(num_slots, window)
      num_updates = max(1, protocol.num_updates // per_update)
    elif self._name == 'averaged':
      protocol = windows.AveragedCheckIn(num_updates, n)
      fields = {}
      reports = n / num_updates
    else:
      rate = per_update / n * -math.expm1(-n / num_slots)
      protocol = shuffled.ShuffledCheckIn(num_updates, rate, n)
      fields = {}
      reports = rate * n
    plan_of = lambda local_epsilon: check_in_plan.CheckInPlan(
        protocol, randomizers.Sphere(local_epsilon, sizes.l2_norm_clip)
    )
    delta = self._delta(n)
    local_epsilon = self._calibrations.find(
        self._key(protocol, delta),
        lambda: plan_of(1.0)
        .calibrated(epsilon=sizes.epsilon, delta=delta)
        .randomizer.local_epsilon,
    )
    plan = plan_of(local_epsilon)
    return self._row(
        n,
        plan,
        num_updates=num_updates,
        reports_per_update=reports,
        is_calibrated=True,
        **fields,
    )

  def central(self) -> Row:
    sizes = self._sizes
    n = sizes.num_clients
    num_passes = sizes.scaled(_PASSES)
    slots = mnist_sizes.SLOTS_PER_PASS
    num_updates = num_passes * slots
    delta = self._delta(n)
    is_allocation = self._name == 'allocation'
    if is_allocation:
      protocol = protocols.RandomAllocation(slots)
    else:
      protocol = shuffled.ShuffledCheckIn(num_updates, 1 / slots, n)

    def plan_of(multiplier):
      return allocation_plan.AllocationPlan(
          protocol,
          noise_multiplier=multiplier,
          l2_norm_clip=sizes.l2_norm_clip,
          num_passes=num_passes,
      )

    def event_of(multiplier):
      return dp_accounting.SelfComposedDpEvent(
          dp_accounting.PoissonSampledDpEvent(
              1 / slots, dp_accounting.GaussianDpEvent(multiplier)
          ),
          num_updates,
      )

    def calibrated():
      if is_allocation:
        plan = plan_of(1.0).calibrated(epsilon=sizes.epsilon, delta=delta)
        return plan.noise_multiplier
      return search.least_within(
          sizes.epsilon,
          lambda multiplier: accountants.epsilon(
              event_of(multiplier), delta=delta, method='pld'
          ),
          most=_MOST_NOISE,
          tolerance=_TOLERANCE,
      )

    # Files once held inverses under keys without the last word.
    multiplier = self._calibrations.find(
        f'{self._key(protocol, delta)} {num_passes} noise', calibrated
    )
    return self._row(
        n,
        plan_of(multiplier) if is_allocation else None,
        protocol=protocol,
        noise=ServerNoise(multiplier, sizes.l2_norm_clip),
        num_updates=num_updates,
        reports_per_update=n / slots,
        event=None if is_allocation else event_of(multiplier),
        is_calibrated=True,
    )

  def correlated(self) -> Row:
    """Returns a row in which a client has a residue class of the updates.

    With the longest stride, which `banded` uses, a class has one slot in each
    pass. The plan is then a DP-FTRL plan, and the clients draw its cohorts.
    """
    sizes = self._sizes
    n = sizes.num_clients
    num_passes = sizes.scaled(_PASSES)
    num_updates = num_passes * mnist_sizes.SLOTS_PER_PASS
    options = dict(
        epsilon=sizes.epsilon,
        delta=self._delta(n),
        l2_norm_clip=sizes.l2_norm_clip,
    )
    stride = mnist_sizes.SLOTS_PER_PASS
    if self._name == 'cyclic':
      stride = self._calibrations.find(
          json.dumps([num_updates, num_passes, options, 'stride']),
          lambda: strides.best(num_updates, num_passes, **options)[0].stride,
      )
    plan = strides.candidate(num_updates, num_passes, stride, **options).plan
    return self._row(
        n,
        plan,
        num_updates=num_updates,
        reports_per_update=n / mnist_sizes.SLOTS_PER_PASS,
        is_calibrated=True,
    )

  def _key(self, protocol, delta: float) -> str:
    facts = {**protocol.describe(), 'delta': delta, 'row': self._name}
    return json.dumps({**facts, 'epsilon': self._sizes.epsilon})
