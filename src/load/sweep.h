// The same load at several numbers of users, against one server or several (models, precisions):
// SPEC rows LT1, LT5 and LT6 in one command. Every point is a run record.
//
// A variant is a server that runs already, or a command that is started before its points and
// ended after them, so that two variants never share the machine. Blocking; one sweep at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "load/runner.h"

namespace tare::load {

struct SweepVariant {
  std::string label;
  std::string url;                   // with a command: once it runs
  std::string model;                 // empty: the first the server lists
  std::vector<std::string> command;  // empty: the server runs already
};

// "8bit=http://127.0.0.1:8001" or a bare URL, which is its own label ("127.0.0.1:8001").
Result<SweepVariant> ParseVariant(const std::string& text);

// Tare's own server for each of "bf16,int8,int4": `program` serve `model` --dtype D on a port of
// its own.
Result<std::vector<SweepVariant>> ServeVariants(const std::string& program,
                                                const std::string& model,
                                                const std::string& dtypes);

// "1,2,4,8", each 1 to 1000000.
Result<std::vector<int>> ParseUsers(const std::string& text);

struct SweepPoint {
  std::size_t variant = 0;
  int users = 0;
  store::RunRecord record;
  double per_user = 0;    // output tokens/s ÷ users
  bool on_front = false;  // no other valid point has both more per user and more in total
  // Against the first variant at the same number of users; empty for the first variant itself.
  struct Against {
    std::string metric;  // "output_tokens_per_s", "e2e_p99_s", …
    double ratio = 0, low = 0, high = 0;
    std::string verdict;  // of Compare
  };
  std::vector<Against> against;
};

struct SweepResult {
  std::vector<SweepVariant> variants;
  std::vector<SweepPoint> points;   // by variant, then as asked
  std::vector<std::string> failed;  // "int4: why it has no points"
  bool valid() const;               // every point is, and none is missing
};

struct SweepHooks {
  std::function<Result<store::RunRecord>(const LoadOptions&)> run;  // RunLoad when empty
  std::function<Result<std::string>(const store::RunRecord&)> keep;
  std::function<void(const std::string&)> say;
  std::function<bool()> cancelled;
};

// `options` describe the load but for users and target. A variant whose server does not start or
// answer is named in `failed`; an error is returned when no variant has a point.
Result<SweepResult> RunSweep(const LoadOptions& options, const std::vector<int>& users,
                             std::vector<SweepVariant> variants, const SweepHooks& hooks);

// Marks the points that no other valid point beats in both throughputs. Pure.
void MarkFront(std::vector<SweepPoint>& points);

std::string SweepTable(const SweepResult& result);
nlohmann::json SweepJson(const SweepResult& result);  // schema tare.sweep/1
std::string SweepPage(const SweepResult& result);     // self-contained HTML

}  // namespace tare::load
