// What is asked of a target before a run: which model it serves, which request fields it takes, and
// how its tokenizer counts our words. Blocking; a handful of small requests.
#pragma once

#include <string>

#include "base/result.h"
#include "load/generator.h"
#include "load/prompts.h"
#include "load/runner.h"

namespace tare::load {

struct Target {
  net::Url base;  // without /v1
  std::string model;
  RequestShape shape;
  TokenCalibration calibration;
  std::string server;  // the Server header of its answers; may be empty
};

// "http://host:port", "…/v1" and "…/v1/chat/completions" all name the same base.
Result<net::Url> ParseTargetUrl(const std::string& text);

Result<Target> ProbeTarget(const LoadOptions& options);

}  // namespace tare::load
