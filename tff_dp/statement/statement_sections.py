# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The twelve points of a privacy statement, computed from its facts.

Every epsilon of a statement is computed here, from the same noise multiplier
and squared sensitivity, so that the points cannot contradict each other.
"""

import importlib.metadata
import platform
from typing import Any

from tff_dp import _version
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.statement import statement_facts

NO_PRIVACY = 'NO PRIVACY'
NO_NOISE = f'{NO_PRIVACY}: the noise multiplier is 0.'
_CURVE_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
# Where the squared sensitivity comes from, by the name of the mechanism.
_TREES = 'of trees, Kairouz et al., arXiv:2103.00039, appendix D'
_TOEPLITZ = 'of Toeplitz matrices, arXiv:2405.13763, theorem 2'
_SENSITIVITY = {
    'independent': 'the number of participations',
    'tree': _TREES,
    'honaker': _TREES,
    'banded': 'of banded matrices, arXiv:2306.08153',
    'toeplitz': _TOEPLITZ,
    'blt': _TOEPLITZ,
    'banded-inverse': _TOEPLITZ,
    'dense': 'over all patterns, arXiv:2211.06530',
}
_COVERED_BY_BITS = (
    ', among them the clip norms and the estimates of the quantile that they'
    ' follow'
)
_PACKAGES = (
    'dp-accounting',
    'numpy',
    'scipy',
    'tensorflow',
    'tensorflow-federated',
)


def warnings(facts: statement_facts.StatementFacts) -> tuple[str, ...]:
  """Returns what a reader must know before anything else."""
  found = [NO_NOISE] if facts.noise_multiplier == 0 else []
  if facts.insecure_seed:
    found.append(
        f'{NO_PRIVACY}: the noise key was made from a known seed, so that the'
        ' noise can be recomputed and subtracted.'
    )
  found += weak_delta(facts.delta, facts.population)
  return tuple(found)


def weak_delta(delta: float, population: int | None) -> list[str]:
  """Returns a warning if delta is too large for the population."""
  if population is None or delta * population < 1:
    return []
  return [
      f'WEAK: delta {delta:g} is not below 1 / population ='
      f' {1 / population:g}; revealing one random client completely would be'
      ' allowed.'
  ]


def points(facts: statement_facts.StatementFacts) -> dict[str, dict[str, Any]]:
  """Returns point -> name -> value, plain types."""
  return {
      'setting': {
          'model': 'central differential privacy',
          'trusted': (
              'the server that sees updates, clips, sums and adds noise, and'
              ' whoever reads its memory or the folder secret/'
          ),
          'adversary': (
              'anybody who sees every released model and metric of the run'
          ),
      },
      'unit': {
          'unit': 'client',
          'contribution_bound': _contribution_bound(facts),
          'participation': facts.participation,
          'max_participations': facts.max_participations,
          'min_index_gap': facts.min_index_gap,
          'min_rounds_between': facts.min_index_gap - 1,
      },
      'adjacency': {
          'relation': facts.neighboring_relation.value,
          'definition': facts.neighboring_relation.description,
      },
      'release': {
          'covered': (
              'nothing'
              if facts.l2_norm_clip is None
              else 'the model after every round, its evaluation on data outside'
              ' the training population, and metrics computed from noised'
              ' values'
              + _COVERED_BY_BITS * (facts.adaptive_clipping is not None)
          ),
          'not_covered': facts.not_covered,
      },
      'mechanism': _mechanism(facts),
      'accounting': _accounting(facts),
      'guarantee': _guarantee(facts),
      'amplification': {
          'claimed': 'none',
          'assumptions': {
              'Poisson sampling': 'not assumed',
              'secret cohorts': 'not assumed',
              'trusted shuffler': 'not assumed',
          },
          'epsilon_without': _epsilon(_current_sigma(facts), facts.delta),
      },
      'tuning': {
          'hyperparameters': facts.hyperparameters,
          'architecture': facts.architecture,
          'early_stopping': facts.early_stopping,
      },
      'public_data': {
          'pretraining': facts.pretraining,
          'public_data': facts.public_data,
          'preprocessing': facts.preprocessing,
      },
      'implementation': _implementation(facts),
      'not_claimed': {
          'audit': facts.audit,
          'heuristics': 'none',
          'limits': (
              'nothing is claimed for several clients of one person, for side'
              ' channels, or against the server'
          ),
      },
  }


def _contribution_bound(facts: statement_facts.StatementFacts) -> str:
  if facts.l2_norm_clip is None:
    return 'none: updates are not clipped'
  if facts.adaptive_clipping is None:
    return (
        'the whole update of a client in a round has L2 norm at most'
        f' {facts.l2_norm_clip:g}, whatever its number of examples'
    )
  return (
      'the whole update of a client in a round has L2 norm at most the clip'
      f' norm of the tree, {facts.l2_norm_clip:g} in the first, whatever its'
      ' number of examples; beside it, a client sends +1/2 or -1/2'
  )


def _mechanism(facts: statement_facts.StatementFacts) -> dict[str, Any]:
  noise = rounding.rounded_up(facts.noise_multiplier, digits=7)
  if facts.noise_multiplier == 0:
    noise += f' ({NO_PRIVACY})'
  population = 'not stated; nothing here depends on it'
  if facts.population is not None:
    population = f'{facts.population} clients, {facts.population_origin}'
  parameters = {
      name: 'none' if value is None else value
      for name, value in facts.mechanism_parameters.items()
  }
  meaning = (
      'standard deviation of one draw on the SUM, over the L2 clip norm'
      if facts.adaptive_clipping is None
      else 'of updates and quantile bits together, as one Gaussian mechanism'
  )
  section = {
      'name': facts.mechanism,
      'parameters': parameters or 'none',
      'noise_multiplier': f'{noise}: {meaning}',
      'l2_norm_clip': facts.l2_norm_clip or 'none',
      'rounds_planned': facts.num_rounds,
      'rounds_done': facts.rounds_begun,
      'clients_per_round': f'{facts.clients_per_round}, the constant divisor',
      'population': population,
  }
  if facts.adaptive_clipping is not None:
    section['adaptive_clipping'] = dict(facts.adaptive_clipping)
  return section


def _accounting(facts: statement_facts.StatementFacts) -> dict[str, Any]:
  section = {
      'method': (
          'the run is one Gaussian mechanism over all noised values; exact'
          ' conversion to (epsilon, delta)'
      ),
      'theorem': (
          'Gaussian: Balle and Wang, arXiv:1805.06530, theorem 8; adaptive'
          ' streams: Denisov et al., arXiv:2202.08312; sensitivity: '
          + _SENSITIVITY.get(facts.mechanism, 'of the mechanism, as documented')
      ),
      'exactness': (
          (
              'exact for the worst case of the promised participation;'
              if facts.sensitivity_is_exact
              else 'an upper bound: the squared sensitivity bounds the worst'
              ' case of the promised participation, its conversion is exact;'
          )
          + ' floating-point errors are rounded upward'
      ),
      'squared_sensitivity': facts.squared_sensitivity,
      'discretisation': 'none: no grid of losses, Renyi orders are continuous',
      'versions': versions(),
  }
  if facts.adaptive_clipping is not None:
    section['adaptive_clipping'] = (
        'two Gaussian mechanisms with the same S2, whose 1 / sigma^2 add up to'
        ' that of the noise multiplier above: Andrew et al., arXiv:1905.03871,'
        ' theorem 1; each clip norm follows from what was released before'
    )
  if facts.complete_trees:
    section['squared_sensitivity_without_completion'] = (
        facts.squared_sensitivity_without_completion
    )
  return section


def _guarantee(facts: statement_facts.StatementFacts) -> dict[str, Any]:
  planned = _sigma(facts, facts.squared_sensitivity)
  current = _current_sigma(facts)
  replaced = _current_sigma(facts, run_events.NeighboringRelation.REPLACE_ONE)
  section = {
      'epsilon': _epsilon(current, facts.delta),
      'epsilon_planned': _epsilon(planned, facts.delta),
      'epsilon_rdp': rounding.to_json_number(
          gaussian.rdp_epsilon(sigma=current, delta=facts.delta)
      ),
      'delta': facts.delta,
      'delta_reason': delta_reason(
          facts.delta_reason, facts.delta, facts.population
      ),
      'zcdp_rho': rounding.to_json_number(gaussian.zcdp_rho(sigma=current)),
      'sigma_eff': current,
      'epsilon_replace_one': _epsilon(replaced, facts.delta),
      'curve': [
          {
              'delta': delta,
              'epsilon': _epsilon(current, delta),
              'epsilon_planned': _epsilon(planned, delta),
          }
          for delta in sorted({*_CURVE_DELTAS, facts.delta}, reverse=True)
      ],
  }
  if facts.insecure_seed:
    section['epsilon_if_key_were_secret'] = _epsilon(
        _noise_sigma(facts, facts.squared_sensitivity), facts.delta
    )
  return section


def delta_reason(reason: str, delta: float, population: int | None) -> str:
  """Returns why this delta, and how it compares with the population."""
  if population is None:
    return f'{reason}; it should be well below 1 / population'
  comparison = 'below' if delta * population < 1 else 'NOT below'
  return f'{reason}; {comparison} 1 / population = {1 / population:g}'


def _implementation(facts: statement_facts.StatementFacts) -> dict[str, Any]:
  return {
      'arithmetic': (
          'an exact sum of clipped updates; float32 Gaussian noise, not a'
          ' secure discrete sampler'
      ),
      'generator': 'Philox counter streams, which are not cryptographic',
      'key': (
          'made from a known seed: void'
          if facts.insecure_seed
          else '128 bits of operating-system entropy, in the checkpoints'
      ),
      'dropouts': (
          'a selected client counts as having taken part; a short round gets'
          ' the full noise and the same divisor'
      ),
      'realised_participation': _realised_participation(facts),
      'realised_cohorts': _realised_cohorts(facts),
      'bad_updates': (
          'a non-finite update counts as zero; how many is not released'
      ),
  }


def _realised_participation(facts: statement_facts.StatementFacts) -> str:
  if not facts.rounds_begun:
    return 'no round yet'
  observed = facts.observed
  text = (
      f'{observed.num_clients} clients in {observed.num_rounds} rounds, at most'
      f' {observed.max_participations} times each'
  )
  if observed.min_index_gap is None:
    return text + ', none twice'
  return text + (
      f', index gap at least {observed.min_index_gap}'
      f' ({observed.min_rounds_between} rounds strictly between)'
  )


def _realised_cohorts(facts: statement_facts.StatementFacts) -> str:
  if not facts.rounds_begun:
    return 'no round yet'
  return (
      f'{facts.observed.smallest_cohort} to {facts.observed.largest_cohort}'
      f' clients selected per round, {facts.clients_per_round} planned'
  )


def _current_sigma(
    facts: statement_facts.StatementFacts,
    relation: run_events.NeighboringRelation | None = None,
) -> float:
  """Returns sigma of the rounds begun, of the plan before round 1."""
  squared_sensitivity = facts.squared_sensitivity
  if facts.rounds_begun:
    squared_sensitivity = facts.squared_sensitivity_so_far
  return _sigma(facts, squared_sensitivity, relation)


def _sigma(
    facts: statement_facts.StatementFacts,
    squared_sensitivity: float,
    relation: run_events.NeighboringRelation | None = None,
) -> float:
  """Returns sigma_eff as an adversary sees it: known noise is no noise."""
  if facts.insecure_seed:
    return 0.0
  return _noise_sigma(facts, squared_sensitivity, relation)


def _noise_sigma(
    facts: statement_facts.StatementFacts,
    squared_sensitivity: float,
    relation: run_events.NeighboringRelation | None = None,
) -> float:
  return run_events.effective_sigma(
      noise_multiplier=facts.noise_multiplier,
      squared_sensitivity=squared_sensitivity,
      neighboring_relation=relation or facts.neighboring_relation,
  )


def _epsilon(sigma: float, delta: float) -> float | str:
  return rounding.to_json_number(
      gaussian.exact_epsilon(sigma=sigma, delta=delta)
  )


def versions() -> dict[str, str]:
  """Returns versions from metadata; nothing is imported for it."""
  found = {
      'python': platform.python_version(),
      'tff-dp': _version.__version__,
  }
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'not installed'
  return found
