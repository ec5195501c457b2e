// Everything the roofline says about a model on a device, as one JSON document: weights by
// precision, what fits, ceilings by batch, saturation, predictions with their held-out error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "econ/calibration.h"

namespace tare::econ {

struct RooflineQuestion {
  Deployment deployment;
  double input_tokens = 1024;
  double output_tokens = 256;
  double memory_share = 0.9;  // of the device's memory a server may use
  std::vector<double> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256};
};

nlohmann::json RooflineJson(const RooflineQuestion& question);
std::string RooflineText(const nlohmann::json& answer);

}  // namespace tare::econ
