# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The systems that fit a setting, and the noise that each of them leaves.

    setting = advice.Setting(
        population=60_000, reports_per_round=100, rounds=1000,
        parameters=10_000, epsilon=8.0, delta=1e-6, trust='server')
    best = advice.advise(setting).offers[0]

Every system gets the same clients, the same number of reports in a round, the
same rounds, epsilon and delta, and nearly the least noise that its own
accountant allows. The systems are compared by one number:

    error   standard deviation of the noise on the mean update of a round, per
            weight, in clip norms

Correlated noise cancels over rounds. Its error is the error of independent
noise with the same root mean square on the running sums of the rounds. Let P_t
be the noise on the sum of rounds 1..t of T, divided by the number of reports of
a round. Then

    error = sqrt(mean_t Var(P_t) / ((T + 1) / 2)).

For independent noise, this equals the standard deviation above. The error
counts the noise alone. It ignores which clients came and how much their updates
lose by clipping. TensorFlow is not needed.
"""

from collections.abc import Callable
from typing import Optional

from tff_dp import _lazy
from tff_dp import systems
from tff_dp.advice import offers as offers_lib
from tff_dp.advice.offers import Setting
from tff_dp.systems import system as system_lib

__all__ = ('Setting', 'advise')
__getattr__ = _lazy.moved(__name__)


def advise(
    setting: Setting, *, progress: Optional[Callable[[str], None]] = None
) -> offers_lib.Advice:
  """Returns offers of the systems that fit, least error first, and refusals.

  Args:
    setting: Known facts.
    progress: Function that is called with the name of a system before the work
      on it begins.
  """
  offers, refusals = [], []
  for name, offered in systems.offers().items():
    try:
      _check_fits(setting, offered)
      if progress is not None:
        progress(name)
      offers.append(offered.build()(setting))
    except offers_lib.DoesNotFitError as error:
      refusals.append(offers_lib.Refusal(name, str(error)))
  offers.sort(key=lambda offer: offer.error)
  return offers_lib.Advice(setting, tuple(offers), tuple(refusals))


def _check_fits(setting: Setting, offered: system_lib.Offered) -> None:
  needs = offered.needs
  if setting.unit != offered.unit:
    raise offers_lib.DoesNotFitError(
        'would protect a client as a whole, not each record'
        if setting.unit == 'record'
        else 'protects records: say how many records a client has'
    )
  trust = offers_lib.TRUST.index
  if trust(setting.trust) < trust(needs):
    needed = {'shuffler': 'a shuffler or a secure sum', 'server': 'the server'}
    raise offers_lib.DoesNotFitError(
        f'needs trust in {needed[needs]}: here {offers_lib.TRUSTED[setting.trust]}'
    )
