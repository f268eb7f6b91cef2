# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which systems fit a setting, and how much noise each of them leaves.

    setting = advice.Setting(
        population=60_000, reports_per_round=100, rounds=1000,
        parameters=10_000, epsilon=8.0, delta=1e-6, trust='server')
    best = advice.advise(setting).offers[0]

Every system gets the same clients, the same number of reports in a round, the
same rounds, epsilon and delta, and the least noise that its own accountant
allows. They are compared by one number:

    error   standard deviation of the noise on the mean update of a round, per
            weight, in clip norms

Correlated noise cancels over rounds, so its error is that of the independent
noise with the same root mean square error on the running sum of all rounds:
with P_t the noise on the sum of rounds 1..t of T, over the reports of a round,

    error = sqrt(mean_t Var(P_t) / ((T + 1) / 2)).

For independent noise the two are equal. Only noise counts: not which clients
came, and not what their updates lose by clipping. Needs no TensorFlow.
"""

from collections.abc import Callable
from typing import Optional

from tff_dp.advice import check_ins
from tff_dp.advice import systems
from tff_dp.advice.offers import Advice
from tff_dp.advice.offers import DoesNotFitError
from tff_dp.advice.offers import Offer
from tff_dp.advice.offers import Refusal
from tff_dp.advice.offers import RELATIONS
from tff_dp.advice.offers import Setting
from tff_dp.advice.offers import TRUST
from tff_dp.advice.offers import TRUSTED

# What each one needs to be trusted, and what builds its offer.
SYSTEMS = {
    'dp-ftrl': ('server', systems.dp_ftrl),
    'random-allocation': ('server', check_ins.random_allocation),
    'fixed-window': ('server', check_ins.fixed_window),
    'sliding-window': ('server', check_ins.sliding_window),
    'shuffled-check-in': ('shuffler', check_ins.shuffled_check_in),
    'local-reports': ('nobody', check_ins.local_reports),
    'draw-and-discard': ('nobody', systems.draw_and_discard),
    'secure-sum': ('shuffler', systems.secure_sum),
    'isrl': ('nobody', systems.isrl),
}
_OF_SILOS = ('secure-sum', 'isrl')


def advise(
    setting: Setting, *, progress: Optional[Callable[[str], None]] = None
) -> Advice:
  """Returns every system that fits, the least error first, and the others.

  Args:
    setting: What is known.
    progress: Is told the name of a system before the work on it begins.
  """
  offers, refusals = [], []
  for name, (needs, build) in SYSTEMS.items():
    try:
      _check_fits(setting, name, needs)
      if progress is not None:
        progress(name)
      offers.append(build(setting))
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
