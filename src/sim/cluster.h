// Replicas behind a router, in virtual time: arrivals, routing, scaling, failures and drains.
//
// One queue of events (arrivals, deliveries, incidents, scaling ticks) and the replicas' own next
// steps; whatever comes first happens first, and equal times go commits, events, plans. The same
// spec gives the same result on every machine.
//
// What follows the gateway's rules: a request whose replica fails before its first token starts
// again on another one, with its clock running; after the first token the answer ends as an error.
// A request nobody accepts fails as HTTP 503, one that finds every queue full as 429.
//
// Thread safety: one Run at a time per call; nothing is shared.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "load/figures.h"
#include "load/recorder.h"
#include "sim/replica.h"
#include "sim/router.h"
#include "sim/traffic.h"

namespace tare::sim {

// Time outside the steps: between the client and the scheduler, and back.
struct Overheads {
  double request_seconds = 0;           // receive, parse, route
  double seconds_per_prompt_token = 0;  // tokenise, hash
  double reply_seconds = 0;             // from the end of a step to the client
};

// The rule of Kubernetes' horizontal pod autoscaler on requests in flight: as many replicas as
// bring each to the target, up at once, down to the most wanted of the last `down_after`.
struct Autoscale {
  int min = 1, max = 1;
  double target_in_flight = 16;  // a replica, waiting ones included
  Nanos every = std::chrono::seconds(15);
  Nanos down_after = std::chrono::minutes(5);
};

struct GroupSpec {  // equal replicas
  std::string name;
  int replicas = 1;  // at the start
  std::shared_ptr<const StepTime> step_time;
  engine::SchedulerOptions scheduler;
  Overheads overheads;
  double weight = 1;
  bool interactive = true, batch = true;  // tiers it serves
  int max_in_flight = 0;                  // a replica takes no more; 0: no limit
  Nanos start_up{};                       // from being wanted to serving
  std::optional<Autoscale> autoscale;
};

struct Incident {
  enum class Kind {
    kFail,   // what it was doing is lost; after `lasts` it starts up again
    kDrain,  // takes nothing new, ends what it has; after `lasts` it takes requests again
  };
  Kind kind = Kind::kFail;
  Nanos at{};
  std::size_t group = 0;
  int replica = 0;  // number within the group
  Nanos lasts{};
};

struct ClusterSpec {
  std::vector<GroupSpec> groups;
  RouterPolicy router = RouterPolicy::kLeastLoaded;
  std::vector<Incident> incidents;
  TrafficSpec traffic;
  Nanos duration{};            // of the measured window; 0: until `requests` are answered
  std::uint64_t requests = 0;  // 0: until `duration` has passed, or the trace has ended
  Nanos warm_up{};
  Nanos drain = std::chrono::seconds(30);  // how long answers may take after the window
  bool fast_forward = true;
};

struct GroupOutcome {
  std::uint64_t requests = 0, output_tokens = 0;  // answered
  std::uint64_t steps = 0, preemptions = 0;
  std::uint64_t prefix_queries = 0, prefix_hits = 0;  // tokens
  double busy_seconds = 0;                            // in steps
  double replica_seconds = 0;                         // paid for: from start-up to the end
  int most_replicas = 0;
  std::size_t most_in_system = 0;  // of one replica
  std::uint32_t most_pages = 0;    // in use by one replica
  std::uint32_t pages = 0;         // of each
};

struct ReplicaChange {
  Nanos at{};
  std::size_t group = 0;
  int serving = 0;
};

struct Outcome {
  load::Recorder recorder;
  load::Window window;
  std::vector<GroupOutcome> groups;
  std::vector<ReplicaChange> changes;
  std::uint64_t rerouted = 0;
  std::string refusal;  // a scheduler's reason for refusing a request; empty: none was
  bool cancelled = false;
};

struct SimProgress {
  double virtual_s = 0;
  double share = 0;  // of the run, when known
  std::uint64_t ended = 0;
};
// Called now and then; true ends the simulation early.
using SimProgressCallback = std::function<bool(const SimProgress&)>;

Result<Outcome> RunCluster(const ClusterSpec& spec, const SimProgressCallback& progress);

}  // namespace tare::sim
