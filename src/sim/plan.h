// The file of `tare sim`: traffic, replicas, router, what happens to them (schema tare.sim/1;
// docs/SIMULATION.md describes every key).
//
// Reads no files but those the plan names (trace, calibration), relative to the plan's folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "econ/catalog.h"
#include "load/runner.h"
#include "sim/cluster.h"
#include "sim/replica_group.h"

namespace tare::sim {

struct SimPlan {
  std::string name;
  ClusterSpec cluster;
  load::ServiceLevels levels;
  std::vector<GroupFacts> facts;  // beside cluster.groups
};

Result<SimPlan> ParseSimPlan(std::string_view text, const std::string& source,
                             const std::filesystem::path& folder, const econ::Catalog& catalog);
Result<SimPlan> LoadSimPlan(const std::filesystem::path& path, const econ::Catalog& catalog);

// The keys of one group of replicas, as plans of `tare sim` and `tare advise` have them.
ReplicaPlan ReadReplicaPlan(const config::Value& value, const std::filesystem::path& folder);

}  // namespace tare::sim
