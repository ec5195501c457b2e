// A job of the fleet as JSON. Internal to the fleet.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "load/fleet.h"

namespace tare::load {

// Of the messages of this file and of recording_wire.h; both ends must have the same.
inline constexpr int kFleetProtocol = 1;

// What of a job depends on the agent.
struct AgentPart {
  int first_lane = 0, lanes = 1, threads = 1;
  std::uint64_t requests = 0;  // closed loop: its share of a set number
};

nlohmann::json JobToJson(const FleetJob& job, const AgentPart& part);
// The plan's times are those of the coordinator.
Result<FleetJob> JobFromJson(const nlohmann::json& document, AgentPart& part);

}  // namespace tare::load
