# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The event that the flags of a check-in or shuffle protocol describe."""

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.events import protocol_events
from tff_dp.cli import errors

RANDOMIZERS = {
    'any': protocol_events.LocalDpEvent,
    'randomized-response': protocol_events.RandomizedResponseLocalDpEvent,
    'sphere': protocol_events.SphereLocalDpEvent,
    'laplace': protocol_events.LaplaceLocalDpEvent,
}


def of(arguments) -> tuple[dp_accounting.DpEvent, int]:
  """Returns (event of one round or pass, how many)."""
  kind = arguments.kind
  for name in ('population', 'rounds', 'slots', 'selected'):
    _checks.optional_integer_at_least(
        1, **{name: getattr(arguments, name, None)}
    )
  for name in ('check_in_rate', 'check_in_probability'):
    if getattr(arguments, name, None) is not None:
      _checks.in_closed(0, 1, **{name: getattr(arguments, name)})
  if kind == 'random-allocation':
    return _allocation(arguments)
  local = _local(arguments)
  if kind == 'shuffle':
    return (
        protocol_events.ShuffledDpEvent(local, arguments.population),
        1 if arguments.rounds is None else arguments.rounds,
    )
  if kind == 'shuffled-check-in':
    event = protocol_events.ShuffledCheckInDpEvent(
        local, arguments.population, arguments.check_in_rate
    )
    return event, arguments.rounds
  return _random_check_in(arguments, local)


def _random_check_in(arguments, local):
  if arguments.protocol == 'fixed-window':
    event = protocol_events.FixedWindowCheckInDpEvent(
        local, arguments.slots, probability(arguments)
    )
    return event, passes(arguments)
  if arguments.check_in_probability not in (None, 1.0):
    raise _checks.ArgumentError(
        'check_in_probability',
        arguments.check_in_probability,
        f'1, or nothing, with --protocol={arguments.protocol}',
    )
  if arguments.protocol == 'averaged':
    if arguments.population is None:
      raise _checks.ArgumentError(
          'population', None, 'a number with --protocol=averaged'
      )
    event = protocol_events.AveragedCheckInDpEvent(
        local, arguments.slots, arguments.population
    )
    return event, passes(arguments)
  # One client wakes in every round, so clients are as many as rounds.
  for name in ('rounds', 'population'):
    horizon = getattr(arguments, name)
    if horizon is not None and arguments.slots > horizon:
      raise _too_long(arguments, name)
  event = protocol_events.SlidingWindowCheckInDpEvent(local, arguments.slots)
  return event, 1


def _allocation(arguments):
  _checks.non_negative(noise_multiplier=arguments.noise_multiplier)
  _checks.integer_between(1, arguments.slots, selected=arguments.selected)
  event = protocol_events.RandomAllocationDpEvent(
      dp_accounting.GaussianDpEvent(arguments.noise_multiplier),
      arguments.slots,
      arguments.selected,
      probability(arguments),
  )
  return event, passes(arguments)


def _local(arguments) -> protocol_events.LocalRandomizerDpEvent:
  """Returns the event of one report, from the flags that describe it."""
  name = arguments.randomizer
  if arguments.noise_multiplier is not None:
    for other in ('local_delta', 'categories'):
      if getattr(arguments, other) is not None:
        raise _checks.ArgumentError(
            other,
            getattr(arguments, other),
            'nothing with --noise-multiplier, from which it follows',
        )
    if name != 'any':
      raise _checks.ArgumentError(
          'randomizer', name, 'nothing with --noise-multiplier, of Gaussians'
      )
    _checks.positive(noise_multiplier=arguments.noise_multiplier)
    return protocol_events.GaussianLocalDpEvent(arguments.noise_multiplier)
  _checks.positive(local_epsilon=arguments.local_epsilon)
  options = {}
  if arguments.local_delta is not None:
    _checks.in_half_open(0, 1, local_delta=arguments.local_delta)
    if name == 'any':
      options['delta'] = arguments.local_delta
    elif arguments.local_delta > 0:
      raise _checks.ArgumentError(
          'local_delta', arguments.local_delta, f'0 with --randomizer={name}'
      )
  if arguments.categories is not None:
    if name != 'randomized-response':
      raise _checks.ArgumentError(
          'categories',
          arguments.categories,
          f'nothing with --randomizer={name}',
      )
    _checks.integer_at_least(2, categories=arguments.categories)
    options['num_categories'] = arguments.categories
  return RANDOMIZERS[name](arguments.local_epsilon, **options)


def probability(arguments) -> float:
  """Returns the probability with which a client takes part at all."""
  given = arguments.check_in_probability
  return 1.0 if given is None else given


def passes(arguments) -> int:
  """Returns how often all slots are gone through."""
  if arguments.rounds is None:
    return 1
  if arguments.slots > arguments.rounds:
    raise _too_long(arguments, 'rounds')
  if arguments.rounds % arguments.slots:
    raise _checks.ArgumentError(
        'rounds',
        arguments.rounds,
        f'a multiple of --slots={arguments.slots}: whole passes',
    )
  return arguments.rounds // arguments.slots


def _too_long(arguments, name: str) -> _checks.ArgumentError:
  return _checks.ArgumentError(
      'slots',
      arguments.slots,
      f'at most {errors.flag(name)}={getattr(arguments, name)}: a window cannot'
      ' be longer than the run',
  )
