// From what a user names (a model, a device, a precision, or a calibration) to a group of replicas
// that can be simulated: step times, the size of the KV pool, the scheduler's limits, prices.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "econ/catalog.h"
#include "sim/cluster.h"
#include "sim/efficiency.h"
#include "sim/measured_step_time.h"

namespace tare::sim {

struct ReplicaPlan {
  std::string name;
  int replicas = 1;
  // A model on devices of the catalogue,
  std::string model, device;
  int devices = 1;
  int attention_replicas = 1;
  std::string weights = "bf16", cache = "bf16";
  double memory_share = 0.9;                    // of the devices' memory
  std::optional<ServingEfficiency> efficiency;  // absent: the fitted one
  std::optional<std::uint64_t> kv_tokens;       // absent: what fits beside the weights
  // or an engine measured with `tare bench --calibrate`.
  std::filesystem::path calibration;
  // The scheduler; 0: as the calibration says, or as servers of such devices are set by default.
  int max_num_seqs = 0, max_num_batched_tokens = 0, max_model_len = 0;
  int prefill_chunk = -1;  // -1: as above; 0: no limit
  bool prefix_cache = true;
  // Its place in the cluster.
  std::optional<double> weight;  // absent: from its speed
  bool interactive = true, batch = true;
  int max_in_flight = 0;
  Nanos start_up{};
  std::optional<Autoscale> autoscale;
  std::optional<double> usd_per_hour;  // of one replica; absent: the devices' price
};

struct GroupFacts {  // for the record and the report
  std::string name, model, device;
  int devices = 1;
  std::string weights, cache;
  double usd_per_hour = 0;  // of one replica; 0: not known
  std::uint64_t kv_tokens = 0;
};

struct BuiltGroup {
  GroupSpec spec;
  GroupFacts facts;
};

// `longest_sequence`: tokens of the traffic's longest prompt and answer; the default of
// max_model_len.
Result<BuiltGroup> BuildGroup(const ReplicaPlan& plan, const econ::Catalog& catalog,
                              int longest_sequence);

// The same of a calibration at hand; plan.calibration is not read.
Result<BuiltGroup> GroupOfCalibration(const ReplicaPlan& plan, Calibration calibration,
                                      int longest_sequence);

}  // namespace tare::sim
