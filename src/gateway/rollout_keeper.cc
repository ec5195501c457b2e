#include "gateway/rollout_keeper.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/files.h"
#include "base/log.h"

namespace tare::gateway {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = 64 << 20;

}  // namespace

void RolloutKeeper::Adopt(const std::vector<std::shared_ptr<Rollout>>& rollouts) {
  std::error_code error;
  json saved = json::array();
  if (std::filesystem::exists(file_, error)) {
    const auto text = ReadFile(file_, kMaxBytes);
    saved = json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
    if (!saved.is_array()) {
      LogWarn("'{}' cannot be read; roll-outs begin anew", file_.string());
      saved = json::array();
    }
  }
  for (const std::shared_ptr<Rollout>& rollout : rollouts) {
    if (!known_.insert(rollout).second) continue;
    const std::string model = rollout->Report().model;
    for (const json& entry : saved) {
      if (!entry.is_object() || entry.value("model", json()) != model) continue;
      const Status restored = rollout->Restore(entry);
      if (!restored) LogWarn("roll-out of '{}': {}", model, restored.error().message);
    }
  }
}

void RolloutKeeper::Tend(const std::vector<std::shared_ptr<Rollout>>& rollouts) {
  if (rollouts.empty()) return;
  std::uint64_t version = 0;
  json document = json::array();
  for (const std::shared_ptr<Rollout>& rollout : rollouts) {
    rollout->Judge();
    version += rollout->version();
    const RolloutReport report = rollout->Report();
    if (report.state != RolloutState::kRunning && decided_.insert(report.model).second) {
      LogInfo("roll-out of '{}': {} ({}), after {} canary and {} baseline answers", report.model,
              ToString(report.state), report.because, report.canary_samples,
              report.baseline_samples);
    }
  }
  if (version == saved_version_) return;
  for (const std::shared_ptr<Rollout>& rollout : rollouts) document.push_back(rollout->Save());
  const Status written = WriteFileAtomic(file_, document.dump());
  if (written) saved_version_ = version;
  if (!written && !failed_) {
    LogWarn("roll-outs are not kept: {}; a restart would begin them anew", written.error().message);
  }
  failed_ = !written;
}

}  // namespace tare::gateway
