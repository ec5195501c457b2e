#include "load/cold_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "load/pacing_server.h"

namespace tare::load {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::vector<std::string> command, std::string url) {
  ColdStartOptions options;
  options.command = std::move(command);
  options.url = std::move(url);
  options.times = 1;
  options.deadline = std::chrono::milliseconds(200);
  const auto result = MeasureColdStart(options);
  return result ? "succeeded" : result.error().message;
}

TEST(ColdStart, SaysWhyItCouldNotMeasure) {
  EXPECT_THAT(ErrorOf({}, "http://127.0.0.1:1"), HasSubstr("after '--'"));
  EXPECT_THAT(ErrorOf({"no-such-program-here"}, "http://127.0.0.1:1"),
              HasSubstr("cannot run 'no-such-program-here'"));
  EXPECT_THAT(ErrorOf({"true"}, "http://127.0.0.1:1"), HasSubstr("ended before it was listening"));
  EXPECT_THAT(ErrorOf({"sleep", "20"}, "http://127.0.0.1:1"), HasSubstr("not listening within"));
  EXPECT_THAT(ErrorOf({"true"}, "http://192.0.2.1:1"), HasSubstr("another"));
  const auto server = PacingServer::Start({}).value();
  EXPECT_THAT(ErrorOf({"true"}, server->url()), HasSubstr("listens on port"));
}

TEST(ColdStart, TableAndJsonGiveMediansAndSpread) {
  ColdStartResult result;
  for (const double t : {0.5, 0.7, 0.6}) {
    ColdStart start;
    start.listening = t / 10;
    start.ready = t / 2;
    start.first_token = t;
    start.cold_ttft = 0.1;
    start.warm_ttft = 0.05;
    result.starts.push_back(start);
  }
  EXPECT_THAT(ColdStartTable(result),
              HasSubstr("first_token          600.0       500.0       700.0"));
  EXPECT_THAT(ColdStartTable(result), HasSubstr("warm first token: 12.0"));
  const auto document = nlohmann::json::parse(ColdStartJson(result));
  EXPECT_NEAR(document["cold_to_warm"].get<double>(), 12, 1e-9);
  EXPECT_EQ(document["starts"].size(), 3u);
}

}  // namespace
}  // namespace tare::load
