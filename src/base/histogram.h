// A histogram of durations with a bounded relative error (HDR: log-linear buckets), whose merge is
// exact: merging the histograms of two halves of the data gives the histogram of the whole.
//
// Values are nanoseconds ≥ 0. A value below 2^bits is counted exactly; above, it falls into a
// bucket whose width is at most 2^-bits of the value. With the default of 10 bits a reported value
// is within 0.05 % of a counted one (the middle of a bucket of 0.1 %). Memory grows with the
// largest value: 8 KiB for each doubling, 200 KiB at one minute.
//
// Count, sum, minimum and maximum are kept exactly. Thread safety: one thread at a time; give each
// thread its own and merge.
// Source: the bucket layout is the one of HdrHistogram (hdrhistogram.org).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tare {

// Samples below which a percentile says nothing at 99 % confidence (MLPerf inference rules: the
// count at which the binomial margin of the estimate is a twentieth of the tail).
inline constexpr std::uint64_t kMinSamplesP50 = 11;
inline constexpr std::uint64_t kMinSamplesP90 = 64;
inline constexpr std::uint64_t kMinSamplesP95 = 130;
inline constexpr std::uint64_t kMinSamplesP99 = 662;
inline constexpr std::uint64_t kMinSamplesP999 = 6636;

// The samples needed for quantile `q` in [0, 1]: of the smallest of the quantiles above that is
// at least q, more than kMinSamplesP999 past 0.999.
std::uint64_t MinSamplesFor(double q);

class Histogram {
 public:
  explicit Histogram(int precision_bits = 10);

  void Add(std::int64_t nanos, std::uint64_t times = 1);  // a negative value counts as 0
  // Needs the same precision_bits.
  void Merge(const Histogram& other);
  void Clear();

  std::uint64_t count() const { return count_; }
  std::int64_t min() const { return count_ == 0 ? 0 : min_; }
  std::int64_t max() const { return max_; }
  double mean() const;    // ns
  double stddev() const;  // ns, of the population
  int precision_bits() const { return bits_; }

  // The value at quantile q in [0, 1] (nearest rank), ns. 0 when empty.
  double Quantile(double q) const;
  // As Quantile, but only when there are enough samples to say it.
  std::optional<double> FoundedQuantile(double q) const;
  // How many counted values are greater than `nanos` (to the precision of a bucket).
  std::uint64_t CountAbove(std::int64_t nanos) const;

  struct Bucket {
    std::int64_t low = 0, high = 0;  // [low, high) ns
    std::uint64_t count = 0;
  };
  std::vector<Bucket> NonEmptyBuckets() const;

  bool operator==(const Histogram& other) const;

 private:
  std::size_t IndexOf(std::int64_t nanos) const;
  std::int64_t LowOf(std::size_t index) const;
  std::int64_t WidthOf(std::size_t index) const;

  int bits_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = 0, max_ = 0;
  long double sum_ = 0, sum_of_squares_ = 0;
  std::vector<std::uint64_t> buckets_;
};

}  // namespace tare
