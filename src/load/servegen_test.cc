#include "load/servegen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

namespace tare::load {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

Client MakeClient(double rate, ClientWindow::Gaps gaps, double shape) {
  Client client;
  client.name = "c";
  for (int i = 0; i < 20; ++i) {
    client.windows.push_back({600.0 * i, rate, 0, gaps, shape});
  }
  client.lengths.push_back(
      {0, ParseDistribution("{10: 0.5, 20: 0.5}").value(), ParseDistribution("{3: 1}").value()});
  client.lengths.push_back(
      {6000, ParseDistribution("{99: 1}").value(), ParseDistribution("{4: 1}").value()});
  return client;
}

Trace Draw(const std::vector<Client>& clients, double from, double length, double rate = 0) {
  DrawSpec spec;
  spec.from = FromSeconds(from);
  spec.length = FromSeconds(length);
  spec.rate = rate;
  spec.seed = 11;
  return DrawTrace(clients, spec).value();
}

// Gamma gaps have a CV of 1/√shape; Weibull of shape 0.5, √5 (its mean is 2 and its variance 20).
TEST(ServeGen, RateAndCharacterAreTheClients) {
  const Trace gamma = Draw({MakeClient(20, ClientWindow::Gaps::kGamma, 0.25)}, 0, 3000);
  EXPECT_NEAR(gamma.mean_rate(), 20, 1);
  EXPECT_NEAR(gamma.gap_cv(), 2, 0.1);
  const Trace weibull = Draw({MakeClient(20, ClientWindow::Gaps::kWeibull, 0.5)}, 0, 3000);
  EXPECT_NEAR(weibull.mean_rate(), 20, 1);
  EXPECT_NEAR(weibull.gap_cv(), std::sqrt(5), 0.2);
}

TEST(ServeGen, LengthsFollowTheirWindow) {
  const Trace trace = Draw({MakeClient(5, ClientWindow::Gaps::kGamma, 1)}, 5700, 600);
  double short_ones = 0, early = 0;
  for (const TraceRequest& r : trace.requests) {
    if (r.at < seconds(300)) {
      ++early;
      EXPECT_EQ(r.output_tokens, 3);
      short_ones += r.input_tokens == 10 ? 1 : 0;
    } else {
      EXPECT_EQ(r.input_tokens, 99);
      EXPECT_EQ(r.output_tokens, 4);
    }
  }
  EXPECT_NEAR(short_ones / early, 0.5, 0.06);
}

TEST(ServeGen, ClientsAreLaidOverOneAnotherAndScaled) {
  const std::vector<Client> clients = {MakeClient(3, ClientWindow::Gaps::kGamma, 1),
                                       MakeClient(9, ClientWindow::Gaps::kGamma, 1)};
  EXPECT_NEAR(Draw(clients, 600, 3000).mean_rate(), 12, 0.6);
  EXPECT_NEAR(Draw(clients, 600, 3000, 2).mean_rate(), 2, 0.2);
  const Trace once = Draw(clients, 0, 100), again = Draw(clients, 0, 100);
  ASSERT_EQ(once.requests.size(), again.requests.size());
  EXPECT_EQ(once.requests.back().at, again.requests.back().at);
}

TEST(ServeGen, RefusesTooMuchAndNothing) {
  DrawSpec spec;
  spec.length = seconds(6000);
  EXPECT_THAT(DrawTrace({MakeClient(5000, ClientWindow::Gaps::kGamma, 1)}, spec).error().message,
              HasSubstr("--trace-window"));
  EXPECT_THAT(DrawTrace({MakeClient(5, ClientWindow::Gaps::kNone, 0)}, spec).error().message,
              HasSubstr("nothing"));
}

TEST(ServeGen, ReadsItsFiles) {
  const auto windows = ParseClientWindows("0,2.5,1.1,Gamma,0.8,0.5\n600,0,0,,0,0\n").value();
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_DOUBLE_EQ(windows[0].rate, 2.5);
  EXPECT_EQ(windows[1].gaps, ClientWindow::Gaps::kNone);
  for (const char* bad :
       {"", "0,1,1,Gamma,1", "0,1,1,Pareto,1,1", "0,x,1,Gamma,1,1", "0,1,1,Gamma,0,1",
        "0,-1,1,Gamma,1,1", "600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1"}) {
    EXPECT_FALSE(ParseClientWindows(bad).has_value()) << bad;
  }
  const auto lengths =
      ParseClientLengths(R"({"21600":{"input_tokens":"{5: 1.0}","output_tokens":"{6: 1.0}"},)"
                         R"("0":{"input_tokens":"{7: 1.0}","output_tokens":"{8: 1.0}"}})")
          .value();
  ASSERT_EQ(lengths.size(), 2u);
  EXPECT_EQ(lengths[0].input.At(0.5), 7);
  for (const char* bad : {"", "[]", "{}", R"({"x":{}})", R"({"0":{"input_tokens":"{5: 1}"}})",
                          R"({"0":{"input_tokens":"5","output_tokens":"{1: 1}"}})"}) {
    EXPECT_FALSE(ParseClientLengths(bad).has_value()) << bad;
  }
}

TEST(ServeGen, PublishedClients) {
  const std::filesystem::path data =
      std::filesystem::path(TARE_SOURCE_DIR) / "../shared/data/traces/servegen/m-large";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no ServeGen clients at " << data;
  const std::vector<Client> clients = LoadClients(data).value();
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].windows.size(), 2016u);
  EXPECT_EQ(clients[0].lengths.size(), 56u);
  // The first window: 87.2 requests/s with a CV of 2.09, inputs of 104.2 tokens on average.
  const Trace trace = Draw(clients, 0, 600);
  EXPECT_NEAR(trace.mean_rate(), 87.2, 5);
  EXPECT_NEAR(trace.gap_cv(), 2.09, 0.15);
  double sum = 0;
  for (const TraceRequest& r : trace.requests) sum += r.input_tokens;
  EXPECT_NEAR(sum / static_cast<double>(trace.requests.size()), 104.2, 3);
}

// The quantile function is the inverse of the given shares.
RC_GTEST_PROP(ServeGen, DistributionsAreSampledAsGiven, ()) {
  const auto weights = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20));
  const int sum = std::accumulate(weights.begin(), weights.end(), 0);
  RC_PRE(sum > 0);
  std::string text = "{";
  for (std::size_t i = 0; i < weights.size(); ++i) {
    text += fmt::format("{}{}: {}", i > 0 ? ", " : "", i, static_cast<double>(weights[i]) / sum);
  }
  const LengthDistribution d = ParseDistribution(text + "}").value();
  std::vector<int> counts(weights.size());
  for (int i = 0; i < sum; ++i) {
    ++counts[static_cast<std::size_t>(d.At((i + 0.5) / sum))];
  }
  RC_ASSERT(counts == weights);
}

}  // namespace
}  // namespace tare::load
