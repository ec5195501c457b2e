// The known answers of the specification (row CL1), each worked out beside the check, and no false
// alarm on measured figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <map>

#include "econ/claims_report.h"
#include "econ/measured_data.h"

namespace tare::econ {
namespace {

using ::testing::HasSubstr;

const Catalog& BuiltIn() {
  static const Catalog catalog = *Catalog::BuiltIn();
  return catalog;
}

Result<ClaimsFile> Read(std::string_view yaml) {
  TARE_TRY(config::Document document, config::Document::Parse(yaml, "claims.yaml"));
  return ReadClaims(document, BuiltIn());
}

// Verdict of one claim, given its keys in YAML flow style.
Judgement Check(const std::string& keys) {
  Result<ClaimsFile> file = Read("claims: [{id: a, " + keys + "}]");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return file && file->claims.size() == 1 ? Judge(file->claims[0].body) : Judgement{};
}

std::map<std::string, Judgement> PublishedVerdicts() {
  auto document =
      config::Document::Load(std::filesystem::path(TARE_SOURCE_DIR) / "examples/claims/spec.yaml");
  EXPECT_TRUE(document.has_value()) << document.error().message;
  Result<ClaimsFile> file = ReadClaims(*document, BuiltIn());
  EXPECT_TRUE(file.has_value()) << file.error().message;
  std::map<std::string, Judgement> verdicts;
  for (const JudgedClaim& judged : JudgeAll(*file)) {
    verdicts[judged.claim.id] = judged.judgement;
  }
  return verdicts;
}

TEST(PublishedClaims, KnownAnswersComeOut) {
  const auto verdicts = PublishedVerdicts();
  EXPECT_GE(verdicts.size(), 60u);
  auto expect = [&](const char* id, Verdict verdict, const char* arithmetic) {
    ASSERT_TRUE(verdicts.contains(id)) << id;
    EXPECT_EQ(ToString(verdicts.at(id).verdict), ToString(verdict)) << id;
    EXPECT_THAT(verdicts.at(id).arithmetic, HasSubstr(arithmetic)) << id;
  };
  // 235.741e9 * 2 B = 471.5 GB = 439.1 GiB.
  expect("LT6-236b-fp16", Verdict::kImpossible, "439.1 GiB");
  expect("LT6-236b-fp16-one-device", Verdict::kImpossible, "439.1 GiB");
  // 19.85e9 * 8 / 1.0264e12 = 0.155 bits a weight.
  expect("LT1-memory-trillion", Verdict::kImpossible, "0.15 bits a weight");
  // 3350e9 / (7e9 * 2) = 239.3.
  expect("EC3-7b-3350", Verdict::kImpossible, "239.3 tokens/s");
  expect("LT5-fp16-drop", Verdict::kInconsistent, "a gain, not a drop");
  expect("EC8-self-built", Verdict::kInconsistent, "747.0 (end of year)");
  expect("EC8-hybrid", Verdict::kInconsistent, "577.9 (end of year)");
  expect("EC8-cloud", Verdict::kInconsistent, "500.6 (end of year)");
  expect("EC5-npv-high", Verdict::kInconsistent, "= 53.45, not 421.9");
  expect("EC5-npv-high", Verdict::kInconsistent, "multiplied by four");
  expect("EC4-range", Verdict::kInconsistent, "75.5");
  expect("EC7-avoided", Verdict::kInconsistent, "189.5");
  expect("EC11-contention", Verdict::kInconsistent, "0.433 %");
  // 2,700 / 0.14 / 365 = 52.84 million.
  expect("EC1-break-even", Verdict::kInconsistent, "52.84 M tokens/day");
  expect("LT1-throughput", Verdict::kPlausible, "+9.16 %");
  expect("EC1-payback-first", Verdict::kUnsupported, "outlay, price");
}

TEST(Claims, MemoryFit) {
  // 8.030e9 * 2 = 16.06 GB in 24 GB.
  EXPECT_EQ(Check("kind: memory_fit, model: llama-3-8b, precision: fp16, device: a10").verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: memory_fit, model: llama-3-8b, precision: fp16, device: t4").verdict,
            Verdict::kPlausible)  // 16.06 in 16 GB: within the rounding of the data sheet
      << "2 % tolerance";
  EXPECT_EQ(Check("kind: memory_fit, model: llama-3-8b, precision: fp32, device: a10").verdict,
            Verdict::kImpossible);
  EXPECT_EQ(Check("kind: memory_fit, model: llama-3-8b, used: 10 GB, device: a10").verdict,
            Verdict::kUnsupported);
  EXPECT_EQ(Check("kind: memory_fit, model: llama-3-8b, used: 30 GB, device: a10").verdict,
            Verdict::kImpossible);
  EXPECT_EQ(Check("kind: memory_fit, used: 30 GB").verdict, Verdict::kUnsupported);
}

TEST(Claims, DecodeAndPrefillRooflines) {
  // 2039 / (6.607 * 2) = 154.3 tokens/s.
  const std::string base = "kind: decode_rate, model: llama-7b, precision: fp16, device: a100-80, ";
  EXPECT_EQ(Check(base + "rate: 150 tokens/s, batch: 1").verdict, Verdict::kPlausible);
  EXPECT_EQ(Check(base + "rate: 170 tokens/s, batch: 1").verdict, Verdict::kImpossible);
  EXPECT_EQ(Check(base + "rate: 170 tokens/s, batch: 2").verdict, Verdict::kPlausible);
  EXPECT_EQ(Check(base + "rate: 170 tokens/s").verdict, Verdict::kUnsupported);
  // 312e12 / (2 * 6.607e9) = 23,600 tokens/s at any batch.
  EXPECT_EQ(Check(base + "rate: 30000 tokens/s, batch: 4096").verdict, Verdict::kImpossible);
  // 2 * 6.476e9 * 1000 / 312e12 = 41.5 ms.
  const std::string prompt =
      "kind: prefill, model: llama-7b, precision: fp16, device: a100-80, prompt: 1000 tokens, ";
  EXPECT_EQ(Check(prompt + "time: 60 ms").verdict, Verdict::kPlausible);
  EXPECT_EQ(Check(prompt + "time: 30 ms").verdict, Verdict::kImpossible);
}

TEST(Claims, Arithmetic) {
  EXPECT_EQ(Check("kind: change, from: 100 ms, to: 80 ms, stated: 20 %, direction: gain, "
                  "lower_is_better: true")
                .verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: change, from: 100 ms, to: 80 GB, stated: 20 %").verdict,
            Verdict::kInconsistent);
  EXPECT_EQ(Check("kind: sum, parts: [30 %, 40 %, 30 %], total: 100 %").verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: sum, parts: [30 ms, 40 ms], total: 100 ms").verdict,
            Verdict::kInconsistent);
  EXPECT_EQ(Check("kind: percentile_sum, parts: [30 ms, 40 ms], total: 70 ms").verdict,
            Verdict::kUnsupported);
  EXPECT_EQ(Check("kind: percentile_sum, parts: [30 ms, 40 ms], total: 35 ms").verdict,
            Verdict::kImpossible);
  EXPECT_EQ(Check("kind: percentile_sum, parts: [30 ms, 40 ms], total: 65 ms").verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: target, reached: 99.6 %, at_least: 99.5 %").verdict, Verdict::kPlausible);
  EXPECT_EQ(Check("kind: formula, formula: a +, stated: 3").verdict, Verdict::kUnsupported);
}

TEST(Claims, Finance) {
  // 100/1.1 + 100/1.21 = 173.55; the start of the year gives 190.91.
  const Judgement start =
      Check("kind: present_value, flows: [100, 100], rate: 10 %, stated: 190.9");
  EXPECT_EQ(start.verdict, Verdict::kPlausible);
  EXPECT_THAT(start.arithmetic, HasSubstr("start-of-year value"));
  EXPECT_EQ(Check("kind: present_value, flows: [100, 100], rate: 10 %, stated: 190.9, timing: end")
                .verdict,
            Verdict::kInconsistent);
  // 4.5 USD/h / (2500 * 3600 = 9 M tokens/h) = 0.50 a million.
  EXPECT_EQ(Check("kind: token_cost, price: 4.5 USD/h, rate: 2500 tokens/s, "
                  "stated: 0.50 USD/Mtoken")
                .verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: token_cost, price: 4.5 USD/h, rate: 2500 tokens/s, utilisation: 20 %, "
                  "stated: 0.50 USD/Mtoken")
                .verdict,
            Verdict::kInconsistent);
}

TEST(Claims, Services) {
  // 1 / (1 - 0.5 + 0.5/4) = 1.6 at most.
  EXPECT_EQ(
      Check("kind: amdahl, part_share: 50 %, part_speedup: 4.0, overall_speedup: 1.6").verdict,
      Verdict::kPlausible);
  EXPECT_EQ(
      Check("kind: amdahl, part_share: 50 %, part_speedup: 4.0, overall_speedup: 1.9").verdict,
      Verdict::kImpossible);
  EXPECT_EQ(Check("kind: amdahl, part_speedup: 4.0, overall_speedup: 4.2").verdict,
            Verdict::kImpossible);
  EXPECT_EQ(
      Check("kind: little, rate: 100 requests/s, time: 500 ms, in_flight: 50 requests").verdict,
      Verdict::kPlausible);
  EXPECT_EQ(
      Check("kind: little, rate: 100 requests/s, time: 500 ms, in_flight: 20 requests").verdict,
      Verdict::kInconsistent);
  // 2 * 0.9 * 0.8 / 1.7 = 0.847.
  EXPECT_EQ(Check("kind: f1, precision: 0.9, recall: 0.8, stated: 0.85").verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: f1, precision: 0.900, recall: 0.800, stated: 0.900").verdict,
            Verdict::kInconsistent);
  // 4.38 h of 8,760 is 0.05 %.
  EXPECT_EQ(
      Check("kind: availability, availability: 99.95 %, downtime: 4.38 h, period: 1 year").verdict,
      Verdict::kPlausible);
  EXPECT_EQ(
      Check("kind: availability, availability: 99.99 %, downtime: 4.38 h, period: 1 year").verdict,
      Verdict::kInconsistent);
  // 1 % errors, 50 % positives all missed at 10 %: 5 % of errors already: negative false alarms.
  EXPECT_EQ(
      Check("kind: accuracy, accuracy: 99.0 %, miss_rate: 10.0 %, prevalence: 50.0 %").verdict,
      Verdict::kInconsistent);
}

TEST(Claims, LinksAndTraining) {
  EXPECT_EQ(Check("kind: link_transfer, bytes: 10 GB, link: 64 GB/s, time: 100 ms").verdict,
            Verdict::kImpossible);
  EXPECT_EQ(Check("kind: link_transfer, bytes: 3.2 GB, link: 64 GB/s, time: 100 ms, stated: 50 %")
                .verdict,
            Verdict::kPlausible);
  EXPECT_EQ(Check("kind: training, model: llama-3-70b, tokens: 15e12 tokens, device: h100, "
                  "device_time: 10000 device*days")
                .verdict,
            Verdict::kImpossible);
}

TEST(ClaimsFileReading, MistakesAreErrorsNotVerdicts) {
  EXPECT_THAT(Read("claims: [{id: a, kind: memory_fti}]").error().message,
              HasSubstr("did you mean 'memory_fit'"));
  EXPECT_THAT(Read("claims: [{id: a, kind: change, form: 3}]").error().message,
              HasSubstr("did you mean 'from'"));
  EXPECT_THAT(Read("claims: [{id: a, kind: memory_fit, used: 30 W}]").error().message,
              HasSubstr("not a quantity in B"));
  EXPECT_THAT(Read("claims: [{id: a, kind: memory_fit, model: lama-3-8b}]").error().message,
              HasSubstr("llama-3-8b"));
  EXPECT_THAT(Read("claims: [{id: a, kind: f1}, {id: a, kind: f1}]").error().message,
              HasSubstr("two claims"));
}

TEST(ClaimsReport, JsonHasTheStableKeys) {
  const ClaimsFile file = *Read("claims: [{id: a, kind: f1, precision: 1, recall: 1, stated: 1}]");
  const nlohmann::json json = ClaimsJson(file, JudgeAll(file));
  for (const char* key : {"id", "verdict", "arithmetic", "margin"}) {
    EXPECT_TRUE(json["claims"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["claims"][0]["verdict"], "plausible");
}

TEST(ClaimsReport, PageEscapesWhatTheFileSays) {
  const ClaimsFile file = *Read("claims: [{id: a, kind: f1, says: \"<script>&\"}]");
  const std::string page = ClaimsHtml(file, JudgeAll(file));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;&amp;"));
  EXPECT_EQ(page.find("<script>"), std::string::npos);
}

// Measured decode and prefill figures of real servers: physics allows all of them.
TEST(Claims, NoFalseAlarmOnMeasuredFigures) {
  const std::filesystem::path data = MeasuredDataDir(TARE_SOURCE_DIR);
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no measured data at " << data;
  int judged = 0;
  auto expect_possible = [&](const std::string& keys) {
    const Judgement judgement = Check(keys);
    EXPECT_NE(judgement.verdict, Verdict::kImpossible) << keys << "\n" << judgement.arithmetic;
    EXPECT_NE(judgement.verdict, Verdict::kUnsupported) << keys << "\n" << judgement.arithmetic;
    ++judged;
  };
  for (auto& row : ReadCsv(data / "llm_pilot/summary.csv")) {
    const std::string device = row["gpu"] == "a100" ? "a100-80" : row["gpu"];
    const std::string subject = fmt::format(
        "model: llama-7b, precision: fp16, device: {}, devices: {}", device, row["n_gpu"]);
    expect_possible(fmt::format("kind: decode_rate, {}, rate: {} tokens/s, batch: {}", subject,
                                row["out_tok_per_s"], row["users"]));
    expect_possible(fmt::format("kind: decode_rate, {}, rate: {:.4f} tokens/s, batch: 1", subject,
                                1000 / std::stod(row["gap_p50_ms"])));
  }
  const std::map<std::string, std::string> precisions = {
      {"fp8", "fp8"}, {"fp4", "nvfp4"}, {"", "bf16"}};
  for (auto& row : ReadCsv(data / "silicon_refs_half.csv")) {
    if (row["batch_size"].empty()) continue;  // prefill and decode on different devices
    const std::string devices =
        std::to_string(std::stoi(row["tp_size"]) * std::max(1, std::stoi(row["pp_size"])));
    const std::string subject =
        fmt::format("model: {}, precision: {}, device: {}, devices: {}", row["model_path"],
                    precisions.at(row["precision"]), row["system"], devices);
    const double batch = std::stod(row["batch_size"]);
    expect_possible(fmt::format("kind: decode_rate, {}, rate: {:.3f} tokens/s, batch: {}", subject,
                                1000 / std::stod(row["silicon_tpot_ms"]) * batch, batch));
    expect_possible(fmt::format("kind: prefill, {}, prompt: {} tokens, time: {} ms", subject,
                                row["isl"], row["silicon_ttft_ms"]));
  }
  EXPECT_GE(judged, 40);
}

TEST(Claims, AnyNumbersAreJudged) {
  EXPECT_TRUE(rc::check("no figure crashes a judge", [] {
    auto number = [] { return std::to_string(*rc::gen::inRange(-1000, 1000) / 8.0); };
    for (const char* keys :
         {"kind: change, from: {0}, to: {1}, stated: {2} %",
          "kind: ratio, numerator: {0}, denominator: {1}, stated: {2}",
          "kind: present_value, flows: [{0}, {1}], rate: {2} %, stated: {0}",
          "kind: amdahl, part_share: {0} %, part_speedup: {1}, overall_speedup: {2}",
          "kind: accuracy, accuracy: {0} %, miss_rate: {1} %, prevalence: {2} %",
          "kind: f1, precision: {0}, recall: {1}, stated: {2}",
          "kind: decode_rate, parameters: {0}, precision: int4, bandwidth: {1} GB/s, rate: {2} "
          "tokens/s",
          "kind: little, rate: {0} requests/s, time: {1} s, in_flight: {2} requests"}) {
      RC_ASSERT(
          !Check(fmt::format(fmt::runtime(keys), number(), number(), number())).arithmetic.empty());
    }
  }));
}

}  // namespace
}  // namespace tare::econ
