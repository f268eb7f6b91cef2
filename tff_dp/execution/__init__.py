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
"""Where TFF computations run: contexts that own what they start."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp.execution import devices
from tff_dp.execution.contexts import create_native_context
from tff_dp.execution.contexts import NativeContext
from tff_dp.execution.contexts import set_async_in_process_context
from tff_dp.execution.contexts import set_default_context
from tff_dp.execution.contexts import set_sync_in_process_context
from tff_dp.execution.errors import ClientComputationError
from tff_dp.execution.errors import ContextClosedError
from tff_dp.execution.errors import SeededClientOpWarning
from tff_dp.execution.errors import UnsupportedComputationError
from tff_dp.execution.in_process import AsyncInProcessContext
from tff_dp.execution.in_process import create_async_in_process_context
from tff_dp.execution.in_process import create_sync_in_process_context
from tff_dp.execution.in_process import InProcessContext
from tff_dp.execution.native import NativeWorker
from tff_dp.execution.native import NativeWorkerError

# Early, because the number is fixed once TensorFlow has computed anything.
devices.allow_waiting_threads()
