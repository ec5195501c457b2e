#include "load/rate_search_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load/pacing_server.h"
#include "load/random.h"

namespace tare::load {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A record in the shape RunLoad writes: `rate` × duration requests, each within the level with the
// given probability.
store::RunRecord RecordOf(const LoadOptions& options, double within, std::uint64_t seed) {
  Random random(seed);
  const auto n = static_cast<std::size_t>(options.arrival.rate * ToSeconds(options.duration));
  std::vector<double> ttft;
  for (std::size_t i = 0; i < n; ++i) ttft.push_back(random.Uniform() < within ? 0.1 : 2);
  store::RunRecord record;
  record.workload = {{"arrival", {{"kind", "poisson"}, {"rate_per_s", options.arrival.rate}}}};
  record.target = {{"url", "http://x"}, {"model", "m<1>"}};
  record.series["requests"] = {{"ttft_intended_s", ttft},
                               {"ok", std::vector<int>(n, 1)},
                               {"good", std::vector<int>(n, 1)},
                               {"measured", std::vector<int>(n, 1)}};
  return record;
}

struct Fixture {
  LoadOptions options;
  SearchSpec spec;
  SearchHooks hooks;
  int runs = 0, kept = 0;

  Fixture() {
    EXPECT_TRUE(ParseLevels("ttft_p95=500ms", options.levels).has_value());
    options.name = "s";
    spec.low = 1;
    spec.high = 64;
    spec.budget = minutes(30);
    hooks.run = [this](const LoadOptions& one) -> Result<store::RunRecord> {
      return RecordOf(one, one.arrival.rate < 20 ? 1.0 : 0.5, static_cast<std::uint64_t>(++runs));
    };
    hooks.keep = [this](const store::RunRecord&) -> Result<std::string> {
      return "run-" + std::to_string(++kept);
    };
  }
};

TEST(SearchRate, EveryProbeIsARunAndTheAnswerEnclosesTheBorder) {
  Fixture f;
  const SearchResult result = SearchRate(f.options, f.spec, f.hooks).value();
  ASSERT_TRUE(result.answer.holds && result.answer.breaks);
  EXPECT_LT(*result.answer.holds, 20);
  EXPECT_GE(*result.answer.breaks, 20);
  EXPECT_EQ(result.probes.size(), static_cast<std::size_t>(f.runs));
  EXPECT_EQ(f.kept, f.runs);
  EXPECT_EQ(result.probes[1].run, "run-2");

  const json document = SearchJson(result);
  EXPECT_EQ(document["schema"], "tare.rate_search/1");
  EXPECT_EQ(document["answer"]["holds_per_s"], *result.answer.holds);
  EXPECT_EQ(document["levels"], (json{{"ttft_p95_s", 0.5}}));
  EXPECT_EQ(document["probes"].size(), result.probes.size());
  EXPECT_THAT(SearchTable(result), HasSubstr("ttft_p95 ≤ 500 ms"));
  const std::string page = SearchPage(result);
  EXPECT_THAT(page, HasSubstr("m&lt;1&gt;"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("nan")));
}

TEST(SearchRate, AnInvalidRunIsToldApartFromOneThatBreaks) {
  Fixture f;
  const auto run = f.hooks.run;
  f.hooks.run = [&, run](const LoadOptions& one) {
    auto record = run(one);
    // Failing requests are the server's doing; a late client is not.
    if (one.arrival.rate > 20) record->checks.push_back({"errors", false, "7 failed"});
    if (f.runs == 1) record->checks.push_back({"client_lag", false, "late"});
    return record;
  };
  const SearchResult result = SearchRate(f.options, f.spec, f.hooks).value();
  EXPECT_EQ(result.probes[0].outcome, ProbeOutcome::kInvalid);
  EXPECT_THAT(result.probes[0].invalid, HasSubstr("client_lag: late"));
  EXPECT_EQ(result.probes[1].rate, result.probes[0].rate) << "tried again";
  EXPECT_TRUE(result.answer.holds && result.answer.breaks);
  for (std::size_t i = 1; i < result.probes.size(); ++i) {
    EXPECT_NE(result.probes[i].outcome, ProbeOutcome::kInvalid);
  }
}

TEST(SearchRate, AServerThatGoesAwayEndsTheSearchWithWhatWasFound) {
  Fixture f;
  const auto run = f.hooks.run;
  f.hooks.run = [&, run](const LoadOptions& one) -> Result<store::RunRecord> {
    if (one.arrival.rate > 20) return Fail(ErrorKind::kNetwork, "connection refused");
    return run(one);
  };
  const SearchResult result = SearchRate(f.options, f.spec, f.hooks).value();
  EXPECT_TRUE(result.answer.holds);
  EXPECT_THAT(result.answer.why, HasSubstr("connection refused"));
  f.hooks.run = [](const LoadOptions&) -> Result<store::RunRecord> {
    return Fail(ErrorKind::kNetwork, "connection refused");
  };
  EXPECT_FALSE(SearchRate(f.options, f.spec, f.hooks).has_value());
}

TEST(SearchRate, RefusesWhatContradictsARate) {
  Fixture f;
  f.options.arrival.kind = ArrivalSpec::Kind::kTrace;
  EXPECT_THAT(SearchRate(f.options, f.spec, f.hooks).error().message, HasSubstr("trace"));
  f.options.arrival.kind = ArrivalSpec::Kind::kPoisson;
  f.options.arrival.ramp_over = seconds(5);
  EXPECT_THAT(SearchRate(f.options, f.spec, f.hooks).error().message, HasSubstr("--ramp"));
  f.options.levels = {};
  EXPECT_THAT(SearchRate(f.options, f.spec, f.hooks).error().message, HasSubstr("--slo"));
}

TEST(SearchRate, RunsRealLoad) {
  const auto server = PacingServer::Start({}).value();
  Fixture f;
  f.hooks.run = nullptr;
  f.options.url = server->url();
  f.options.levels = {};
  ASSERT_TRUE(ParseLevels("e2e_p50=1h", f.options.levels).has_value());
  f.options.workload.input_tokens = 8;
  f.options.workload.output_tokens = 2;
  f.options.warm_up = Nanos(0);
  f.spec.low = 200;
  f.spec.high = 400;
  f.spec.probe = std::chrono::milliseconds(150);
  const auto result = SearchRate(f.options, f.spec, f.hooks);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_GE(result->probes.size(), 2u);
  EXPECT_EQ(f.kept, static_cast<int>(result->probes.size()));
}

}  // namespace
}  // namespace tare::load
