// The client threads: each runs an event loop, sends its share of the arrivals, and records what
// comes back. Users (closed loop) belong to one thread each; open-loop arrival number i belongs to
// lane i mod n (a lane is a thread, of this process or another), and every thread computes the
// whole schedule, so there is nothing to share. A session of several turns stays on the thread it
// began on; in the open loop it is sessions that arrive, and their later turns follow the answers.
//
// Thread safety: Generator's methods are called by the thread that made it; Progress is a snapshot
// of counters the threads write.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "load/chunk_log.h"
#include "load/prompts.h"
#include "load/recorder.h"
#include "load/runner.h"
#include "load/trace.h"
#include "net/http_client.h"

namespace tare::load {

// How requests are written: everything but the prompt.
struct RequestShape {
  net::Url url;  // of the endpoint
  net::HttpHeaders headers;
  std::string head_json;  // '{"model":"m","stream":true,…' up to the prompt, no trailing comma
  bool chat = true;
  bool stream = true;
  bool exact_lengths = true;  // the server takes ignore_eos and min_tokens
  Nanos request_timeout{0};
  Nanos connect_timeout{0};
};

std::string MakeBody(const RequestShape& shape, const Prompt& prompt);

// The plan of a run in absolute monotonic time.
struct RunPlan {
  ArrivalSpec arrival;
  std::uint64_t seed = 0;
  std::uint64_t requests = 0;  // of the measured part; 0: until window_end
  Nanos start{0};
  Nanos window_begin{0};  // requests intended before are warm-up
  Nanos window_end{0};    // none is started after; Nanos::max(): until `requests`
  int threads = 1;
  // Work is dealt in lanes, one per thread of all processes: this one's threads are lanes
  // [first_lane, first_lane + threads) of `lanes`; 0: there is no other process.
  int first_lane = 0, lanes = 0;
  bool verify_tls = true;
  bool read_stamps = false;  // of the built-in pacing server
  bool sessions = false;     // requests of several turns
  const PromptSource* prompts = nullptr;
  ChunkLog* chunks = nullptr;  // every token-bearing chunk goes there; null: none. Not owned.
  std::shared_ptr<const Trace> trace;  // for ArrivalSpec::kTrace
};

struct GeneratorCounters {
  std::atomic<std::uint64_t> in_flight{0}, ok{0}, failed{0}, tokens{0};
  std::atomic<std::uint64_t> issued{0};    // measured requests so far (closed loop, by number)
  std::atomic<std::uint64_t> sessions{0};  // open ones, between two turns or in one
};

struct ThreadMeasurement {
  net::EventLoop::SelfMeasurement loop;
  Histogram receive_lag{7};  // ns between the kernel's receipt and ours
  double cpu_s = 0;
  double wall_s = 0;
  std::uint64_t schedule_wanted = 0;  // open-loop arrivals due in the window
  // Sessions of several turns: begun, ended after their last turn, ended by a failed turn. The
  // others were cut by the end of the run.
  std::uint64_t sessions_begun = 0, sessions_complete = 0, sessions_failed = 0;
};

// Where a run's load comes from: threads of this process, or a fleet of agents.
class LoadSource {
 public:
  virtual ~LoadSource() = default;
  // No request is started any more and none is in flight.
  virtual bool Idle() const = 0;
  // Starts no more requests.
  virtual void StopIssuing() = 0;
  struct Counts {
    std::uint64_t in_flight = 0, ok = 0, failed = 0, tokens = 0;
  };
  virtual Counts counts() const = 0;

  // Ends the threads; requests still in flight are recorded as unfinished. Then the recordings.
  struct Recording {
    Recorder recorder;
    std::vector<ThreadMeasurement> threads;
    std::vector<std::string> error_samples;  // a few messages, each once
    nlohmann::json agents;                   // of a fleet (fleet.h); null: this process
  };
  virtual Recording Finish() = 0;
};

class Generator final : public LoadSource {
 public:
  static Result<std::unique_ptr<Generator>> Start(RunPlan plan, RequestShape shape);
  ~Generator() override;
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  bool Idle() const override;
  void StopIssuing() override;
  Counts counts() const override;
  Recording Finish() override;

 private:
  struct Impl;
  explicit Generator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::load
