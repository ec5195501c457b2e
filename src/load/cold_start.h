// Cold start (SPEC LT4): how long from starting a server's process to its first token, stage by
// stage, over several starts, and how that compares with a warm request.
//
//   listening    the port takes connections
//   ready        /ready (or /health) answers 200
//   first_token  of a first streamed request, sent as soon as it is ready
//
// Each start begins when the process before it has ended. The page cache is as the machine has it:
// the record says so, for a checkpoint read from disk and one from memory are two different things.
// Blocking. Thread safety: one run at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace tare::load {

struct ColdStartOptions {
  std::vector<std::string> command;  // program and arguments; looked up in PATH
  std::string url;                   // where it will listen
  std::string model;                 // empty: the first it lists
  int times = 5;
  int warm_requests = 5;
  Nanos deadline = std::chrono::minutes(5);  // of one start
  int input_tokens = 32, output_tokens = 8;
};

struct ColdStart {  // seconds after the process was started
  double listening = 0, ready = 0, first_token = 0;
  double cold_ttft = 0;  // of the first request: first token − sent
  double warm_ttft = 0;  // median of the requests after it
  std::uint64_t rss_bytes = 0;
  std::map<std::string, double> told;  // the server's own stages, when /metrics tells them
};

struct ColdStartResult {
  std::vector<ColdStart> starts;
};

Result<ColdStartResult> MeasureColdStart(const ColdStartOptions& options);

std::string ColdStartTable(const ColdStartResult& result);
std::string ColdStartJson(const ColdStartResult& result);

}  // namespace tare::load
