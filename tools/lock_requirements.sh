#!/usr/bin/env bash
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
#
# Resolves requirements.in under requirements.overrides into requirements.lock:
# every package with its hashes, no index addresses. Versions that the present
# lock has are kept where they still fit, so that a second run changes nothing;
# --upgrade takes the newest ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v uv >/dev/null; then
  echo 'error: uv was not found' >&2
  echo 'why: pip cannot resolve with overrides, which jaxlib needs' >&2
  echo 'try: install uv, for example with `pip install uv`' >&2
  exit 3
fi
uv pip compile --quiet requirements.in --override requirements.overrides \
  --python-version 3.11 --python-platform x86_64-manylinux_2_31 \
  --generate-hashes --no-header --no-annotate --no-emit-index-url \
  --no-emit-find-links --output-file requirements.lock "$@" >/dev/null
