// The real bench: servers started on this machine or reached by URL, load from load::RunLoad, every
// record kept in the store.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "advise/advise.h"
#include "load/local_server.h"
#include "store/run_store.h"

namespace tare::advise {

struct LiveBenchOptions {
  std::string program;            // the tare binary
  std::filesystem::path log_dir;  // the servers' logs: CANDIDATE-rROUND.log
  std::string plan_name;
  std::function<void(const load::LoadProgress&)> on_progress;  // may be empty
  std::function<bool()> cancelled;                             // may be empty
};

// Ownership: the bench owns the server it runs and the store's connection. Not thread-safe.
class LiveBench final : public Bench {
 public:
  LiveBench(LiveBenchOptions options, store::RunStore store);

  Result<std::optional<double>> Open(const Candidate& candidate, int round) override;
  Result<store::RunRecord> Measure(const Candidate& candidate, const LoadPlan& load, double level,
                                   int round) override;
  Status Close(const Candidate& candidate) override;
  Result<std::vector<store::RunRecord>> Stored(const Candidate& candidate) override;

 private:
  LiveBenchOptions options_;
  store::RunStore store_;
  std::optional<load::LocalServer> server_;
};

// The options of one measurement; pure.
load::LoadOptions LoadOptionsFor(const Candidate& candidate, const LoadPlan& load, double level,
                                 int round);

}  // namespace tare::advise
