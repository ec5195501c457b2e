// Texts as the servers write them (their names and label sets; values are made up).
#include "gateway/scraped_load.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace tare::gateway {
namespace {

TEST(ScrapedLoad, ReadsVllm) {
  const auto load = ReadScrapedLoad(
      "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"org/chat\"} 3.0\n"
      "vllm:num_requests_running{engine=\"1\",model_name=\"org/chat\"} 2.0\n"
      "vllm:num_requests_waiting{engine=\"0\",model_name=\"org/chat\"} 7.0\n"
      "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"org/chat\"} 0.25\n"
      "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"org/chat\"} 0.5\n"
      "vllm:prompt_tokens_total{model_name=\"org/chat\"} 1.2e+06\n");
  ASSERT_TRUE(load) << load.error().message;
  EXPECT_EQ(load->running, 5);
  EXPECT_EQ(load->waiting, 7);
  EXPECT_EQ(load->kv_usage, 0.5);
  EXPECT_FALSE(load->kv_fragmentation);
}

TEST(ScrapedLoad, ReadsOldVllmSglangLlamaServerAndTare) {
  const auto old = ReadScrapedLoad("vllm:num_requests_running{} 1\nvllm:gpu_cache_usage_perc 1.5");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->kv_usage, 1.0) << "a share is at most one";
  const auto sglang = ReadScrapedLoad(
      "sglang:num_running_reqs{model_name=\"a\"} 4\r\nsglang:num_queue_reqs{model_name=\"a\"} 5\r\n"
      "sglang:token_usage{model_name=\"a\"} 0.28\r\n");
  ASSERT_TRUE(sglang);
  EXPECT_EQ(sglang->running, 4);
  EXPECT_EQ(sglang->waiting, 5);
  EXPECT_EQ(sglang->kv_usage, 0.28);
  const auto llama =
      ReadScrapedLoad("llamacpp:requests_processing 2\nllamacpp:requests_deferred 6\n");
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->running, 2);
  EXPECT_EQ(llama->waiting, 6);
  const auto tare = ReadScrapedLoad(
      "tare_requests_running 1\ntare_requests_waiting 0\ntare_kv_fragmentation_ratio 0.36\n");
  ASSERT_TRUE(tare);
  EXPECT_EQ(tare->kv_fragmentation, 0.36);
}

TEST(ScrapedLoad, PassesOverWhatMeansNothing) {
  const auto load = ReadScrapedLoad(
      "tare_requests_running{a=\"}\\\"} 9\"} 1 1700000000\n"  // a brace and a quote in a label
      "tare_requests_running NaN\ntare_requests_running -3\ntare_requests_running{a=\"\n"
      "tare_requests_running\ntare_requests_running_total 8\n");
  ASSERT_TRUE(load);
  EXPECT_EQ(load->running, 1);
}

TEST(ScrapedLoad, SaysWhenNothingIsKnown) {
  for (const char* text : {"", "\n\n", "go_goroutines 7\n", "tare_requests_running nothing\n"}) {
    EXPECT_FALSE(ReadScrapedLoad(text)) << text;
  }
}

RC_GTEST_PROP(ScrapedLoad, TakesAnyText, (std::string text)) {
  const auto load = ReadScrapedLoad("tare_requests_waiting 2\n" + text);
  RC_ASSERT(load.has_value());
  RC_ASSERT(load->waiting >= 2);
}

}  // namespace
}  // namespace tare::gateway
