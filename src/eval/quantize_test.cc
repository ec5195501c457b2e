#include "eval/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/files.h"
#include "eval/sample_texts.h"
#include "model/load.h"
#include "model/safetensors_writer.h"
#include "model/tiny_checkpoint.h"

namespace tare::eval {
namespace {

using model::ReadTinyModels;
using model::RunTokens;
using model::TinyModel;
using nlohmann::json;
using testing::HasSubstr;

std::vector<float> Normal(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> ValuesOf(const CodedMatrix& m) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < m.rows * m.cols; ++i) {
    const auto at = static_cast<std::size_t>(i / m.cols * m.groups() + i % m.cols / m.rule.group);
    const int code = m.codes[static_cast<std::size_t>(i)] - m.zeros[at];
    out.push_back(m.scales[at] * static_cast<float>(code));
  }
  return out;
}

TEST(CodedMatrix, RoundsByHand) {
  ThreadPool pool(1);
  std::vector<float> weights(32, 0.0f);
  weights[0] = -0.5f;
  weights[1] = 1.0f;
  weights[2] = 0.26f;
  const RoundingRule rule{4, 32, true};
  const CodedMatrix m = RoundMatrix(weights, 1, 32, rule, {}, pool);
  EXPECT_NEAR(m.scales[0], 0.1f, 1e-4f);  // 1.5 / 15
  EXPECT_EQ(m.zeros[0], 5);
  EXPECT_EQ(m.codes[0], 0);
  EXPECT_EQ(m.codes[1], 15);
  EXPECT_EQ(m.codes[2], 8);
  EXPECT_EQ(m.codes[3], 5);  // zero stays zero
  const CodedMatrix even = RoundMatrix(weights, 1, 32, {4, 32, false}, {}, pool);
  EXPECT_NEAR(even.scales[0], 1.0f / 7, 1e-4f);
  EXPECT_EQ(even.zeros[0], 8);
  EXPECT_EQ(even.codes[1], 15);
}

RC_GTEST_PROP(CodedMatrixProperty, ErrorIsAtMostHalfAStepAndBlocksHoldTheValues, ()) {
  ThreadPool pool(1);
  const int bits = *rc::gen::element(4, 8);
  const RoundingRule rule{bits, *rc::gen::element<std::int64_t>(32, 64, 128),
                          bits == 4 && *rc::gen::arbitrary<bool>()};
  const std::int64_t rows = *rc::gen::inRange(1, 4);
  const std::int64_t cols = 32 * *rc::gen::inRange(1, 8);
  const auto weights =
      Normal(static_cast<std::size_t>(rows * cols), *rc::gen::arbitrary<unsigned>());
  const CodedMatrix m = RoundMatrix(weights, rows, cols, rule, {}, pool);
  const auto values = ValuesOf(m);
  const auto blocks = m.Blocks();
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    kernels::DequantizeRow({m.stored_type(), rows, cols, blocks}, r, row);
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<std::size_t>(r * cols + c);
      const float scale = m.scales[static_cast<std::size_t>(r * m.groups() + c / rule.group)];
      // With a zero point the end of the range may fall half a step outside the codes.
      RC_ASSERT(std::fabs(values[i] - weights[i]) <= scale * (rule.zero_point ? 1.01f : 0.51f));
      RC_ASSERT(row[static_cast<std::size_t>(c)] == values[i]);
    }
  }
}

TEST(CodedMatrix, ImportanceDecidesWhichErrorIsAccepted) {
  ThreadPool pool(1);
  std::vector<float> weights = Normal(128, 3);
  weights[7] = 2.0f;  // an outlier that costs all others their precision
  std::vector<float> importance(128, 1.0f);
  importance[7] = 1e-6f;
  const auto miss = [&](const CodedMatrix& m) {
    const auto values = ValuesOf(m);
    double sum = 0;
    for (std::size_t i = 0; i < 128; ++i) {
      sum += importance[i] * std::pow(values[i] - weights[i], 2);
    }
    return sum;
  };
  const RoundingRule rule{4, 128, true};
  EXPECT_LT(miss(RoundMatrix(weights, 1, 128, rule, importance, pool)),
            0.5 * miss(RoundMatrix(weights, 1, 128, rule, {}, pool)));
}

// Whole groups of 32 need inputs a little wider than some tiny models have them: only their logits,
// which are not asked for here, are known for the other widths.
void Widen(TinyModel& tiny, const char* key, std::string_view part) {
  constexpr std::int64_t kWidth = 64;
  if (tiny.config.value(key, nlohmann::json()).is_null() || tiny.config[key] == 32) return;
  const std::int64_t had = tiny.config[key];
  tiny.config[key] = kWidth;
  for (auto& [name, shape] : tiny.tensors) {
    if (name.find(part) != std::string::npos) std::ranges::replace(shape, had, kWidth);
  }
}

// Those of dense layers and grouped-query attention, or those with experts.
std::vector<TinyModel> TinyModels(bool dense) {
  std::vector<TinyModel> models = ReadTinyModels();
  std::erase_if(models, [&](const TinyModel& tiny) {
    return tiny.config.contains("num_experts_per_tok") == dense;
  });
  for (TinyModel& tiny : models) {
    Widen(tiny, "moe_intermediate_size", ".experts.");
    Widen(tiny, "q_lora_rank", "self_attn.q_");
  }
  return models;
}

class QuantizeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tare-quantize-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path WriteFolder(const TinyModel& tiny) {
    const auto folder = dir_ / tiny.name;
    std::filesystem::create_directory(folder);
    std::vector<model::SafetensorsEntry> entries;
    for (const auto& [name, shape] : tiny.tensors) entries.push_back({name, "F32", shape});
    auto writer = model::SafetensorsWriter::Create(folder / "model.safetensors", entries);
    EXPECT_TRUE(writer);
    for (const auto& [name, shape] : tiny.tensors) {
      const auto values = model::TinyWeights(name, shape);
      EXPECT_TRUE(writer->Add(std::as_bytes(std::span(values))));
    }
    EXPECT_TRUE(writer->Commit());
    EXPECT_TRUE(WriteFileAtomic(folder / "config.json", tiny.config.dump()));
    EXPECT_TRUE(WriteFileAtomic(folder / "tokenizer_config.json", "{}"));
    return folder;
  }

  std::vector<std::vector<float>> Logits(const model::Checkpoint& checkpoint,
                                         std::span<const TokenId> tokens) {
    auto model = model::LoadModel(checkpoint, {.dtype = kernels::WeightType::kF32, .pool = &pool_});
    EXPECT_TRUE(model) << model.error().message;
    return RunTokens(**model, {tokens.begin(), tokens.end()}, 512);
  }

  // The largest difference of any position's logits, or for a mixture of its median position's:
  // where rounding turns the choice of experts, one position's logits jump.
  static float Loss(const std::vector<std::vector<float>>& logits,
                    const std::vector<std::vector<float>>& original, bool mixture) {
    std::vector<float> differences;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      differences.push_back(model::MaxDifference(logits[i], original[i]));
    }
    std::ranges::sort(differences);
    return mixture ? differences[differences.size() / 2] : differences.back();
  }

  // Rounds `source` both ways, writes it, and holds the written model against the one in memory.
  void RoundTrip(const std::filesystem::path& source, const TinyModel& tiny,
                 const RoundingRule& rule, bool aware, float allowed) {
    const auto checkpoint = model::OpenCheckpoint(source);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    ASSERT_TRUE(CheckQuantizable(**checkpoint, rule));
    const auto& tokens = tiny.cases[1].tokens;
    InputCollector inputs(64, 64);
    auto reference = model::LoadModel(
        **checkpoint,
        {.dtype = kernels::WeightType::kF32, .pool = &pool_, .observe = inputs.Observer()});
    ASSERT_TRUE(reference) << reference.error().message;
    ASSERT_TRUE(ReadInWindows(**reference, tokens, 16, {}));
    inputs.Stop();
    const auto tensors = QuantizeModel(**checkpoint, rule, aware ? &inputs : nullptr, pool_, {});
    ASSERT_TRUE(tensors) << tensors.error().message;
    const auto out = dir_ / "out";
    std::filesystem::remove_all(out);
    ASSERT_TRUE(CheckOutput(source, out, **checkpoint, rule));
    const auto bytes = WriteQuantized(source, out, **checkpoint, *tensors, rule, aware, pool_);
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_FALSE(CheckOutput(source, out, **checkpoint, rule)) << "must not overwrite";

    const auto rounded = MakeQuantizedCheckpoint(**checkpoint, *tensors);
    const auto written = model::OpenCheckpoint(out);
    ASSERT_TRUE(written) << written.error().message;
    const auto expected = Logits(*rounded, tokens);
    const auto logits = Logits(**written, tokens);
    const auto original = Logits(**checkpoint, tokens);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(model::MaxDifference(logits[i], expected[i]), allowed) << "position " << i;
      EXPECT_GT(model::MaxDifference(logits[i], original[i]), 0.0f);
    }
    const bool mixture = (*checkpoint)->config().experts.has_value();
    EXPECT_LT(Loss(logits, original, mixture), rule.bits == 8 ? 0.2f : 2.5f);
  }

  std::filesystem::path dir_;
  ThreadPool pool_{2};
};

TEST_F(QuantizeTest, WrittenFoldersComputeWhatWasMeasured) {
  for (const TinyModel& tiny : TinyModels(/*dense=*/true)) {
    const auto source = WriteFolder(tiny);
    RoundTrip(source, tiny, {4, 32, true}, true, 0.0f);   // as AutoAWQ
    RoundTrip(source, tiny, {4, 32, true}, false, 0.0f);  // pack-quantized with zero points
    RoundTrip(source, tiny, {4, 32, false}, true, 0.0f);  // symmetric
    RoundTrip(source, tiny, {8, 32, false}, false, 0.0f);
    const auto config = ReadFile(dir_ / "out/config.json");
    ASSERT_TRUE(config);
    EXPECT_EQ(json::parse(*config)["quantization_config"]["quant_method"], "compressed-tensors");
    EXPECT_TRUE(std::filesystem::exists(dir_ / "out/tokenizer_config.json"));
  }
}

TEST_F(QuantizeTest, WrittenGgufFilesComputeWhatWasMeasured) {
  const auto models = TinyModels(/*dense=*/true);
  const auto source = dir_ / "tiny.gguf";
  ASSERT_TRUE(WriteFileAtomic(source, model::TinyGguf(models.front())));
  RoundTrip(source, models.front(), {4, 64, true}, true, 1e-2f);  // minima are halves
  RoundTrip(source, models.front(), {4, 32, false}, true, 0.0f);
  RoundTrip(source, models.front(), {8, 128, false}, false, 0.0f);
}

TEST_F(QuantizeTest, MixturesAsFoldersComputeWhatWasMeasured) {
  for (const TinyModel& tiny : TinyModels(/*dense=*/false)) {
    SCOPED_TRACE(tiny.name);
    const auto source = WriteFolder(tiny);
    RoundTrip(source, tiny, {4, 32, true}, true, 0.0f);
    const auto config = ReadFile(dir_ / "out/config.json");
    ASSERT_TRUE(config);
    const json kept = json::parse(*config)["quantization_config"]["modules_to_not_convert"];
    EXPECT_EQ(kept[1], "mlp.gate");
    RoundTrip(source, tiny, {8, 32, false}, false, 0.0f);
  }
}

// Experts are one tensor there.
TEST_F(QuantizeTest, MixturesAsGgufComputeWhatWasMeasured) {
  for (const TinyModel& tiny : TinyModels(/*dense=*/false)) {
    SCOPED_TRACE(tiny.name);
    if (tiny.name == "kimi_k2") continue;  // GGUF has deepseek_v3 for both
    const auto source = dir_ / (tiny.name + ".gguf");
    ASSERT_TRUE(WriteFileAtomic(source, model::TinyGguf(tiny)));
    RoundTrip(source, tiny, {4, 32, true}, true, 2e-2f);  // minima are halves
    RoundTrip(source, tiny, {8, 32, false}, true, 0.0f);
  }
}

TEST_F(QuantizeTest, ExpertsThatFewTokensReachAreRoundedPlainlyAndCounted) {
  const TinyModel tiny = TinyModels(/*dense=*/false).front();
  const auto checkpoint = model::OpenCheckpoint(WriteFolder(tiny));
  ASSERT_TRUE(checkpoint);
  InputCollector inputs(64, 64);
  auto reference = model::LoadModel(
      **checkpoint,
      {.dtype = kernels::WeightType::kF32, .pool = &pool_, .observe = inputs.Observer()});
  ASSERT_TRUE(reference);
  ASSERT_TRUE(ReadInWindows(**reference, tiny.cases[1].tokens, 64, {}));
  const RoundingRule rule{4, 32, true};
  const auto plain = QuantizeModel(**checkpoint, rule, nullptr, pool_, {});
  const auto aware = QuantizeModel(**checkpoint, rule, &inputs, pool_, {});
  ASSERT_TRUE(plain && aware);
  EXPECT_EQ(plain->experts, 16);
  EXPECT_EQ(plain->experts_unsearched, 0) << "nothing was searched";
  int few = 0;
  for (int layer = 0; layer < 2; ++layer) {
    std::int64_t reached = 0;
    for (int expert = 0; expert < 8; ++expert) {
      const auto* seen = inputs.Find(fmt::format("blk.{}.ffn_down_exps.weight[{}]", layer, expert));
      const std::int64_t rows = seen == nullptr ? 0 : seen->rows;
      reached += rows;
      const std::string down = fmt::format("blk.{}.ffn_down.{}.weight", layer, expert);
      const bool same = plain->matrices.at(down).codes == aware->matrices.at(down).codes;
      EXPECT_EQ(same, rows < kLeastExpertInputs) << down << " after " << rows;
      few += rows < kLeastExpertInputs;
    }
    EXPECT_EQ(reached, 3 * 40) << "three experts a token";
  }
  EXPECT_EQ(aware->experts_unsearched, few);
  EXPECT_GT(few, 0);
  EXPECT_LT(few, 16);
}

TEST(InputCollector, KeepsEvenlySpreadInputsOfTextsOfAnyLength) {
  InputCollector inputs(4, 2);
  const auto see = inputs.Observer();
  for (float row = 0; row < 11; ++row) {
    see("w", std::vector<float>{row, -row}, 2);
    see("w[0]", std::vector<float>{row, -row}, 2);
  }
  const InputStatistics& seen = *inputs.Find("w");
  EXPECT_EQ(seen.rows, 11);
  EXPECT_EQ(seen.sample, (std::vector<float>{0, 0, 4, -4, 8, -8}));
  EXPECT_EQ(seen.MeanMagnitudes(), (std::vector<float>{5, 5}));
  EXPECT_EQ(inputs.Find("w[0]")->sample, (std::vector<float>{0, 0, 8, -8}));
  inputs.Stop();
  see("w", std::vector<float>{1, 1}, 2);
  EXPECT_EQ(seen.rows, 11);
}

// Scales go into one matrix and out of another: without rounding, nothing changes.
TEST_F(QuantizeTest, ScalingAloneKeepsTheFunction) {
  std::vector<TinyModel> models = TinyModels(/*dense=*/true);
  for (TinyModel& tiny : TinyModels(/*dense=*/false)) models.push_back(std::move(tiny));
  for (const TinyModel& tiny : models) {
    const auto source = WriteFolder(tiny);
    const auto checkpoint = model::OpenCheckpoint(source);
    ASSERT_TRUE(checkpoint);
    const auto& tokens = tiny.cases[1].tokens;
    InputCollector inputs(64, 64);
    auto reference = model::LoadModel(
        **checkpoint,
        {.dtype = kernels::WeightType::kF32, .pool = &pool_, .observe = inputs.Observer()});
    ASSERT_TRUE(reference);
    ASSERT_TRUE(ReadInWindows(**reference, tokens, 64, {}));
    inputs.Stop();
    // Eight bits over groups of 32 leave little else than the scaling. Some scale must differ.
    const auto tensors = QuantizeModel(**checkpoint, {8, 32, false}, &inputs, pool_, {});
    ASSERT_TRUE(tensors) << tensors.error().message;
    const auto rounded = MakeQuantizedCheckpoint(**checkpoint, *tensors);
    const auto expected = Logits(**checkpoint, tokens);
    const auto logits = Logits(*rounded, tokens);
    EXPECT_LT(Loss(logits, expected, (*checkpoint)->config().experts.has_value()), 0.2f)
        << tiny.name;
    const bool moved = std::ranges::any_of(tensors->scaled, [&](const auto& entry) {
      const std::string name = (*checkpoint)->Find(entry.first)->name;
      return entry.second != model::TinyWeights(name, tiny.tensors.at(name));
    });
    EXPECT_TRUE(moved) << tiny.name;
  }
}

TEST_F(QuantizeTest, RefusesWhatItCannotRound) {
  const auto source = WriteFolder(TinyModels(/*dense=*/true).front());
  const auto checkpoint = model::OpenCheckpoint(source);
  ASSERT_TRUE(checkpoint);
  const auto error = [](const Status& status) {
    return status ? std::string("no error") : status.error().message;
  };
  EXPECT_THAT(error(CheckQuantizable(**checkpoint, {4, 48, true})), HasSubstr("group of 48"));
  EXPECT_THAT(error(CheckQuantizable(**checkpoint, {8, 32, true})), HasSubstr("no zero points"));
  EXPECT_THAT(error(CheckOutput(source, dir_ / "new", **checkpoint, {4, 128, true})),
              HasSubstr("no multiple of 128"));
  EXPECT_THAT(error(CheckOutput(source, dir_, **checkpoint, {4, 32, true})),
              HasSubstr("exists already"));
}

TEST(SampleTexts, ShareNoSentence) {
  const std::string_view measuring = MeasuringText();
  for (std::size_t at = 0; at + 40 < measuring.size(); at += 40) {
    EXPECT_EQ(CalibrationText().find(measuring.substr(at, 40)), std::string_view::npos);
  }
}

}  // namespace
}  // namespace tare::eval
