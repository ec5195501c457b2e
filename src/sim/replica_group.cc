#include "sim/replica_group.h"

#include <algorithm>
#include <cmath>

#include "econ/memory.h"
#include "kernels/kv_pages.h"
#include "sim/efficiency.h"

namespace tare::sim {
namespace {

constexpr int kPage = kernels::kTokensPerPage;
// Defaults of vLLM for online serving on data-centre devices.
constexpr int kServerSequences = 256;
constexpr int kServerBatchedTokens = 8192;
// A pool of more tokens than this is never full; its bookkeeping would only take memory.
constexpr double kMostPoolTokens = 64e6;
// The step by which replicas are compared when no weight is given: a medium batch.
constexpr double kTypicalBatch = 16, kTypicalContext = 1024;

Result<econ::Precision> PrecisionNamed(const std::string& name) {
  if (auto precision = econ::FindPrecision(name)) return *precision;
  return Fail(ErrorKind::kInvalidArgument, "unknown precision '{}'; there are {}", name,
              fmt::join(econ::PrecisionNames(), ", "));
}

void SetPool(std::uint64_t kv_tokens, engine::SchedulerOptions& scheduler) {
  scheduler.pool.pages = static_cast<std::uint32_t>(kv_tokens / kPage);
}

BuiltGroup FromCalibration(const ReplicaPlan& plan, Calibration calibration, int longest_sequence) {
  BuiltGroup group;
  engine::SchedulerOptions& scheduler = group.spec.scheduler;
  scheduler.max_num_seqs = plan.max_num_seqs > 0 ? plan.max_num_seqs : calibration.max_num_seqs;
  scheduler.max_num_batched_tokens = plan.max_num_batched_tokens > 0
                                         ? plan.max_num_batched_tokens
                                         : calibration.max_num_batched_tokens;
  scheduler.prefill_chunk =
      plan.prefill_chunk >= 0 ? plan.prefill_chunk : calibration.prefill_chunk;
  scheduler.max_model_len = plan.max_model_len > 0          ? plan.max_model_len
                            : calibration.max_model_len > 0 ? calibration.max_model_len
                                                            : longest_sequence;
  // As the engine is set by default (engine.h).
  scheduler.batch_window = std::chrono::milliseconds(5);
  group.facts.kv_tokens = plan.kv_tokens.value_or(std::max<std::uint64_t>(
      calibration.kv_tokens, static_cast<std::uint64_t>(scheduler.max_model_len) + kPage));
  SetPool(group.facts.kv_tokens, scheduler);
  group.spec.overheads = {calibration.request_seconds, calibration.seconds_per_prompt_token,
                          calibration.reply_seconds};
  group.facts.model = calibration.model;
  group.facts.device = calibration.cpu;
  group.facts.weights = calibration.dtype;
  group.facts.usd_per_hour = plan.usd_per_hour.value_or(0);
  group.spec.step_time = std::make_shared<MeasuredStepTime>(std::move(calibration));
  return group;
}

Result<BuiltGroup> FromCatalog(const ReplicaPlan& plan, const econ::Catalog& catalog,
                               int longest_sequence) {
  econ::Deployment deployment;
  TARE_TRY(deployment.model, catalog.FindModel(plan.model));
  TARE_TRY(deployment.device, catalog.FindDevice(plan.device));
  TARE_TRY(deployment.weights, PrecisionNamed(plan.weights));
  TARE_TRY(deployment.cache, PrecisionNamed(plan.cache));
  deployment.devices = plan.devices;
  deployment.attention_replicas = plan.attention_replicas;
  if (econ::PeakFlopPerSecond(deployment.device, plan.weights) <= 0) {
    return Fail(ErrorKind::kUnsupported, "the catalogue has no {} peak for {}", plan.weights,
                deployment.device.name);
  }
  BuiltGroup group;
  engine::SchedulerOptions& scheduler = group.spec.scheduler;
  scheduler.max_num_seqs = plan.max_num_seqs > 0 ? plan.max_num_seqs : kServerSequences;
  scheduler.max_num_batched_tokens =
      std::max(scheduler.max_num_seqs, plan.max_num_batched_tokens > 0 ? plan.max_num_batched_tokens
                                                                       : kServerBatchedTokens);
  scheduler.prefill_chunk = std::max(0, plan.prefill_chunk);
  scheduler.batch_window = Nanos{0};
  scheduler.max_model_len = plan.max_model_len > 0 ? plan.max_model_len : longest_sequence + 1;

  const econ::MemoryFit fit = econ::FitMemory(
      deployment.model, deployment.weights, deployment.cache, deployment.device, deployment.devices,
      plan.memory_share, scheduler.max_num_batched_tokens, scheduler.max_num_seqs);
  const double fitting = std::min(fit.max_tokens, kMostPoolTokens);
  group.facts.kv_tokens =
      plan.kv_tokens.value_or(static_cast<std::uint64_t>(std::max(0.0, fitting)));
  if (!fit.weights_fit || group.facts.kv_tokens < static_cast<std::uint64_t>(kPage)) {
    return Fail(ErrorKind::kResourceExhausted,
                "{} at {} does not fit {} × {}: the weights take {:.1f} GB of {:.1f} GB usable; "
                "take more devices or a narrower precision",
                deployment.model.name, plan.weights, plan.devices, deployment.device.name,
                econ::WeightBytes(deployment.model, deployment.weights) / 1e9,
                fit.usable_bytes / 1e9);
  }
  if (group.facts.kv_tokens < static_cast<std::uint64_t>(scheduler.max_model_len)) {
    if (plan.max_model_len > 0) {
      return Fail(ErrorKind::kResourceExhausted,
                  "{} on {} × {}: the memory beside the weights holds {} tokens, fewer than "
                  "max_model_len {}",
                  deployment.model.name, plan.devices, deployment.device.name,
                  group.facts.kv_tokens, scheduler.max_model_len);
    }
    scheduler.max_model_len = static_cast<int>(group.facts.kv_tokens / kPage * kPage);
  }
  SetPool(group.facts.kv_tokens, scheduler);

  const ServingEfficiency efficiency = plan.efficiency.value_or(FittedEfficiency());
  group.spec.overheads = efficiency.overheads;
  group.spec.step_time = std::make_shared<RooflineStepTime>(
      deployment, efficiency.step, scheduler.max_num_batched_tokens, efficiency.step_overheads);
  group.facts.model = deployment.model.name;
  group.facts.device = deployment.device.name;
  group.facts.devices = plan.devices;
  group.facts.weights = plan.weights;
  group.facts.cache = plan.cache;
  group.facts.usd_per_hour =
      plan.usd_per_hour.value_or(deployment.device.price_usd_per_hour * plan.devices);
  return group;
}

// What does not depend on where step times come from.
Result<BuiltGroup> Complete(const ReplicaPlan& plan, BuiltGroup group) {
  group.facts.name = group.spec.name = plan.name;
  group.spec.replicas = plan.replicas;
  group.spec.scheduler.prefix_cache = plan.prefix_cache;
  group.spec.interactive = plan.interactive;
  group.spec.batch = plan.batch;
  group.spec.max_in_flight = plan.max_in_flight;
  group.spec.start_up = plan.start_up;
  group.spec.autoscale = plan.autoscale;
  group.spec.weight =
      plan.weight.value_or(1 / group.spec.step_time->Seconds(
                                   DecodeLoad(kTypicalBatch, kTypicalBatch * kTypicalContext)));
  // What the scheduler refuses is found before anything runs.
  TARE_RETURN_IF_ERROR(engine::Scheduler::Create(group.spec.scheduler));
  return group;
}

}  // namespace

Result<BuiltGroup> BuildGroup(const ReplicaPlan& plan, const econ::Catalog& catalog,
                              int longest_sequence) {
  if (!plan.calibration.empty()) {
    TARE_TRY(Calibration calibration, LoadCalibration(plan.calibration));
    return GroupOfCalibration(plan, std::move(calibration), longest_sequence);
  }
  TARE_TRY(BuiltGroup group, FromCatalog(plan, catalog, longest_sequence));
  return Complete(plan, std::move(group));
}

Result<BuiltGroup> GroupOfCalibration(const ReplicaPlan& plan, Calibration calibration,
                                      int longest_sequence) {
  return Complete(plan, FromCalibration(plan, std::move(calibration), longest_sequence));
}

}  // namespace tare::sim
