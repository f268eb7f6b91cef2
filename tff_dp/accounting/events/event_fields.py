# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Numeric fields of events: Python numbers, checked when an event is made."""

import numbers

import attr
import numpy as np

from tff_dp import _checks


def real(check, *bounds, **options):
  """Returns a field for numbers that a function of `_checks` allows."""
  return _field(_real_number, check, *bounds, **options)


def count(least: int, **options):
  """Returns a field for integers from `least` on."""
  return _field(_number, _checks.integer_at_least, least, **options)


def _field(converter, check, *bounds, **options):
  """Returns a numeric field that a function of `_checks` guards."""

  def validate(unused_event, attribute, value):
    check(*bounds, **{attribute.name: value})

  return attr.ib(converter=converter, validator=validate, **options)


def _number(value):
  """Returns a Python number where a value is one; checks come afterwards."""
  if isinstance(value, np.ndarray) and value.ndim == 0:
    value = value[()]
  if isinstance(value, np.generic) and isinstance(value, numbers.Number):
    return value.item()
  return value


def _real_number(value):
  value = _number(value)
  is_integer = isinstance(value, int) and not isinstance(value, bool)
  return float(value) if is_integer else value
