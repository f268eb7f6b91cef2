# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Argument checks whose message and condition cannot drift apart.

Every check takes the argument by keyword, so that the error can name it:
`_checks.positive(noise_multiplier=value)`. A message has the form
`noise_multiplier=-1.0 is not allowed: expected a finite number above 0.`
"""

import collections
from collections.abc import Collection, Iterable, Mapping
import dataclasses
import math
import numbers
from typing import Any


# Most characters of a value in a message.
_MOST_SHOWN = 500
# Limit of rounds, more than any run has. The accounting of far more would not
# end.
MOST_ROUNDS = 10**7


def printable(text: str) -> str:
  """Returns a text in one line that is safe to show in a terminal.

  Names and ids may come from strangers. So control characters, ends of lines,
  marks of direction and lone surrogates become escapes.
  """
  if text.isprintable():
    return text
  return ''.join(
      c if c.isprintable() else c.encode('unicode_escape').decode()
      for c in text
  )


def shown(value) -> str:
  """Returns the `repr` of a value in one line, shortened if it is long."""
  text = printable(repr(value))
  return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '...'


class PrivacyRefusedError(Exception):
  """A request that would break the guarantee, with the way out.

  Attributes:
    what: Refused request, in one sentence.
    why: Rule that forbids it.
    way_out: Alternative for the caller.
  """

  def __init__(self, what: str, *, why: str, way_out: str):
    what, why, way_out = map(printable, (what, why, way_out))
    super().__init__(f'{what}\nwhy: {why}\ntry: {way_out}')
    self.what = what
    self.why = why
    self.way_out = way_out


class ArgumentError(ValueError):
  """A value outside the allowed range of an argument.

  Attributes:
    argument: Name of the argument, as in the Python signature.
    value: Value that was given.
    allowed: Allowed values, as the end of a sentence.
    why: Reason, as a line of its own, or ''.
    way_out: Alternative for the caller, as a line of its own, or ''.
  """

  def __init__(
      self,
      argument: str,
      value,
      allowed: str,
      *,
      why: str = '',
      way_out: str = '',
  ):
    argument, allowed = printable(argument), printable(allowed)
    why, way_out = printable(why), printable(way_out)
    lines = [f'{argument}={shown(value)} is not allowed: expected {allowed}.']
    lines += [f'why: {why}'] * bool(why) + [f'try: {way_out}'] * bool(way_out)
    super().__init__('\n'.join(lines))
    self.argument = argument
    self.value = value
    self.allowed = allowed
    self.why = why
    self.way_out = way_out

  def __reduce__(self):
    # The value stays behind: a model, for example, cannot be pickled.
    facts = {**vars(self), 'value': None}
    return _remade, (type(self), str(self), facts)

  def renamed(self, argument: str, value=None) -> 'ArgumentError':
    """Returns the same error about an argument of another name.

    Args:
      argument: The other name.
      value: The value under that name. Default: the same value.
    """
    return ArgumentError(
        argument,
        self.value if value is None else value,
        self.allowed,
        why=self.why,
        way_out=self.way_out,
    )


def _remade(kind, message: str, facts) -> ArgumentError:
  """Returns an error that another process raised, without its value."""
  error = kind.__new__(kind, message)
  vars(error).update(facts)
  return error


# Squares of clipped numbers, and of the noise, must fit into float32. A smaller
# norm is rounded to zero and clips nothing. A larger one is infinite.
CLIP_NORMS = (1e-15, 1e15)
# A larger delta promises nothing: publishing one client in ten would satisfy
# it.
_MAX_DELTA = 0.1
# Shares of a smaller delta, or squares of a smaller probability, would be 0 in
# floats.
_MIN_DELTA = 1e-300
_MIN_PROBABILITY = 1e-100


def _single(arguments: Mapping[str, Any]) -> tuple[str, Any]:
  (item,) = arguments.items()
  return item


def _is_real(value) -> bool:
  # Bools are integers in Python, but never a quantity here.
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_integer(value) -> bool:
  return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def positive(**argument) -> None:
  """Raises unless the argument is a finite number above 0 (NaN fails)."""
  name, value = _single(argument)
  if not _is_real(value) or not 0 < value < math.inf:
    raise ArgumentError(name, value, 'a finite number above 0')


def non_negative(**argument) -> None:
  """Raises unless the argument is a finite number of at least 0."""
  name, value = _single(argument)
  if not _is_real(value) or not 0 <= value < math.inf:
    raise ArgumentError(name, value, 'a finite number of at least 0')


def in_open(low: float, high: float, **argument) -> None:
  """Raises unless `low < argument < high`."""
  name, value = _single(argument)
  if not _is_real(value) or not low < value < high:
    raise ArgumentError(
        name, value, f'a number strictly between {low:g} and {high:g}'
    )


def in_half_open(low: float, high: float, **argument) -> None:
  """Raises unless `low <= argument < high`."""
  name, value = _single(argument)
  if not _is_real(value) or not low <= value < high:
    raise ArgumentError(
        name, value, f'a number of at least {low:g} and below {high:g}'
    )


def in_closed(low: float, high: float, **argument) -> None:
  """Raises unless `low <= argument <= high`."""
  name, value = _single(argument)
  if not _is_real(value) or not low <= value <= high:
    raise ArgumentError(name, value, f'a number from {low:g} to {high:g}')


def integer_at_least(low: int, **argument) -> None:
  """Raises unless the argument is an integer of at least `low`."""
  name, value = _single(argument)
  if not _is_integer(value) or value < low:
    raise ArgumentError(name, value, f'an integer of at least {low}')


def integer_between(low: int, high: int, **argument) -> None:
  """Raises unless the argument is an integer with `low <= it <= high`."""
  name, value = _single(argument)
  if not _is_integer(value) or not low <= value <= high:
    raise ArgumentError(name, value, f'an integer from {low} to {high}')


def optional_integer_at_least(low: int, **argument) -> None:
  """Like `integer_at_least`, but `None` passes."""
  _, value = _single(argument)
  if value is not None:
    integer_at_least(low, **argument)


def client_key(client_id: str | bytes) -> bytes:
  """Returns the bytes that identify a client: 'a' and b'a' are the same.

  Raises:
    ArgumentError: If UTF-8 cannot encode the id.
    TypeError: If the id is neither `str` nor `bytes`.
  """
  if isinstance(client_id, str):
    try:
      return client_id.encode()
    except UnicodeEncodeError:
      # A lone surrogate: half of a pair of 16-bit characters.
      raise ArgumentError(
          'client_id',
          client_id,
          'an id that UTF-8 can encode; this one has half a surrogate pair',
      ) from None
  if isinstance(client_id, bytes):
    return bytes(client_id)
  raise TypeError(
      f'a client id must be str or bytes, found {type(client_id).__name__}; try'
      ' str(client_id), the same string in every round.'
  )


def distinct_clients(**argument: Iterable[str | bytes]) -> None:
  """Raises unless the ids in the argument belong to different clients.

  A client that is listed twice would take part twice, and would count as two
  clients where a guarantee needs a crowd.
  """
  name, client_ids = _single(argument)
  keys = [client_key(client_id) for client_id in client_ids]
  if len(set(keys)) < len(keys):
    ((key, count),) = collections.Counter(keys).most_common(1)
    raise ArgumentError(
        name,
        key.decode(errors='replace'),
        f'each client once; this one is listed {count} times',
    )


def instance_of(kind, allowed: str, **argument) -> None:
  """Raises unless the argument is an instance of a class.

  Args:
    kind: The class, or a tuple of allowed classes.
    allowed: Expected input, as the end of a sentence.
    **argument: The argument, by its name.
  """
  name, value = _single(argument)
  if not isinstance(value, kind):
    raise ArgumentError(name, value, allowed)


def python_number(value):
  """Returns a NumPy scalar, or array without axes, as a Python number.

  Any other value is returned as it is.
  """
  is_numpy = type(value).__module__ == 'numpy' and hasattr(value, 'item')
  if is_numpy and value.ndim == 0 and value.dtype.kind in 'biuf':
    return value.item()
  return value


def take_python_numbers(spec) -> None:
  """Replaces NumPy numbers in a dataclass by Python numbers.

  NumPy numbers pass the checks of this module. But JSON does not accept them,
  and some of them lack methods of Python numbers.

  Args:
    spec: The dataclass, from its `__post_init__`. It may be frozen.
  """
  for field in dataclasses.fields(spec):
    value = getattr(spec, field.name)
    found = python_number(value)
    if found is not value:
      object.__setattr__(spec, field.name, found)


def clip_norm(**argument) -> None:
  """Raises unless the argument is within `CLIP_NORMS`, where float32 can clip.
  """
  in_closed(*CLIP_NORMS, **argument)


def delta(**argument) -> None:
  """Raises unless the argument is above 0 and at most 0.1.

  A larger delta promises almost nothing. A delta below 1e-300 is refused, too.

  The check is for a delta that is stated or planned. A privacy profile accepts
  every delta.
  """
  name, value = _single(argument)
  if not _is_real(value) or not 0 < value <= _MAX_DELTA:
    raise ArgumentError(
        name,
        value,
        f'a number above 0 and at most {_MAX_DELTA:g}, and well below'
        ' 1 / population: with probability delta everything about a client may'
        ' come out',
    )
  if value < _MIN_DELTA:
    raise ArgumentError(
        name,
        value,
        f'at least {_MIN_DELTA:g}, because floats hold no share of it',
    )


def probability(**argument) -> None:
  """Raises unless the argument is 0, or from 1e-100 to 1."""
  in_closed(0.0, 1.0, **argument)
  name, value = _single(argument)
  if 0 < value < _MIN_PROBABILITY:
    raise ArgumentError(
        name,
        value,
        f'0 or at least {_MIN_PROBABILITY:g}, because floats hold no square of'
        ' it',
    )


def one_of(choices: Collection, **argument) -> None:
  """Raises unless the argument is one of `choices`."""
  name, value = _single(argument)
  if value not in choices:
    listed = ', '.join(repr(choice) for choice in choices)
    raise ArgumentError(name, value, f'one of {listed}')
