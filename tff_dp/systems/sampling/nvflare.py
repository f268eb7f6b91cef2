# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""An NVFlare controller that follows a `SamplingPlan`. Checked against 2.9.

    np.savez('model.npz', w=w)
    controller = nvflare.SamplingController(
        plan, '/data/model.npz', output_dir='/data/run', delta=1e-6)
    job = FedJob('private')
    job.set_app_packages(['tff_dp'])  # Installed, not copied into the job.
    job.to_server(controller)
"""

from tff_dp.integrations import nvflare_controller


class SamplingController(nvflare_controller.PlanController):
  """A controller for a `SamplingPlan`, see base class."""
