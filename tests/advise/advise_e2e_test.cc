// `tare advise` end to end: the real program serves the real model at two precisions, puts it under
// load, and writes its five files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/files.h"
#include "base/test_model.h"

namespace tare {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

class AdviseEndToEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-e2e-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Runs `tare advise plan.yaml --out DIR/report EXTRA`, its store in DIR.
  Outcome Advise(const std::string& plan, const std::string& extra = "") {
    std::ofstream(dir_ / "plan.yaml") << plan;
    const std::string command = fmt::format(
        "TARE_DATA_DIR='{0}/data' '{1}' advise '{0}/plan.yaml' --out '{0}/report' {2} "
        ">'{0}/out' 2>'{0}/err'",
        dir_.string(), TARE_PROGRAM, extra);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(dir_ / "out").value_or(""),
            ReadFile(dir_ / "err").value_or("")};
  }

  // Whether the gateway takes the routing plan as it was written, and what it says.
  Outcome CheckRouting() {
    const std::string command =
        fmt::format("'{1}' serve --config '{0}/report/routing.yaml' --check-config >'{0}/out' 2>&1",
                    dir_.string(), TARE_PROGRAM);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(dir_ / "out").value_or(""), ""};
  }

  std::filesystem::path dir_;
};

TEST_F(AdviseEndToEnd, MeasuresTwoPrecisionsOfTheRealModel) {
  const auto model = FindTestModel();
  if (!model) GTEST_SKIP() << kTestModelMissing;
  const Outcome outcome = Advise(
      "name: e2e\n"
      "load: {users: 4, requests: 16, input_tokens: 64, output_tokens: 8}\n"
      "service_levels: {e2e: {p50: 60s}}\n"
      "candidates:\n  - {name: int4, dtype: int4}\n  - {name: bf16, dtype: bf16}\n",
      "--json --price 0.12/h --model '" + model->string() + "'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_TRUE(json["answer"].contains("pick") || json["answer"].contains("abstain"));
  ASSERT_EQ(json["candidates"].size(), 2u);
  for (const auto& candidate : json["candidates"]) {
    EXPECT_EQ(candidate["tag"], "measured") << candidate.dump(1);
    EXPECT_GT(candidate["ready_s"].get<double>(), 0);
    const auto& level = candidate["levels"][0];
    EXPECT_EQ(level["requests"]["ok"], 16);
    EXPECT_GT(level["rates"]["output_tokens_per_s"].get<double>(), 0);
    EXPECT_GT(level["latency_s"]["e2e"]["p50"].get<double>(), 0);
    EXPECT_GT(level["memory"]["peak_bytes"].get<std::uint64_t>(), std::uint64_t{50} << 20);
  }
  for (const char* file :
       {"report.html", "report.md", "report.json", "routing.yaml", "serve.args"}) {
    EXPECT_TRUE(std::filesystem::exists(dir_ / "report" / file)) << file;
  }
  const std::string html = ReadFile(dir_ / "report/report.html").value_or("");
  EXPECT_THAT(html, Not(AnyOf(HasSubstr("src="), HasSubstr("<script"), HasSubstr("<link"))));
  const auto routing = config::Document::Load(dir_ / "report/routing.yaml");
  EXPECT_TRUE(routing) << routing.error().message;
  const Outcome checked = CheckRouting();
  EXPECT_EQ(checked.exit_code, 0) << checked.out;
}

TEST_F(AdviseEndToEnd, TheGatewayTakesTheRoutingPlanOfAMixAsItIs) {
  const Outcome outcome = Advise(
      "name: mix\n"
      "load: {rate: [1/s], duration: 5m, input_tokens: 600, output_tokens: 100}\n"
      "service_levels: {ttft: {p90: 2s}, tpot: {p90: 60ms}}\n"
      "routing: mix\n"
      "candidates:\n"
      "  - name: a100\n"
      "    simulate: {model: llama-3-8b, device: a100-80}\n"
      "    url: 'http://127.0.0.1:9001'\n"
      "  - name: t4\n"
      "    simulate: {model: llama-3-8b, device: t4, devices: 2, precision: fp16, cache: fp16}\n"
      "    price: 0.7/h\n"
      "    url: 'http://127.0.0.1:9002'\n"
      "    model: served/name\n"
      "  - name: from the leaflet\n"
      "    claimed: {model: llama-3-8b, device: a10, precision: int8, users: 2,\n"
      "              output_tokens_per_s: 9000, source: a leaflet}\n"
      "    price: 0.7/h\n",
      "--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out;
  for (const auto& candidate : json["candidates"]) {
    if (candidate["name"] != "from the leaflet") continue;
    EXPECT_FALSE(candidate["slo_met"].get<bool>());
    EXPECT_THAT(candidate["out_because"].get<std::string>(), HasSubstr("x the roofline"));
  }
  const std::string routing = ReadFile(dir_ / "report/routing.yaml").value_or("");
  EXPECT_THAT(routing, HasSubstr("shed: {requests_per_s: "));
  EXPECT_THAT(routing, HasSubstr("weight: "));
  const Outcome checked = CheckRouting();
  EXPECT_EQ(checked.exit_code, 0) << checked.out << routing;
}

TEST_F(AdviseEndToEnd, AMistakeInThePlanIsUsage) {
  const Outcome outcome = Advise("name: x\ncandiates: []\n");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'candidates'?"));
}

TEST_F(AdviseEndToEnd, AServerThatCannotStartIsAnOutsideFault) {
  std::ofstream(dir_ / "broken.gguf") << "not a model";
  const Outcome outcome = Advise("name: x\ncandidates:\n  - {name: a, dtype: int4}\n",
                                 "--model '" + (dir_ / "broken.gguf").string() + "'");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("ended before it was ready"));
}

}  // namespace
}  // namespace tare
