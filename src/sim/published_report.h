// What a comparison with published servers found, as text for a terminal and as JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "sim/published.h"

namespace tare::sim {

struct PublishedReport {
  std::span<const econ::MeasuredPoint> points;
  ServingEfficiency efficiency;
  PublishedError error;
  ReplayError replay;
};

nlohmann::json ToJson(const PublishedReport& report);
std::string Table(const PublishedReport& report);

}  // namespace tare::sim
