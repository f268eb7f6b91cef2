# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What users may write in a call: NumPy numbers, and names of other libraries.

`helpful` decorates public functions and classes. Their NumPy scalars become
Python numbers, and an error about an unknown argument names the right one.
"""

from collections.abc import Collection
import functools
import inspect
import types
from typing import TypeVar

from tff_dp import _checks

# Each line has the names of one idea. The first ones are names of ours.
_SAME = [line.split() for line in """
l2_norm_clip clip_norm clip clipping_norm l2_clip_norm max_grad_norm
noise_multiplier noise_stddev noise noise_std sigma
num_rounds total_rounds rounds epochs steps num_steps
check_in_rate clients_per_round batch_size expected_batch q sample_rate \
sampling_rate expected_batch_size
delta target_delta
epsilon epsilon_budget eps target_epsilon get_epsilon compute_epsilon
min_index_gap min_sep min_separation
population num_records records num_examples n
population num_clients
neighboring_relation relation adjacency
schedule_seed insecure_seed server_seed seed
calibrated calibrate
server_learning_rate learning_rate lr
client_optimizer client_optimizer_fn client_learning_rate client_lr
server_optimizer server_optimizer_fn
model_fn model
event dp_event to_dp_event
member silo
""".strip().splitlines()]
_NOTES = {
    'noise_multiplier': 'standard deviation on the sum, over the clip norm',
    'noise_stddev': (
        'standard deviation on the mean over a batch: a noise multiplier times'
        ' l2_norm_clip over the batch size'
    ),
    'num_rounds': 'of which an epoch has population / clients per round',
    'rounds': 'of which an epoch has population / clients per round',
    'epochs': 'passes, each of records / batch size steps',
    'check_in_rate': 'a probability: clients per round over the population',
    'clients_per_round': 'a number: a rate times the population',
    'expected_batch': 'a number: a rate times the number of records',
    'batch_size': 'a number: a rate times the number of records',
    'insecure_seed': 'for tests only',
    'client_optimizer': 'of tff.learning.optimizers',
    'model_fn': 'a model of tff.learning, or a function that returns one',
    'noise': 'the kind; epsilon and delta say how much',
}
# First name of a line -> the way out where a function has no name of the line.
_ELSEWHERE = {
    'l2_norm_clip': 'l2_norm_clip, of the plan or of a builder for silos',
    'noise_multiplier': 'noise_multiplier of the plan, noise_stddev of silos',
    'num_rounds': 'num_rounds of the plan or of its parts',
    'check_in_rate': 'clients_per_round of the plan, sampling of silos',
    'delta': 'plan.epsilon(delta=...), plan.calibrated(epsilon=..., delta=...)',
    'epsilon': (
        'plan.calibrated(epsilon=..., delta=...), SiloBudget(epsilon=...)'
        ' for silos'
    ),
    'neighboring_relation': (
        'plan.epsilon(delta=..., neighboring_relation=...)'
    ),
    'schedule_seed': (
        'insecure_seed of plan.aggregator or of the source of the clients, for'
        ' tests only'
    ),
}
_Thing = TypeVar('_Thing')


def meant(word: str, known: Collection[str]) -> str:
  """Returns the name in `known` that means the same as a word, or ''."""
  same = _line(word)
  return next((name for name in same if name in known and name != word), '')


def note(name: str) -> str:
  """Returns ', ' and what a name of ours stands for, or ''."""
  return f', {_NOTES[name]}' if name in _NOTES else ''


def _line(word: str) -> list[str]:
  return next((line for line in _SAME if word in line), [])


def way_out(word: str, known: Collection[str]) -> str:
  """Returns the right name with a note, or where it belongs, or ''."""
  name = meant(word, known)
  if name:
    return name + note(name)
  return _ELSEWHERE.get(next(iter(_line(word)), ''), '')


def helpful(thing: _Thing, *, name: str = '') -> _Thing:
  """Decorates a function, or `__init__` and the public methods of a class.

  Signature, types and documentation stay as they are.

  Args:
    thing: Function or class.
    name: Name of the function in errors. Default: its own.
  """
  if isinstance(thing, type):
    for key, each in list(vars(thing).items()):
      if isinstance(each, types.FunctionType) and (
          key == '__init__' or key[0] != '_'
      ):
        setattr(thing, key, helpful(each, name=name))
    return thing

  @functools.wraps(thing)
  def call(*args, **options):
    args = [_checks.python_number(each) for each in args]
    for key, each in options.items():
      options[key] = _checks.python_number(each)
    try:
      return thing(*args, **options)
    except TypeError as error:
      if error.__traceback__.tb_next is None:  # It never began.
        text = str(error)
        if name:
          text = text.replace(f'{thing.__qualname__}()', name)
        error.args = (f'{text}\ntry: {_right_call(thing, options, name)}',)
      raise

  return call


def _right_call(function, options, name: str) -> str:
  """Returns how to call a function that Python could not call."""
  parameters = inspect.signature(function).parameters.values()
  known = {
      each.name: each.default is each.empty
      for each in parameters
      if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
      and each.name != 'self'
  }
  further = [each.name for each in parameters if each.kind is each.VAR_KEYWORD]
  for word in options:
    found = '' if word in known else way_out(word, known)
    if found:
      return found
  own = function.__qualname__.removesuffix('.__init__').rpartition('.')[2]
  required = [f'{each}=...' for each in known if known[each]]
  required += [f'**{each}' for each in further]
  optional = ', '.join(each for each in known if not known[each])
  call = f'{name or own}({", ".join(required)})'
  return call + f'; also {optional}' * bool(optional)


def unweighted(create: _Thing) -> _Thing:
  """Decorates `create` of a factory that TFF may take for a weighted one."""

  @functools.wraps(create)
  def checked(self, value_type, weight_type=None):
    if weight_type is not None:
      raise TypeError(
          f'{type(self).__name__} has no weights, because they are data of'
          ' clients\ntry: tff.aggregators.as_weighted_aggregator(...) around'
          ' it, or build_unweighted_fed_avg'
      )
    return create(self, value_type)

  return checked
