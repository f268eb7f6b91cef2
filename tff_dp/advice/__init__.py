# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The systems that fit a setting, and the noise that each of them leaves.

    setting = advice.Setting(
        population=60_000, reports_per_round=100, rounds=1000,
        parameters=10_000, epsilon=8.0, delta=1e-6, trust='server')
    best = advice.advise(setting).offers[0]

Every system gets the same clients, the same number of reports in a round, the
same rounds, epsilon and delta, and the least noise that its own accountant
allows. They are compared by one number:

    error   standard deviation of the noise on the mean update of a round, per
            weight, in clip norms

Correlated noise cancels over rounds. Its error is the error of the independent
noise with the same root mean square error on the running sum of all rounds.
With P_t the noise on the sum of rounds 1..t of T, divided by the reports of a
round,

    error = sqrt(mean_t Var(P_t) / ((T + 1) / 2)).

For independent noise the two are equal. Only noise counts. The error ignores
which clients came and how much their updates lose by clipping. TensorFlow is
not needed.
"""

from collections.abc import Callable
from typing import NamedTuple, Optional

from tff_dp.advice import check_ins
from tff_dp.advice import cyclic_allocation
from tff_dp.advice import systems
from tff_dp.advice.offers import Advice
from tff_dp.advice.offers import DoesNotFitError
from tff_dp.advice.offers import Offer
from tff_dp.advice.offers import Refusal
from tff_dp.advice.offers import RELATIONS
from tff_dp.advice.offers import Setting
from tff_dp.advice.offers import TRUST
from tff_dp.advice.offers import TRUSTED


class System(NamedTuple):
  """One of `SYSTEMS`.

  Attributes:
    needs: Trust that the system needs at least, one of `TRUST`.
    summary: Description of the system.
    build: Function that makes its offer for a setting, or raises
      `DoesNotFitError`.
  """

  needs: str
  summary: str
  build: Callable[[Setting], Offer]


SYSTEMS = {
    'dp-ftrl': System(
        'server',
        'a server adds noise that cancels over rounds, and chooses who comes',
        systems.dp_ftrl,
    ),
    'random-allocation': System(
        'server',
        'clients draw their own rounds, and a server adds noise to every sum',
        check_ins.random_allocation,
    ),
    'cyclic-allocation': System(
        'server',
        'as random-allocation, in strides, with noise that cancels over rounds',
        cyclic_allocation.cyclic_allocation,
    ),
    'fixed-window': System(
        'server',
        'clients noise their reports and draw a slot, which uses one of them',
        check_ins.fixed_window,
    ),
    'sliding-window': System(
        'server',
        'as fixed-window, with slots that begin when a client wakes',
        check_ins.sliding_window,
    ),
    'shuffled-check-in': System(
        'shuffler',
        'clients noise their reports, flip a coin a round, and are shuffled',
        check_ins.shuffled_check_in,
    ),
    'local-reports': System(
        'nobody',
        'clients noise their reports, and nothing else is counted on',
        check_ins.local_reports,
    ),
    'draw-and-discard': System(
        'nobody',
        'clients noise whole models, of which a server keeps a few',
        systems.draw_and_discard,
    ),
    'secure-sum': System(
        'shuffler',
        'silos share the noise of a sum that is opened only as a whole',
        systems.secure_sum,
    ),
    'isrl': System(
        'nobody',
        'every silo adds all the noise that its own records need',
        systems.isrl,
    ),
}
_OF_SILOS = ('secure-sum', 'isrl')


def advise(
    setting: Setting, *, progress: Optional[Callable[[str], None]] = None
) -> Advice:
  """Returns every system that fits, the least error first, and the others.

  Args:
    setting: Known facts.
    progress: Function that is called with the name of a system before the work
      on it begins.
  """
  offers, refusals = [], []
  for name, system in SYSTEMS.items():
    try:
      _check_fits(setting, name, system.needs)
      if progress is not None:
        progress(name)
      offers.append(system.build(setting))
    except DoesNotFitError as error:
      refusals.append(Refusal(name, str(error)))
  offers.sort(key=lambda offer: offer.error)
  return Advice(setting, tuple(offers), tuple(refusals))


def _check_fits(setting: Setting, name: str, needs: str) -> None:
  if setting.is_of_silos and name not in _OF_SILOS:
    raise DoesNotFitError(
        'for clients: would protect a silo as a whole, not each record'
    )
  if not setting.is_of_silos and name in _OF_SILOS:
    raise DoesNotFitError(
        'for records of silos: say how many records a silo has'
    )
  if TRUST.index(setting.trust) < TRUST.index(needs):
    needed = {'shuffler': 'a shuffler or a secure sum', 'server': 'the server'}
    raise DoesNotFitError(
        f'needs trust in {needed[needs]}: here {TRUSTED[setting.trust]}'
    )
