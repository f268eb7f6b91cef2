# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp account isrl` and `tff-dp calibrate isrl`: one silo's own noise."""

import argparse
import json
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.silos import silo_calibration
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.accounting.silos import silo_sampling
from tff_dp.accounting.silos import silo_shuffling
from tff_dp.cli import errors
from tff_dp.ledger import silo_accountant

HELP = 'messages of one silo that protects each of its records itself'
ACCOUNT_DESCRIPTION = (
    'Prints what all messages of one silo cost each of its records.\n'
    'Adjacency: one record is replaced. No trust in the server or in other\n'
    'silos; no amplification from silos that were not asked.'
)
CALIBRATE_DESCRIPTION = (
    'Prints the noise with which a silo stays within its budget. With\n'
    '--calibration, the noise of a published formula, and what it really costs.'
)
EXAMPLES = """examples:
  35 rounds over about 100 of 1238 records:
    tff-dp account isrl --records 1238 --rounds 35 --batch-size 100 \\
        --sampling poisson --noise-multiplier 4.2
  the noise for epsilon 1, and that of the paper's formula:
    tff-dp calibrate isrl --records 1238 --rounds 35 --batch-size 100 \\
        --sampling poisson --epsilon 1
    tff-dp calibrate isrl --records 1238 --rounds 35 --batch-size 35 \\
        --sampling one-pass --epsilon 1 --calibration paper-one-pass
"""
_FLAGS = {
    'num_records': 'records',
    'num_rounds': 'rounds',
    'expected_batch': 'batch_size',
    'batch': 'batch_size',
    'num_silos': 'shuffled_silos',
}
_CALIBRATIONS = tuple(
    option.value
    for option in silo_calibration.NoiseCalibration
    if option is not silo_calibration.NoiseCalibration.EXPLICIT
)


def add_account_parser(kinds) -> None:
  """Adds `isrl` to the kinds of `tff-dp account`."""
  add_account_arguments(
      kinds.add_parser(
          'isrl', help=HELP, description=ACCOUNT_DESCRIPTION, epilog=EXAMPLES
      )
  )


def add_calibrate_parser(kinds) -> None:
  """Adds `isrl` to the kinds of `tff-dp calibrate`."""
  add_calibrate_arguments(
      kinds.add_parser(
          'isrl', help=HELP, description=CALIBRATE_DESCRIPTION, epilog=EXAMPLES
      )
  )


def add_account_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of `tff-dp account isrl`, and what runs it."""
  _add_common_arguments(parser)
  parser.add_argument(
      '--noise-multiplier',
      type=float,
      required=True,
      help='standard deviation of the noise on the SUM over the batch, over the'
      ' clip norm: sigma K / C',
  )
  parser.set_defaults(run=run_account)


def add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of `tff-dp calibrate isrl`, and what runs it."""
  _add_common_arguments(parser)
  parser.add_argument(
      '--epsilon',
      type=float,
      required=True,
      help='the budget of all messages of the silo',
  )
  parser.add_argument(
      '--calibration',
      choices=_CALIBRATIONS,
      default=silo_calibration.NoiseCalibration.NUMERIC.value,
      help='the least noise (numeric), or a published formula, to compare',
  )
  parser.set_defaults(run=run_calibrate)


def run_account(arguments: argparse.Namespace) -> int:
  """Prints what given noise costs."""
  events = getattr(arguments, 'events', None)
  if events is not None:
    raise _checks.ArgumentError('events', events, 'nothing with isrl')
  with errors.named_as_flags(_FLAGS):
    sampling = _sampling_of(arguments)
    _checks.positive(noise_multiplier=arguments.noise_multiplier)
    result = _result(arguments, sampling, arguments.noise_multiplier)
  _show(result, arguments.format)
  return errors.DONE


def run_calibrate(arguments: argparse.Namespace) -> int:
  """Prints the noise for a budget, and what it costs."""
  with errors.named_as_flags(_FLAGS):
    sampling = _sampling_of(arguments)
    found = silo_calibration.calibrated(
        sampling,
        num_records=arguments.records,
        num_rounds=arguments.rounds,
        l2_norm_clip=1.0,
        epsilon=arguments.epsilon,
        delta=_delta_of(arguments),
        calibration=silo_calibration.NoiseCalibration(arguments.calibration),
        conservative=arguments.conservative,
    )
    result = _result(arguments, sampling, found.noise_multiplier)
  result |= {
      'headline': f'{found.calibration.value}: --noise-multiplier='
      + rounding.rounded_up(found.noise_multiplier, digits=7),
      'solved_for': 'noise_multiplier',
      'epsilon_budget': arguments.epsilon,
      'calibration': found.to_json(),
      'verdict': found.verdict,
  }
  if arguments.shuffled_silos is not None:
    with errors.named_as_flags(_FLAGS):
      shuffled = silo_shuffling.calibrate_shuffled_noise(
          sampling,
          num_records=arguments.records,
          num_rounds=arguments.rounds,
          num_silos=arguments.shuffled_silos,
          l2_norm_clip=1.0,
          epsilon=arguments.epsilon,
          delta=_delta_of(arguments),
      )
    result['shuffled_noise'] = shuffled.to_json() | {
        'noise_multiplier': shuffled.sigma * float(sampling.batch_size)
    }
  _show(result, arguments.format)
  return errors.DONE


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--records', type=int, required=True, help='records of the silo, n'
  )
  parser.add_argument(
      '--rounds', type=int, required=True, help='rounds in which the silo sends'
  )
  parser.add_argument(
      '--batch-size',
      type=float,
      required=True,
      help='records of a round, K; with poisson the expected number',
  )
  parser.add_argument(
      '--sampling',
      choices=silo_sampling.NAMES,
      default='poisson',
      help='how a batch is chosen: each record with probability K/n, K records'
      ' drawn anew in each round, or disjoint blocks',
  )
  parser.add_argument(
      '--delta', type=float, help='in (0, 1); 1/n^2 by default'
  )
  parser.add_argument(
      '--conservative',
      action='store_true',
      help='the bound for poisson that joint convexity alone gives',
  )
  parser.add_argument(
      '--records-per-person',
      type=int,
      default=1,
      help='also print epsilon for people with so many records in the silo',
  )
  parser.add_argument(
      '--shuffled-silos',
      type=int,
      help='also print epsilon against those who see only the shuffled messages'
      ' of so many such silos, or the noise that they need for the budget',
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')


def _sampling_of(arguments: argparse.Namespace) -> silo_sampling.Sampling:
  batch = arguments.batch_size
  whole = int(batch) if float(batch).is_integer() else batch
  sampling = silo_sampling.build(arguments.sampling, whole)
  sampling.check(
      num_records=arguments.records, num_rounds=arguments.rounds
  )
  _checks.integer_between(
      1, arguments.records, records_per_person=arguments.records_per_person
  )
  return sampling


def _delta_of(arguments: argparse.Namespace) -> float:
  if arguments.delta is not None:
    return arguments.delta
  return silo_accountant.SiloBudget(arguments.records, None).delta


def _result(
    arguments: argparse.Namespace,
    sampling: silo_sampling.Sampling,
    noise_multiplier: float,
) -> dict[str, Any]:
  """Returns everything that there is to say, as JSON types."""
  delta = _delta_of(arguments)
  sigma = noise_multiplier / float(sampling.batch_size)
  settings = dict(
      num_records=arguments.records, num_rounds=arguments.rounds, delta=delta
  )

  def spent(of, conservative=False):
    found = silo_sampling.epsilon(
        of,
        noise_multiplier=noise_multiplier,
        conservative=conservative,
        **settings,
    )
    return rounding.to_json_number(found)

  # As if every record were in every batch: no amplification at all.
  full = silo_sampling.PoissonSampling(arguments.records)
  if isinstance(sampling, silo_sampling.DisjointBlocks):
    full = sampling
  result = {
      'epsilon': spent(sampling, arguments.conservative),
      'delta': delta,
      'unit': 'record in a silo',
      'adjacency': silo_guarantee.ADJACENCY,
      'covers': silo_guarantee.COVERS,
      'sampling': sampling.name,
      'sampling_means': sampling.describe(),
      'records': arguments.records,
      'rounds': arguments.rounds,
      'batch_size': sampling.batch_size,
      'sampling_rate': sampling.rate(arguments.records),
      'noise_multiplier': noise_multiplier,
      'sigma_over_clip': sigma,
      'conservative': arguments.conservative,
      'epsilon_conservative': spent(sampling, True),
      'epsilon_without_secret_sampling': spent(full),
      'records_per_person': arguments.records_per_person,
      'assumptions': list(silo_guarantee.ASSUMPTIONS),
  }
  if arguments.records_per_person > 1:
    result['epsilon_per_person'] = rounding.to_json_number(
        _per_person(arguments, sampling, sigma, delta)
    )
  if arguments.shuffled_silos is not None:
    shuffled = silo_shuffling.shuffled_epsilon(
        sampling,
        num_silos=arguments.shuffled_silos,
        l2_norm_clip=1.0,
        sigma=sigma,
        **settings,
    )
    result['shuffled_silos'] = arguments.shuffled_silos
    result['epsilon_shuffled'] = rounding.to_json_number(shuffled.epsilon)
  return result


def _per_person(arguments, sampling, sigma, delta) -> float:
  budget = silo_accountant.SiloBudget(arguments.records, None, delta)
  accountant = silo_accountant.IsrlAccountant(
      {'silo': budget}, conservative=arguments.conservative
  )
  event = silo_events.SiloEvent(
      sampling, arguments.records, l2_norm_clip=1.0, sigma=sigma
  )
  # All blocks of a pass cost the same: one stands for them.
  for index in range(sampling.num_releases(arguments.rounds)):
    accountant.charge({'silo': event}, round_index=index)
  return accountant.user_level_epsilon(
      'silo', num_records=arguments.records_per_person
  )


def _show(result: dict[str, Any], output_format: str) -> None:
  if output_format == 'json':
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print('\n'.join(_lines(result)))


def _lines(result: dict[str, Any]) -> list[str]:
  def up(name):
    return rounding.rounded_up(rounding.from_json_number(result[name]))

  lines = [result[n] for n in ('headline', 'verdict') if n in result]
  lines += [
      f'condition that does not hold: {sentence}'
      for sentence in result.get('calibration', {}).get('unmet', ())
  ]
  noise = rounding.rounded_up(result['noise_multiplier'], digits=7)
  lines += [
      f'epsilon {up("epsilon")} at delta {result["delta"]:.4g}, for every'
      ' record of the silo',
      f'  by joint convexity alone: {up("epsilon_conservative")}',
      '  if the sampling were not secret:'
      f' {up("epsilon_without_secret_sampling")}',
  ]
  if 'epsilon_per_person' in result:
    lines.append(
        f'  for people with {result["records_per_person"]} records in it:'
        f' {up("epsilon_per_person")}'
    )
  if 'epsilon_shuffled' in result:
    amplified = result['epsilon_shuffled'] != result['epsilon']
    lines.append(
        f'  behind a shuffler of {result["shuffled_silos"]} silos:'
        f' {up("epsilon_shuffled")}'
        + ('' if amplified else ' (it does not help)')
    )
  if 'shuffled_noise' in result:
    shuffled = result['shuffled_noise']
    multiplier = rounding.rounded_up(shuffled['noise_multiplier'], digits=7)
    lines.append(
        f'  --noise-multiplier={multiplier} is enough behind that shuffler:'
        f' {shuffled["verdict"]}'
        if shuffled['is_amplified']
        else f'  {shuffled["verdict"]}'
    )
  lines += [
      'neighbours  one record is replaced; the number of records is public',
      f'sampling    {result["sampling_means"]}, of {result["records"]};'
      f' {result["rounds"]} rounds',
      f'noise       {noise}, standard deviation on the SUM over the clip norm;'
      f' {result["sigma_over_clip"]:.6g} on the mean',
      'assumed',
  ]
  return lines + [f'- {sentence}' for sentence in result['assumptions']]
