// What is kept of a run while it runs. Every client thread has a Recorder of its own and touches no
// other's, so recording takes no lock; they are merged when the run is over.
//
// A request costs one RequestRecord, a chunk only counts in histograms and per-second sums: memory
// grows with requests and seconds, not with tokens (10 million chunks of 100,000 requests: 15 MB).
// Thread safety: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/types.h"

namespace tare::load {

// Why a request failed. Names are stable: records and CSV files carry them.
enum class RequestError : std::uint8_t {
  kNone,
  kResolve,
  kConnectRefused,
  kConnectTimeout,
  kConnectFailed,
  kTls,
  kReset,
  kClosedEarly,
  kFirstByteTimeout,
  kIdleTimeout,
  kTotalTimeout,
  kBadResponse,
  kHttpStatus,   // an answer other than 200; named http_429 and so on
  kBadEvent,     // a chunk that is not JSON, or an event over the size limit
  kErrorEvent,   // the server reported an error in the stream
  kStreamCut,    // ended without finish_reason or [DONE]
  kNoTokens,     // ended well, but said nothing
  kUnfinished,   // still running when the drain time was over
  kClientLimit,  // the client could not send it
};
std::string ErrorName(RequestError error, int http_status);

enum class Phase : std::uint8_t { kWarmUp, kMeasured, kAfter };

struct RequestRecord {
  std::uint64_t index = 0;  // of the request; of the session when there are turns
  std::uint32_t turn = 0;   // within the session, from 0
  // Tokens of this prompt that the server saw in the turn before: its prompt and its answer.
  std::uint32_t seen_before = 0;
  // Monotonic; zero: never happened.
  Nanos intended{0};   // the arrival process wanted it to leave
  Nanos queued{0};     // the client picked it up
  Nanos connected{0};  // had a connection (TLS included)
  Nanos sent{0};       // just before its first byte was given to the kernel
  Nanos first_byte{0};
  Nanos first_token{0};
  Nanos last_token{0};
  Nanos end{0};
  Nanos longest_gap{0};                               // between two token-bearing chunks
  std::uint32_t wanted_input = 0, wanted_output = 0;  // tokens
  std::uint32_t told_input = 0, told_output = 0, told_cached = 0;  // by the server's usage
  std::uint32_t chunks = 0;                                        // token-bearing
  std::uint32_t counted_output = 0;                                // tokens in those chunks
  std::uint32_t other_chunks = 0;                                  // role, usage, keep-alive
  std::uint16_t http_status = 0;
  std::uint16_t thread = 0;
  RequestError error = RequestError::kNone;
  Phase phase = Phase::kMeasured;
  bool told_usage = false;
  bool reused_connection = false;
  bool resent = false;

  bool ok() const { return error == RequestError::kNone; }
  // Tokens of the answer: told when the server tells, counted otherwise.
  std::uint32_t output() const { return told_usage ? told_output : counted_output; }
};

// What happened in one second after the start.
struct SecondBucket {
  std::uint64_t started = 0, ok = 0, failed = 0;
  std::uint64_t tokens = 0, chunks = 0;
};

// Log-spaced latency bands of the heat map: kHeatBands from 0.1 ms, four to a doubling.
inline constexpr int kHeatBands = 88;
int HeatBand(Nanos latency);
// The lower edge of a band, seconds.
double HeatBandFloor(int band);

// Turns of a session beyond this are no record of ours.
inline constexpr std::uint32_t kMostTurns = 10'000;

class Recorder {
 public:
  static constexpr Nanos kFirstChunk{-1};
  // Tokens received from `window_begin` to before `window_end` are summed exactly.
  Recorder(Nanos start, Nanos window_begin, Nanos window_end)
      : start_(start), window_begin_(window_begin), window_end_(window_end) {}

  void Started(Nanos at) { ++Second(at).started; }
  void Ended(const RequestRecord& record);
  // A token-bearing chunk at `at`; `gap` is kFirstChunk for the first of an answer. `measured`: it
  // belongs to a request of the measured window.
  void Chunk(Nanos at, int tokens, Nanos gap, bool measured);

  // `count` chunks of one token at `at`, each `gap` after the one before of its answer, `measured`
  // of them of measured requests: a simulated step, at the cost of one chunk.
  void Chunks(Nanos at, std::uint64_t count, Nanos gap, std::uint64_t measured);

  // How far the recorded receipt of a chunk is from the true time it was sent (self-test).
  void TimingError(Nanos error) { timing_error_.Add(error.count()); }
  const Histogram& timing_error() const { return timing_error_; }

  Nanos start() const { return start_; }
  std::vector<RequestRecord>& requests() { return requests_; }
  const std::vector<RequestRecord>& requests() const { return requests_; }
  const Histogram& gaps() const { return gaps_; }
  std::uint64_t window_tokens() const { return window_tokens_; }
  const std::vector<SecondBucket>& seconds() const { return seconds_; }
  // Per second, the gaps by heat band.
  const std::vector<std::array<std::uint32_t, kHeatBands>>& gap_heat() const { return gap_heat_; }

  void Merge(Recorder&& other);
  // Moves every time by `by`: to the clock of another machine.
  void Shift(Nanos by);

  // All of it, to be carried to another process.
  struct State {
    Nanos start{0}, window_begin{0}, window_end{0};
    std::uint64_t window_tokens = 0;
    std::vector<RequestRecord> requests;
    Histogram gaps, timing_error;
    std::vector<SecondBucket> seconds;
    std::vector<std::array<std::uint32_t, kHeatBands>> gap_heat;
  };
  State state() const;
  explicit Recorder(State state);

 private:
  SecondBucket& Second(Nanos at);

  Nanos start_, window_begin_, window_end_;
  std::uint64_t window_tokens_ = 0;
  std::vector<RequestRecord> requests_;
  Histogram gaps_;
  Histogram timing_error_;
  std::vector<SecondBucket> seconds_;
  std::vector<std::array<std::uint32_t, kHeatBands>> gap_heat_;
};

}  // namespace tare::load
