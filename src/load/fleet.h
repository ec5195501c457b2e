// Load from several processes, on this machine or on others: a coordinator that agents join. Each
// run goes to all of them, they start together, and their recordings are merged as if one process
// had made them.
//
//   coordinator (tare load URL --agents 4 …)          agent (tare load agent --join HOST:PORT)
//     challenge        ──────────────────────────►
//                      ◄──────────────────────────    hello: name, version, proof of the key
//     welcome          ──────────────────────────►
//     ping × 32        ◄─────────────────────────►    pong: the agent's monotonic clock
//     plan             ──────────────────────────►    makes prompts, reads data sets
//                      ◄──────────────────────────    ready
//     start            ──────────────────────────►    at a moment of the agent's own clock
//                      ◄──────────────────────────    progress, ten times a second
//     stop, finish     ──────────────────────────►
//                      ◄──────────────────────────    result: the recording
//
// Work is dealt in lanes, one per client thread of the whole fleet: user u and open-loop arrival i
// belong to lane u or i modulo lanes, every agent computes the whole schedule, nothing is shared
// while it runs. The clocks' offsets come from the ping of the shortest round trip and are known to
// half of it; the agents' times are brought to the coordinator's clock by them.
//
// An agent that is lost in a run costs its part of the recording; the run ends on time and is
// invalid. The key proves both sides to each other (HMAC-SHA-256); the traffic is not encrypted.
// The target's API key is never sent: each agent reads its own.
// Ownership: a Fleet owns its connections (and the local workers it started) and outlives its runs.
// Thread safety: one run at a time, from one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "load/generator.h"
#include "load/prompts.h"

namespace tare::load {

struct FleetOptions {
  int agents = 2;
  std::string host = "127.0.0.1";  // to listen on
  std::uint16_t port = 0;          // 0: any free one
  std::string key;                 // shared by all; empty: drawn, for workers of this machine
  Nanos patience = std::chrono::minutes(2);  // for all to join
  // Starts the agents itself: this program with `load agent --join …`; empty: they come from
  // elsewhere.
  std::string worker_program;
  std::string api_key;  // for workers started here, by their environment
};

// Everything an agent needs to send its part of a run.
struct FleetJob {
  RunPlan plan;        // in the coordinator's clock; `prompts` and `trace` are made by the agents
  RequestShape shape;  // its Authorization header is left out
  WorkloadSpec workload;
  TokenCalibration calibration;
};

struct AgentFacts {
  std::string name;
  int pid = 0, cores = 1, threads = 1;
  double clock_offset_s = 0, clock_uncertainty_s = 0;  // agent − coordinator, ± half a round trip
  double started_late_s = 0;                           // after the moment all were told
  std::uint64_t requests = 0;
  bool lost = false;
};

class Fleet {
 public:
  // Waits until all agents have joined and their clocks are known.
  static Result<std::unique_ptr<Fleet>> Gather(FleetOptions options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // `threads` wanted in all. The job's plan.start is moved on so that every agent hears of it in
  // time; the moved times are those of the returned plan.
  struct Started {
    std::unique_ptr<LoadSource> source;
    Nanos start{0}, window_begin{0}, window_end{0};
  };
  Result<Started> Start(FleetJob job, int threads);

  // Of the last run.
  const std::vector<AgentFacts>& agents() const;
  std::uint16_t port() const;

 private:
  struct Impl;
  explicit Fleet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct AgentOptions {
  std::string host;
  std::uint16_t port = 0;
  std::string key;
  std::string name;                          // empty: the machine's
  std::string api_key;                       // of the target
  Nanos patience = std::chrono::minutes(1);  // for the coordinator to be there
};

// Joins a coordinator and serves its runs until it hangs up. Blocking.
Status RunAgent(const AgentOptions& options);

// The workers' key and API key reach them by these variables of their environment.
inline constexpr const char* kAgentKeyVariable = "TARE_AGENT_KEY";
inline constexpr const char* kAgentApiKeyVariable = "TARE_AGENT_API_KEY";

}  // namespace tare::load
