# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory that TensorFlow frees stays with the process, for the next tensors.

By default the C library gives large blocks back to the system when they are
freed. The system then clears pages for the next tensor, which can take longer
than the work on it.
"""

import ctypes
import functools
import os

# Numbers of parameters in <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The largest that the GNU C library takes. Larger blocks still go back at once.
_LARGEST_KEPT_BLOCK = 32 * 2**20
# More free memory than this at the end of a heap goes back.
_MOST_KEPT_AT_END = 2**30
_CHOICES = ('MALLOC_', 'GLIBC_TUNABLES', 'LD_PRELOAD')


@functools.cache
def keep() -> bool:
  """Keeps freed blocks of up to 32 MiB. Once a process.

  At the end of a heap 1 GiB is kept at most. Below a block in use there is no
  bound, as without this function.

  Returns:
    Whether it did. It does nothing with another C library than GNU's, or if
    the environment already has a choice.
  """
  if any(name.startswith(_CHOICES) for name in os.environ):
    return False
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (AttributeError, OSError, TypeError):
    return False
  # A new threshold for one switches off that both grow by themselves.
  return bool(
      mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BLOCK)
      and mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT_AT_END)
  )
