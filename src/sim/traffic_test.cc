#include "sim/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"

namespace tare::sim {
namespace {

using ::testing::HasSubstr;

TrafficSpec Poisson() {
  TrafficSpec spec;
  spec.arrival.kind = load::ArrivalSpec::Kind::kPoisson;
  spec.arrival.rate = 5;
  spec.seed = 3;
  TrafficClass kind;
  kind.input_tokens = 128;
  kind.output_tokens = 64;
  kind.length_cv = 0.5;
  spec.classes = {kind};
  return spec;
}

// What a load tester reads from the file is what the simulation replays.
TEST(Traffic, ATraceOfItsRequestsIsReadBackAndReplayed) {
  const auto trace = TraceOf(Poisson(), std::chrono::seconds(20), "drawn");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_GT(trace->requests.size(), 50u);
  EXPECT_EQ(trace->requests.front().at, Nanos(0));

  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "drawn.jsonl";
  ASSERT_TRUE(WriteFileAtomic(path, load::FormatTrace(*trace)));
  TrafficSpec replay;
  replay.arrival.kind = load::ArrivalSpec::Kind::kTrace;
  replay.arrival.trace = path;
  replay.input_scale = 1.25;
  replay.shared_tokens = 20;
  auto traffic = Traffic::Create(replay);
  ASSERT_TRUE(traffic) << traffic.error().message;
  for (std::size_t i = 0; i < trace->requests.size(); ++i) {
    const load::TraceRequest& wanted = trace->requests[i];
    const auto at = traffic->NextArrival();
    ASSERT_TRUE(at);
    EXPECT_NEAR(ToSeconds(*at), ToSeconds(wanted.at), 1e-6);
    const SimRequest request = traffic->Make(i);
    EXPECT_EQ(request.input_tokens, std::lround(1.25 * wanted.input_tokens));
    EXPECT_EQ(request.output_tokens, wanted.output_tokens);
    ASSERT_EQ(request.blocks.size(), 1u);
    EXPECT_EQ(request.blocks[0].tokens, std::min(20, request.input_tokens));
  }
  EXPECT_FALSE(traffic->NextArrival());
}

TEST(Traffic, AClosedLoopOrAnEmptyTimeMakesNoTrace) {
  TrafficSpec closed = Poisson();
  closed.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  closed.arrival.users = 2;
  EXPECT_THAT(TraceOf(closed, std::chrono::seconds(1), "").error().message,
              HasSubstr("closed loop"));
  EXPECT_THAT(TraceOf(Poisson(), Nanos(1), "").error().message, HasSubstr("no request comes"));
}

}  // namespace
}  // namespace tare::sim
