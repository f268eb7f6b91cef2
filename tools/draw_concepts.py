# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/concepts_*.md, and prints the numbers in them.

  .venv/bin/python tools/draw_concepts.py

Each picture is computed anew by the library. This takes about a minute.
"""

import pathlib

import numpy as np
from scipy import stats

from tff_dp import _axes
from tff_dp import advice
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import guesses

_DOCS = pathlib.Path(__file__).resolve().parents[1] / 'docs'
_DELTA = 1e-5
_WIDTH, _HEIGHT = 7.0, 3.6


def epsilon_and_delta():
  """The chance that a guess is right, from one point and from the curve."""
  epsilons = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
  one_point, curve = [], []
  for epsilon in epsilons:
    sigma = gaussian.sigma_for(epsilon=epsilon, delta=_DELTA)
    at_zero = gaussian.exact_delta(sigma=sigma, epsilon=0.0)
    one_point.append(100 * guesses.right(epsilon, _DELTA))
    curve.append(100 * guesses.right(0.0, at_zero))
    print(
        f'epsilon {epsilon:g} at delta {_DELTA:g}: a guess is right in at most'
        f' {curve[-1]:.1f} % by the curve, {one_point[-1]:.2f} % by the point;'
        f' delta(0) = {at_zero:.3f}'
    )
  figure, (axes,) = _axes.figure(_WIDTH, _HEIGHT)
  axes.plot(epsilons, one_point, label='from one point', **_axes.style(0))
  axes.plot(epsilons, curve, label='from the whole curve', **_axes.style(1))
  axes.axhline(50, color='grey', linewidth=1)
  axes.annotate('a coin', (1.2, 50.8), color='dimgrey')
  axes.set_title('How often a guess about one client can be right')
  axes.set_xlabel(f'epsilon at delta {_DELTA:g}, Gaussian noise')
  axes.set_ylabel('right guesses, at most (%)')
  axes.legend(loc='lower right')
  return figure


def client_and_record():
  """Epsilon of a client whose records are protected one by one."""
  sigma = gaussian.sigma_for(epsilon=1.0, delta=_DELTA)
  counts = (1, 2, 3, 5, 10, 20, 50, 100)
  epsilons = [
      gaussian.exact_epsilon(sigma=sigma / count, delta=_DELTA)
      for count in counts
  ]
  for count, epsilon in zip(counts, epsilons):
    print(f'{count} records at epsilon 1 each: {epsilon:.3g} for all of them')
  figure, (axes,) = _axes.figure(_WIDTH, _HEIGHT)
  axes.plot(counts, epsilons, **_axes.style(0))
  axes.set_xscale('log')
  axes.set_yscale('log')
  _axes.log(axes.xaxis)
  _axes.log(axes.yaxis)
  axes.set_title('Noise that protects each record at epsilon 1')
  axes.set_xlabel('records of one client')
  axes.set_ylabel(f'epsilon of the client, delta {_DELTA:g}')
  return figure


def clipping():
  """Error of a mean of clipped updates, with the noise that the norm needs."""
  clients, weights = 100, 1000
  sigma = gaussian.sigma_for(epsilon=2.0, delta=_DELTA)
  # Lengths of the updates of many clients, which point in one direction.
  lengths = stats.lognorm(0.6).ppf((np.arange(10_000) + 0.5) / 10_000)
  norms = np.geomspace(0.1, 10, 41)
  lost = np.array(
      [lengths.mean() - np.minimum(lengths, norm).mean() for norm in norms]
  )
  noise = sigma * norms * np.sqrt(weights) / clients
  both = np.hypot(lost, noise)
  best = both.argmin()
  print(
      f'noise multiplier {sigma:.3f}; a median length of'
      f' {np.median(lengths):.2f}; best clip norm {norms[best]:.2f}, error'
      f' {both[best]:.2f}'
  )
  figure, (axes,) = _axes.figure(_WIDTH, _HEIGHT)
  for index, (label, values) in enumerate((
      ('both', both), ('lost by clipping', lost), ('noise', noise)
  )):
    axes.plot(norms, values, label=label, **_axes.style(index))
  axes.set_xscale('log')
  _axes.log(axes.xaxis)
  axes.set_ylim(0, 2)
  axes.set_title(f'{clients} clients, {weights:,} weights, epsilon 2 for one round')
  axes.set_xlabel('clip norm, in lengths of a median update')
  axes.set_ylabel('error of the mean update')
  axes.legend()
  return figure


def trust():
  """The least noise that each level of trust allows."""
  offers = {}
  for level in ('server', 'shuffler', 'nobody'):
    setting = advice.Setting(
        population=60_000,
        reports_per_round=100,
        rounds=1000,
        parameters=10_000,
        epsilon=8.0,
        delta=1e-6,
        trust=level,
    )
    best = advice.advise(setting).offers[0]
    offers[level] = best
    print(
        f'{level}: {best.system}, {best.variant}: error {best.error:.4g} per'
        ' weight, in clip norms'
    )
  figure, (axes,) = _axes.figure(_WIDTH, 2.6)
  words = {
      'server': 'the server',
      'shuffler': 'a shuffler only',
      'nobody': 'nobody',
  }
  bars = axes.barh(
      [words[level] for level in offers],
      [offer.error for offer in offers.values()],
      color=[_axes.style(index)['color'] for index in range(len(offers))],
  )
  axes.bar_label(bars, [f'{offer.error:.2g}' for offer in offers.values()], padding=4)
  axes.set_xscale('log')
  axes.set_xlim(3e-4, 1)
  axes.set_xticks([0.001, 0.01, 0.1, 1], ['0.001', '0.01', '0.1', '1'])
  axes.invert_yaxis()
  axes.set_title('The least noise, by whom the clients trust (epsilon 8)')
  axes.set_xlabel('noise on the mean update of a round, per weight, in clip norms')
  return figure


def taking_part():
  """Error at equal privacy, by how often a client may come back."""
  rounds = 400
  gaps = (1, 2, 5, 10, 20, 50, 100, 200, 400)
  names = {
      'independent': 'independent noise',
      'honaker': 'a tree (Honaker)',
      'blt': 'BLT',
  }
  errors = {name: [] for name in names}
  for gap in gaps:
    pattern = participation.MinSeparation(rounds, min_index_gap=gap)
    rows = mechanisms.compare(pattern, names=tuple(names), error='mean')
    for row in rows:
      errors[row.name].append(row.rmse)
    found = ', '.join(f'{row.name} {row.rmse:.3g}' for row in rows)
    print(f'{rounds} rounds, gap {gap}: {found}')
  figure, (axes,) = _axes.figure(_WIDTH, _HEIGHT)
  for index, (name, label) in enumerate(names.items()):
    axes.plot(gaps, errors[name], label=label, **_axes.style(index))
  axes.set_xscale('log')
  axes.set_yscale('log')
  _axes.log(axes.xaxis)
  _axes.log(axes.yaxis)
  axes.set_title(f'{rounds} rounds at equal privacy')
  axes.set_xlabel('least difference between two rounds of one client')
  axes.set_ylabel('error of the running sum')
  axes.legend()
  return figure


def main() -> None:
  for name, draw in (
      ('epsilon', epsilon_and_delta),
      ('unit', client_and_record),
      ('clipping', clipping),
      ('trust', trust),
      ('participation', taking_part),
  ):
    print(f'concepts_{name}:')
    (_DOCS / f'concepts_{name}.png').write_bytes(_axes.png(draw()))


if __name__ == '__main__':
  main()
