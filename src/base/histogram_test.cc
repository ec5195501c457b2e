#include "base/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

namespace tare {
namespace {

std::vector<std::int64_t> Values() {
  // Lengths of 0 to 40 bits, so that every group of buckets is visited.
  return *rc::gen::container<std::vector<std::int64_t>>(rc::gen::apply(
      [](int bits, std::int64_t noise) {
        return (std::int64_t{1} << bits) - 1 + noise % (std::int64_t{1} << bits);
      },
      rc::gen::inRange(0, 40), rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40)));
}

Histogram Of(const std::vector<std::int64_t>& values) {
  Histogram histogram;
  for (const std::int64_t value : values) histogram.Add(value);
  return histogram;
}

RC_GTEST_PROP(Histogram, QuantileIsWithinTheStatedError, ()) {
  std::vector<std::int64_t> values = Values();
  RC_PRE(!values.empty());
  const Histogram histogram = Of(values);
  std::sort(values.begin(), values.end());
  for (const double q : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank =
        static_cast<std::size_t>(std::max(1.0, std::ceil(q * static_cast<double>(values.size()))));
    const auto exact = static_cast<double>(values[rank - 1]);
    RC_ASSERT(std::abs(histogram.Quantile(q) - exact) <= 0.0005 * exact);
  }
  RC_ASSERT(histogram.min() == values.front());
  RC_ASSERT(histogram.max() == values.back());
}

RC_GTEST_PROP(Histogram, MergeIsExact, ()) {
  const std::vector<std::int64_t> a = Values();
  const std::vector<std::int64_t> b = Values();
  std::vector<std::int64_t> both = a;
  both.insert(both.end(), b.begin(), b.end());
  Histogram merged = Of(a);
  merged.Merge(Of(b));
  RC_ASSERT(merged == Of(both));
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (int i = 1; i <= 1000; ++i) histogram.Add(i);
  EXPECT_EQ(histogram.Quantile(0.5), 500);
  EXPECT_EQ(histogram.Quantile(0.95), 950);
  EXPECT_DOUBLE_EQ(histogram.mean(), 500.5);
  EXPECT_NEAR(histogram.stddev(), 288.675, 0.001);
  EXPECT_EQ(histogram.CountAbove(900), 100u);
}

TEST(Histogram, PercentilesNeedSamples) {
  Histogram histogram;
  const auto founded_after = [&](std::uint64_t n, double q) {
    histogram.Clear();
    histogram.Add(5, n);
    return histogram.FoundedQuantile(q).has_value();
  };
  for (const auto& [q, needed] : {std::pair{0.5, kMinSamplesP50},
                                  {0.9, kMinSamplesP90},
                                  {0.95, kMinSamplesP95},
                                  {0.99, kMinSamplesP99},
                                  {0.999, kMinSamplesP999}}) {
    EXPECT_FALSE(founded_after(needed - 1, q)) << q;
    EXPECT_TRUE(founded_after(needed, q)) << q;
  }
  EXPECT_GT(MinSamplesFor(0.9999), kMinSamplesP999);
}

TEST(Histogram, EmptyAndNegative) {
  Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.Add(-7);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.count(), 1u);
}

}  // namespace
}  // namespace tare
