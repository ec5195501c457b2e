#include "load/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare::load {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ServerMetrics, ReadsSamplesAndSkipsTheRest) {
  const auto samples = ParsePrometheus(
      "# HELP x y\n# TYPE a gauge\na 1.5\nb{m=\"x\",n=\"y } \\\" z\"} 2 1700000000\nb{m=\"q\"} "
      "3\r\n"
      "h_bucket{le=\"1\"} 9\nnan_one NaN\nbroken{ 4\nalso broken\n\nc 1e3\n");
  std::string said;
  for (const MetricSample& s : samples)
    said += fmt::format("{}[{}]={} ", s.name, s.labels, s.value);
  EXPECT_EQ(said, "a[]=1.5 b[m=\"x\",n=\"y } \\\" z\"]=2 b[m=\"q\"]=3 c[]=1000 ");
}

TEST(ServerMetrics, SumsOverLabelsAndTakesShares) {
  EXPECT_THAT(KnownServerFigures(ParsePrometheus("tare_requests_running{m=\"a\"} 2\n"
                                                 "tare_requests_running{m=\"b\"} 3\n"
                                                 "tare_kv_pages{state=\"used\"} 30\n"
                                                 "tare_kv_pages{state=\"cached\"} 10\n"
                                                 "tare_kv_pages{state=\"free\"} 80\n")),
              ElementsAre(Pair("kv_use", 0.25), Pair("running", 5)));
}

TEST(ServerMetrics, KnowsOldAndNewNames) {
  EXPECT_THAT(KnownServerFigures(ParsePrometheus("vllm:num_requests_waiting{model_name=\"m\"} 4\n"
                                                 "vllm:gpu_cache_usage_perc 0.25\n")),
              ElementsAre(Pair("kv_use", 0.25), Pair("waiting", 4)));
  EXPECT_THAT(KnownServerFigures(ParsePrometheus("sglang:num_running_reqs 2\nsglang:token_usage 1\n"
                                                 "vllm:kv_cache_usage_perc 0.5\n")),
              ElementsAre(Pair("kv_use", 0.5), Pair("running", 2)));
}

RC_GTEST_PROP(ServerMetrics, AnyTextIsReadWithoutHarm, (const std::string& text)) {
  ParsePrometheus(text);
  ParsePrometheus("a{" + text);
}

}  // namespace
}  // namespace tare::load
