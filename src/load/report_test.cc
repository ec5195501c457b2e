#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "load/pacing_server.h"
#include "load/report_html.h"
#include "load/report_text.h"
#include "load/runner.h"
#include "load/selftest.h"

namespace tare::load {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

store::RunRecord SmallRun() {
  PacingOptions pacing;
  pacing.gap = std::chrono::milliseconds(1);
  const auto server = PacingServer::Start(pacing).value();
  LoadOptions options;
  options.url = server->url();
  options.name = "<b>\"name\"";
  options.arrival.users = 2;
  options.requests = 24;
  options.workload.input_tokens = 10;
  options.workload.output_tokens = 6;
  store::RunRecord record = RunLoad(options, nullptr).value();
  record.id = "20261130-105342-417-7f3a";
  return record;
}

TEST(Report, HtmlIsSelfContainedAndEscapes) {
  const store::RunRecord record = SmallRun();
  const std::string html = HtmlReport(record);
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;&quot;name&quot;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>\"name\"")));
  EXPECT_THAT(html, HasSubstr("TTFT from intended, over time"));
  EXPECT_THAT(html, HasSubstr("Gaps between chunks (ITL) over time"));
  EXPECT_THAT(html, HasSubstr("Share of requests answered within"));
  for (const char* outside : {"<script", "<link", "src=", "url(", "@import"}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(Report, HtmlOfAnEmptyRecordIsStillAPage) {
  const std::string html = HtmlReport(store::RunRecord());
  EXPECT_THAT(html, HasSubstr("</html>"));
}

TEST(Report, TextSaysInvalidFirstAndMarksUnfoundedPercentiles) {
  store::RunRecord record = SmallRun();
  EXPECT_THAT(RunReport(record), HasSubstr("— : too few samples"));
  record.valid = false;
  record.checks = {{"errors", false, "all failed"}};
  EXPECT_EQ(RunReport(record).find("INVALID RUN"), 0u);
  EXPECT_THAT(RunReport(record), HasSubstr("all failed"));
}

TEST(Report, ComparisonOfARunWithItselfCannotTell) {
  const store::RunRecord record = SmallRun();
  const nlohmann::json document = ComparisonJson(std::vector{record, record});
  for (const auto& metric : document["comparisons"][0]["metrics"]) {
    EXPECT_TRUE(metric["verdict"] == "cannot tell" || metric["verdict"] == "too few samples")
        << metric.dump();
  }
}

TEST(Report, CsvHasARowPerRequest) {
  const std::string csv = RequestsCsv(SmallRun());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 25);
}

TEST(SelfTest, KnowsTheTrueTimes) {
  SelfTestOptions options;
  options.per_point = std::chrono::milliseconds(100);
  options.streams = 50;
  options.separate_process = false;
  const auto result = RunSelfTest(options);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_GT(result->chunks_per_s_per_core, 1000);
  EXPECT_GT(result->requests_per_s_per_core, 100);
  EXPECT_GT(result->timing_error.n, 0u);
  // A receipt cannot come before the server's stamp; how late it is depends on the machine's load.
  EXPECT_GE(result->timing_error.p50, 0);
  EXPECT_LT(result->timing_error.p50, 0.05);
  EXPECT_THAT(SelfTestJson(*result), HasSubstr("\"chunks_per_s_per_core\""));
  EXPECT_THAT(SelfTestTable(*result), HasSubstr("saturated"));
}

}  // namespace
}  // namespace tare::load
