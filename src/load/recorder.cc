#include "load/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tare::load {
namespace {

constexpr double kHeatFloorSeconds = 1e-4;
constexpr double kBandsPerDoubling = 4;
// A clock gone wild must not make a table of a million years.
constexpr std::size_t kMostSeconds = 7 * 24 * 3600;

std::size_t SecondsSince(Nanos start, Nanos at) {
  const auto seconds = std::max<std::int64_t>(0, (at - start).count()) / 1'000'000'000;
  return std::min(static_cast<std::size_t>(seconds), kMostSeconds);
}

}  // namespace

std::string ErrorName(RequestError error, int http_status) {
  switch (error) {
    case RequestError::kNone:
      return "none";
    case RequestError::kResolve:
      return "resolve";
    case RequestError::kConnectRefused:
      return "connect_refused";
    case RequestError::kConnectTimeout:
      return "connect_timeout";
    case RequestError::kConnectFailed:
      return "connect_failed";
    case RequestError::kTls:
      return "tls";
    case RequestError::kReset:
      return "reset";
    case RequestError::kClosedEarly:
      return "closed_early";
    case RequestError::kFirstByteTimeout:
      return "first_byte_timeout";
    case RequestError::kIdleTimeout:
      return "idle_timeout";
    case RequestError::kTotalTimeout:
      return "total_timeout";
    case RequestError::kBadResponse:
      return "bad_response";
    case RequestError::kHttpStatus:
      return fmt::format("http_{}", http_status);
    case RequestError::kBadEvent:
      return "bad_event";
    case RequestError::kErrorEvent:
      return "error_event";
    case RequestError::kStreamCut:
      return "stream_cut";
    case RequestError::kNoTokens:
      return "no_tokens";
    case RequestError::kUnfinished:
      return "unfinished";
    case RequestError::kClientLimit:
      return "client_limit";
  }
  return "unknown";
}

int HeatBand(Nanos latency) {
  const double seconds = ToSeconds(latency);
  if (seconds <= kHeatFloorSeconds) return 0;
  const double band = std::log2(seconds / kHeatFloorSeconds) * kBandsPerDoubling;
  return std::clamp(static_cast<int>(band), 0, kHeatBands - 1);
}

double HeatBandFloor(int band) {
  return kHeatFloorSeconds * std::exp2(static_cast<double>(band) / kBandsPerDoubling);
}

SecondBucket& Recorder::Second(Nanos at) {
  const std::size_t second = SecondsSince(start_, at);
  if (second >= seconds_.size()) seconds_.resize(second + 1);
  return seconds_[second];
}

void Recorder::Ended(const RequestRecord& record) {
  SecondBucket& second = Second(record.end);
  ++(record.ok() ? second.ok : second.failed);
  requests_.push_back(record);
}

void Recorder::Chunk(Nanos at, int tokens, Nanos gap, bool measured) {
  SecondBucket& second = Second(at);
  second.tokens += static_cast<std::uint64_t>(tokens);
  ++second.chunks;
  if (at >= window_begin_ && at < window_end_) {
    window_tokens_ += static_cast<std::uint64_t>(tokens);
  }
  if (gap == kFirstChunk) return;
  if (measured) gaps_.Add(gap.count());
  const std::size_t index = SecondsSince(start_, at);
  if (index >= gap_heat_.size()) gap_heat_.resize(index + 1);
  ++gap_heat_[index][static_cast<std::size_t>(HeatBand(gap))];
}

void Recorder::Chunks(Nanos at, std::uint64_t count, Nanos gap, std::uint64_t measured) {
  SecondBucket& second = Second(at);
  second.tokens += count;
  second.chunks += count;
  if (at >= window_begin_ && at < window_end_) window_tokens_ += count;
  gaps_.Add(gap.count(), measured);
  const std::size_t index = SecondsSince(start_, at);
  if (index >= gap_heat_.size()) gap_heat_.resize(index + 1);
  gap_heat_[index][static_cast<std::size_t>(HeatBand(gap))] += static_cast<std::uint32_t>(count);
}

void Recorder::Shift(Nanos by) {
  start_ += by;
  window_begin_ += by;
  if (window_end_ != Nanos::max()) window_end_ += by;
  for (RequestRecord& record : requests_) {
    for (Nanos* at : {&record.intended, &record.queued, &record.connected, &record.sent,
                      &record.first_byte, &record.first_token, &record.last_token, &record.end}) {
      if (*at != Nanos(0)) *at += by;  // zero: never happened
    }
  }
}

Recorder::State Recorder::state() const {
  return {start_, window_begin_, window_end_, window_tokens_, requests_,
          gaps_,  timing_error_, seconds_,    gap_heat_};
}

Recorder::Recorder(State state)
    : start_(state.start),
      window_begin_(state.window_begin),
      window_end_(state.window_end),
      window_tokens_(state.window_tokens),
      requests_(std::move(state.requests)),
      gaps_(std::move(state.gaps)),
      timing_error_(std::move(state.timing_error)),
      seconds_(std::move(state.seconds)),
      gap_heat_(std::move(state.gap_heat)) {}

void Recorder::Merge(Recorder&& other) {
  requests_.insert(requests_.end(), other.requests_.begin(), other.requests_.end());
  gaps_.Merge(other.gaps_);
  timing_error_.Merge(other.timing_error_);
  window_tokens_ += other.window_tokens_;
  if (seconds_.size() < other.seconds_.size()) seconds_.resize(other.seconds_.size());
  for (std::size_t i = 0; i < other.seconds_.size(); ++i) {
    SecondBucket& mine = seconds_[i];
    const SecondBucket& theirs = other.seconds_[i];
    mine.started += theirs.started;
    mine.ok += theirs.ok;
    mine.failed += theirs.failed;
    mine.tokens += theirs.tokens;
    mine.chunks += theirs.chunks;
  }
  if (gap_heat_.size() < other.gap_heat_.size()) gap_heat_.resize(other.gap_heat_.size());
  for (std::size_t i = 0; i < other.gap_heat_.size(); ++i) {
    for (std::size_t band = 0; band < kHeatBands; ++band) {
      gap_heat_[i][band] += other.gap_heat_[i][band];
    }
  }
}

}  // namespace tare::load
