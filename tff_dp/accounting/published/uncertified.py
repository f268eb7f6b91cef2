# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values that certify nothing, as a type that nothing takes for a number."""

import warnings


class PublishedFormulaWarning(UserWarning):
  """A formula was evaluated that does not hold; it certifies nothing."""


class UncertifiedValue:
  """What a formula that does not hold says. Not a number, on purpose.

  Conversion to a number, comparison and arithmetic raise `TypeError`.

  Attributes:
    formula: Where the formula is printed.
    flaw: Why it does not hold.
  """

  __slots__ = ('_value', 'formula', 'flaw')

  def __init__(self, value: float, *, formula: str, flaw: str):
    object.__setattr__(self, '_value', float(value))
    object.__setattr__(self, 'formula', formula)
    object.__setattr__(self, 'flaw', flaw)

  def insecure_float(self) -> float:
    """Returns the number, for a plot or a table that says UNCERTIFIED."""
    return self._value

  def __setattr__(self, name, value):
    raise AttributeError(f'{name!r} of an UncertifiedValue cannot be set')

  def __repr__(self) -> str:
    return f'UncertifiedValue({self._value:.6g}, {self.formula!r})'

  def __str__(self) -> str:
    return f'{self._value:.4g} (UNCERTIFIED)'

  def __format__(self, spec: str) -> str:
    if spec:
      _refuse()
    return str(self)

  def __reduce__(self):
    raise TypeError('an UncertifiedValue is not stored')


def _refuse(*unused_args, **unused_kwargs):
  raise TypeError(
      'an UncertifiedValue is not a number: the formula behind it does not'
      ' hold. Use a bound of tff_dp.accounting; for a plot, insecure_float().'
  )


_NUMERIC = (
    'float int index complex bool trunc floor ceil round array'
    ' eq ne lt le gt ge add sub mul truediv floordiv mod divmod pow matmul'
    ' radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rmatmul neg pos abs'
    ' hash array_ufunc'
).split()
for _name in _NUMERIC:
  setattr(UncertifiedValue, f'__{_name}__', _refuse)


def warned(value: float, formula: str, flaw: str) -> UncertifiedValue:
  """Returns the value of a formula, after a warning to the caller's caller."""
  warnings.warn(
      f'{formula} does not hold ({flaw}): the value certifies nothing.',
      PublishedFormulaWarning,
      stacklevel=3,
  )
  return UncertifiedValue(value, formula=formula, flaw=flaw)
