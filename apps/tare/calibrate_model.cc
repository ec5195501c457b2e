#include "apps/tare/calibrate_model.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/rfc3339.h"
#include "kernels/limits.h"
#include "sim/calibrate.h"

namespace tare::app {

Result<sim::Calibration> CalibrateLocalModel(engine::LocalModelOptions options) {
  sim::CalibrationPlan plan;
  plan.max_num_seqs = options.engine.max_num_seqs;
  plan.max_num_batched_tokens = options.engine.max_num_batched_tokens;
  plan.prefill_chunk = options.engine.prefill_chunk;
  TARE_TRY(const engine::LocalModel local, engine::LoadLocalModel(std::move(options)));
  plan.max_model_len = local.engine->max_model_len();
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  sim::CalibrationProgress last;
  TARE_TRY(sim::Calibration calibration,
           sim::Calibrate(*local.engine, plan, [&](const sim::CalibrationProgress& now) {
             last = now;
             if (!terminal) return;
             std::fprintf(stderr, "\r\x1b[2Kcalibrating %d/%d: %s", now.done, now.all,
                          now.what.c_str());
           }));
  if (terminal) std::fputs("\r\x1b[2K", stderr);
  if (last.done < last.all) {
    LogWarn(
        "time was up after {} of {} points: the machine is slow or busy, and predictions from "
        "this calibration are coarse",
        last.done, last.all);
  }
  calibration.cpu = kernels::IdentifyCpu().name;
  calibration.threads = local.threads;
  calibration.model = local.name;
  calibration.dtype = kernels::ToString(local.dtype);
  calibration.measured_at = FormatRfc3339(std::chrono::system_clock::now());
  calibration.tare_version = TARE_VERSION;
  calibration.kv_tokens =
      local.kv_bytes_per_token > 0 ? local.kv_memory_bytes / local.kv_bytes_per_token : 0;
  return calibration;
}

}  // namespace tare::app
