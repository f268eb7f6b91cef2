# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
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
