#include "base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace tare {

std::uint64_t MinSamplesFor(double q) {
  if (q <= 0.5) return kMinSamplesP50;
  if (q <= 0.9) return kMinSamplesP90;
  if (q <= 0.95) return kMinSamplesP95;
  if (q <= 0.99) return kMinSamplesP99;
  if (q <= 0.999) return kMinSamplesP999;
  return static_cast<std::uint64_t>(6.636 / std::max(1e-12, 1 - q));
}

Histogram::Histogram(int precision_bits) : bits_(precision_bits) {
  TARE_CHECK(precision_bits >= 1 && precision_bits <= 20);
}

// The first 2^bits buckets hold one value each; after them every doubling
// [2^(bits+k), 2^(bits+k+1)) has 2^bits buckets of width 2^k.
std::size_t Histogram::IndexOf(std::int64_t nanos) const {
  const auto value = static_cast<std::uint64_t>(nanos);
  const int width = static_cast<int>(std::bit_width(value));
  if (width <= bits_) return static_cast<std::size_t>(value);
  const int shift = width - 1 - bits_;
  const std::uint64_t within = (value >> shift) - (std::uint64_t{1} << bits_);
  return static_cast<std::size_t>((static_cast<std::uint64_t>(shift + 1) << bits_) + within);
}

std::int64_t Histogram::LowOf(std::size_t index) const {
  const std::size_t group = index >> bits_;
  const std::size_t within = index & ((std::size_t{1} << bits_) - 1);
  if (group == 0) return static_cast<std::int64_t>(within);
  return static_cast<std::int64_t>((within + (std::size_t{1} << bits_)) << (group - 1));
}

std::int64_t Histogram::WidthOf(std::size_t index) const {
  const std::size_t group = index >> bits_;
  return group == 0 ? 1 : std::int64_t{1} << (group - 1);
}

void Histogram::Add(std::int64_t nanos, std::uint64_t times) {
  if (times == 0) return;
  nanos = std::max<std::int64_t>(nanos, 0);
  const std::size_t index = IndexOf(nanos);
  if (index >= buckets_.size()) buckets_.resize(((index >> bits_) + 1) << bits_);
  buckets_[index] += times;
  min_ = count_ == 0 ? nanos : std::min(min_, nanos);
  max_ = std::max(max_, nanos);
  count_ += times;
  const auto value = static_cast<long double>(nanos);
  sum_ += value * static_cast<long double>(times);
  sum_of_squares_ += value * value * static_cast<long double>(times);
}

void Histogram::Merge(const Histogram& other) {
  TARE_CHECK(bits_ == other.bits_);
  if (other.count_ == 0) return;
  if (buckets_.size() < other.buckets_.size()) buckets_.resize(other.buckets_.size());
  for (std::size_t i = 0; i < other.buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  count_ += other.count_;
  sum_ += other.sum_;
  sum_of_squares_ += other.sum_of_squares_;
}

void Histogram::Clear() { *this = Histogram(bits_); }

double Histogram::mean() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_ / static_cast<long double>(count_));
}

double Histogram::stddev() const {
  if (count_ == 0) return 0;
  const long double n = static_cast<long double>(count_);
  const long double mean = sum_ / n;
  return static_cast<double>(
      std::sqrt(std::max<long double>(0, sum_of_squares_ / n - mean * mean)));
}

double Histogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  q = std::clamp(q, 0.0, 1.0);
  const auto rank = std::clamp<std::uint64_t>(
      static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))), 1, count_);
  if (rank == count_) return static_cast<double>(max_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) {
      const double middle = static_cast<double>(LowOf(i)) + static_cast<double>(WidthOf(i) - 1) / 2;
      return std::clamp(middle, static_cast<double>(min_), static_cast<double>(max_));
    }
  }
  return static_cast<double>(max_);
}

std::optional<double> Histogram::FoundedQuantile(double q) const {
  if (count_ < MinSamplesFor(q)) return std::nullopt;
  return Quantile(q);
}

std::uint64_t Histogram::CountAbove(std::int64_t nanos) const {
  if (nanos < 0) return count_;
  std::uint64_t above = 0;
  for (std::size_t i = IndexOf(nanos) + 1; i < buckets_.size(); ++i) above += buckets_[i];
  return above;
}

std::vector<Histogram::Bucket> Histogram::NonEmptyBuckets() const {
  std::vector<Bucket> result;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] > 0) result.push_back({LowOf(i), LowOf(i) + WidthOf(i), buckets_[i]});
  }
  return result;
}

bool Histogram::operator==(const Histogram& other) const {
  if (bits_ != other.bits_ || count_ != other.count_ || min() != other.min() ||
      max_ != other.max_) {
    return false;
  }
  const std::vector<Bucket> mine = NonEmptyBuckets();
  const std::vector<Bucket> theirs = other.NonEmptyBuckets();
  return std::equal(
      mine.begin(), mine.end(), theirs.begin(), theirs.end(),
      [](const Bucket& a, const Bucket& b) { return a.low == b.low && a.count == b.count; });
}

}  // namespace tare
