#include "load/recording_wire.h"

#include <zstd.h>

#include <algorithm>

#include "load/byte_stream.h"

namespace tare::load {
namespace {

// Beyond this an unpacked recording is not one: 10 million requests are 2 GB.
constexpr std::size_t kMostUnpacked = std::size_t{8} << 30;
constexpr int kLevel = 3;

// Precisions of our own histograms; more would let a few bytes ask for gigabytes.
constexpr int kMostPrecisionBits = 12;

void PutHistogram(ByteWriter& out, const Histogram& histogram) {
  out.Put(static_cast<std::int32_t>(histogram.precision_bits()));
  out.Put(histogram.min());
  out.Put(histogram.max());
  out.Put(histogram.mean());
  const std::vector<Histogram::Bucket> buckets = histogram.NonEmptyBuckets();
  out.Put(static_cast<std::uint64_t>(buckets.size()));
  for (const Histogram::Bucket& bucket : buckets) out.Put(bucket);
}

// Counts, buckets, minimum and maximum come back exactly. The values within the buckets are chosen
// so that their mean is the one told (to a nanosecond); the spread within a bucket, at most a
// thousandth of the value, is all that is lost.
Histogram GetHistogram(ByteReader& in) {
  const int bits = in.Get<std::int32_t>();
  const auto min = in.Get<std::int64_t>();
  const auto max = in.Get<std::int64_t>();
  const auto mean = in.Get<double>();
  std::vector<Histogram::Bucket> buckets(in.Count(sizeof(Histogram::Bucket)));
  for (Histogram::Bucket& bucket : buckets) bucket = in.Get<Histogram::Bucket>();
  bool sound = bits >= 1 && bits <= kMostPrecisionBits && min >= 0 && max >= min;
  for (const Histogram::Bucket& bucket : buckets) {
    sound = sound && bucket.low >= 0 && bucket.high > bucket.low && bucket.count > 0;
  }
  if (!sound) {
    in.Reject();
    return Histogram();
  }
  Histogram histogram(bits);
  if (buckets.empty()) return histogram;
  long double left = 0;  // what the values must sum to, beyond their buckets' lower ends
  long double room = 0;
  std::uint64_t count = 0;
  for (const Histogram::Bucket& bucket : buckets) count += bucket.count;
  histogram.Add(min);
  --buckets.front().count;
  left = static_cast<long double>(mean) * static_cast<long double>(count) -
         static_cast<long double>(min);
  if (count > 1 && buckets.back().count > 0) {
    histogram.Add(max);
    --buckets.back().count;
    left -= static_cast<long double>(max);
  }
  // What a bucket can hold, given the least and the greatest of all.
  const auto low = [&](const Histogram::Bucket& b) { return std::clamp(b.low, min, max); };
  const auto high = [&](const Histogram::Bucket& b) { return std::clamp(b.high - 1, min, max); };
  for (const Histogram::Bucket& bucket : buckets) {
    const auto times = static_cast<long double>(bucket.count);
    left -= times * static_cast<long double>(low(bucket));
    room += times * static_cast<long double>(high(bucket) - low(bucket));
  }
  const long double share = room > 0 ? std::clamp<long double>(left / room, 0, 1) : 0;
  for (const Histogram::Bucket& bucket : buckets) {
    if (bucket.count == 0) continue;
    const auto above =
        static_cast<std::int64_t>(share * static_cast<long double>(high(bucket) - low(bucket)));
    histogram.Add(low(bucket) + above, bucket.count);
  }
  return histogram;
}

void PutThread(ByteWriter& out, const ThreadMeasurement& thread) {
  PutHistogram(out, thread.loop.timer_lateness);
  PutHistogram(out, thread.loop.round);
  out.Put(thread.loop.rounds);
  out.Put(thread.loop.busy);
  PutHistogram(out, thread.receive_lag);
  out.Put(thread.cpu_s);
  out.Put(thread.wall_s);
  out.Put(thread.schedule_wanted);
  out.Put(thread.sessions_begun);
  out.Put(thread.sessions_complete);
  out.Put(thread.sessions_failed);
}

ThreadMeasurement GetThread(ByteReader& in) {
  ThreadMeasurement thread;
  thread.loop.timer_lateness = GetHistogram(in);
  thread.loop.round = GetHistogram(in);
  thread.loop.rounds = in.Get<std::uint64_t>();
  thread.loop.busy = in.Get<Nanos>();
  thread.receive_lag = GetHistogram(in);
  thread.cpu_s = in.Get<double>();
  thread.wall_s = in.Get<double>();
  thread.schedule_wanted = in.Get<std::uint64_t>();
  thread.sessions_begun = in.Get<std::uint64_t>();
  thread.sessions_complete = in.Get<std::uint64_t>();
  thread.sessions_failed = in.Get<std::uint64_t>();
  return thread;
}

}  // namespace

std::string PackRecording(const LoadSource::Recording& recording) {
  const Recorder::State state = recording.recorder.state();
  ByteWriter out;
  out.Put(state.start);
  out.Put(state.window_begin);
  out.Put(state.window_end);
  out.Put(state.window_tokens);
  out.Put(static_cast<std::uint64_t>(state.requests.size()));
  for (const RequestRecord& record : state.requests) out.Put(record);
  PutHistogram(out, state.gaps);
  PutHistogram(out, state.timing_error);
  out.Put(static_cast<std::uint64_t>(state.seconds.size()));
  for (const SecondBucket& second : state.seconds) out.Put(second);
  out.Put(static_cast<std::uint64_t>(state.gap_heat.size()));
  for (const auto& second : state.gap_heat) out.Put(second);
  out.Put(static_cast<std::uint64_t>(recording.threads.size()));
  for (const ThreadMeasurement& thread : recording.threads) PutThread(out, thread);
  out.Put(static_cast<std::uint64_t>(recording.error_samples.size()));
  for (const std::string& sample : recording.error_samples) out.PutText(sample);

  const std::string raw = out.Take();
  std::string packed(ZSTD_compressBound(raw.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), kLevel);
  packed.resize(ZSTD_isError(size) != 0 ? 0 : size);
  return packed;
}

Result<LoadSource::Recording> UnpackRecording(std::string_view bytes) {
  const auto corrupt = [](const char* why) {
    return Fail(ErrorKind::kCorrupt, "an agent's recording cannot be read: {}", why);
  };
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMostUnpacked) {
    return corrupt("not compressed by an agent");
  }
  std::string raw(static_cast<std::size_t>(size), '\0');
  const std::size_t got = ZSTD_decompress(raw.data(), raw.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(got) != 0 || got != raw.size()) return corrupt("damaged");

  ByteReader in(raw);
  Recorder::State state;
  state.start = in.Get<Nanos>();
  state.window_begin = in.Get<Nanos>();
  state.window_end = in.Get<Nanos>();
  state.window_tokens = in.Get<std::uint64_t>();
  state.requests.resize(in.Count(sizeof(RequestRecord)));
  for (RequestRecord& record : state.requests) record = in.Get<RequestRecord>();
  state.gaps = GetHistogram(in);
  state.timing_error = GetHistogram(in);
  state.seconds.resize(in.Count(sizeof(SecondBucket)));
  for (SecondBucket& second : state.seconds) second = in.Get<SecondBucket>();
  state.gap_heat.resize(in.Count(sizeof(state.gap_heat[0])));
  for (auto& second : state.gap_heat) second = in.Get<std::array<std::uint32_t, kHeatBands>>();
  std::vector<ThreadMeasurement> threads;
  const std::size_t thread_count = in.Count(1);
  for (std::size_t i = 0; i < thread_count && in.ok(); ++i) threads.push_back(GetThread(in));
  std::vector<std::string> samples;
  const std::size_t sample_count = in.Count(sizeof(std::uint64_t));
  for (std::size_t i = 0; i < sample_count && in.ok(); ++i) samples.push_back(in.Text());
  if (!in.ok() || !in.at_end()) return corrupt("its parts do not add up");
  for (const RequestRecord& record : state.requests) {
    if (record.error > RequestError::kClientLimit || record.phase > Phase::kAfter ||
        record.turn > kMostTurns) {
      return corrupt("a request is out of range");
    }
  }
  return LoadSource::Recording{Recorder(std::move(state)), std::move(threads), std::move(samples),
                               nullptr};
}

}  // namespace tare::load
