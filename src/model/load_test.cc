#include "model/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tiny_checkpoint.h"

namespace tare::model {
namespace {

using testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

class LoadTest : public testing::Test {
 protected:
  LoadTest() {
    for (TinyModel& model : ReadTinyModels()) models_.emplace(model.name, std::move(model));
  }

  Result<std::unique_ptr<LanguageModel>> Load(const std::string& bytes, LoadOptions options = {}) {
    options.pool = &pool_;
    TARE_TRY(const GgufFile file, GgufFile::Parse(Bytes(bytes), "tiny.gguf"));
    return LoadModel(file, options);
  }

  // What loading a damaged 'llama' says.
  std::string ErrorWith(const TinyEdit& edit) {
    bytes_ = TinyGguf(models_.at("llama"), edit);
    const auto model = Load(bytes_);
    return model ? "no error" : model.error().message;
  }

  std::map<std::string, TinyModel> models_;
  std::string bytes_;
  ThreadPool pool_{2};
};

// One token decodes with one job for each matrix of a layer (q, k and v; output; gate and up;
// down), one for attention, and one for the logits: waking threads costs as much as a small
// product.
TEST_F(LoadTest, DecodingForksAtMostFiveTimesALayer) {
  const std::string bytes = TinyGguf(models_.at("llama"));
  const auto model = Load(bytes);
  ASSERT_TRUE(model) << model.error().message;
  const std::uint64_t before = pool_.jobs();
  const TokenId tokens[] = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}};
  RunTokens(**model, tokens, 1);
  const std::uint64_t jobs = pool_.jobs() - before;
  const auto layers = static_cast<std::uint64_t>((*model)->config().layers);
  EXPECT_GT(jobs, 4 * layers);  // the products are large enough to be shared out
  EXPECT_LE(jobs, 4 * (5 * layers + 1));
}

TEST_F(LoadTest, LogitsMatchTransformers) {
  ASSERT_FALSE(models_.empty());
  for (const auto& [name, tiny] : models_) {
    const std::string bytes = TinyGguf(tiny);
    LoadOptions options;
    options.dtype = kernels::WeightType::kF32;
    const auto model = Load(bytes, options);
    ASSERT_TRUE(model) << name << ": " << model.error().message;
    EXPECT_EQ((*model)->config().parameters, [&] {
      std::uint64_t sum = 0;
      for (const auto& [tensor, shape] : tiny.tensors) {
        std::uint64_t size = 1;
        for (const auto d : shape) size *= static_cast<std::uint64_t>(d);
        sum += size;
      }
      return sum;
    }()) << name;
    for (const TinyCase& one : tiny.cases) {
      for (const int chunk : {1, 7, 512}) {
        const auto logits = RunTokens(**model, one.tokens, chunk);
        for (std::size_t i = 0; i < one.positions.size(); ++i) {
          EXPECT_LT(
              MaxDifference(logits[static_cast<std::size_t>(one.positions[i])], one.logits[i]),
              1e-4f)
              << name << ", position " << one.positions[i] << ", chunk " << chunk;
        }
      }
    }
  }
}

TEST_F(LoadTest, SequencesOfOneStepDoNotMix) {
  const std::string bytes = TinyGguf(models_.at("llama"));
  auto model = Load(bytes).value();
  const auto& cases = models_.at("llama").cases;
  const auto alone_a = RunTokens(*model, cases[0].tokens, 512).back();
  const auto alone_b = RunTokens(*model, cases[1].tokens, 512).back();

  auto kv = kernels::KvPages::Create(model->kv_shape(kernels::KvType::kF32), 8).value();
  const std::vector<PageId> pages_a = {PageId{5}};
  const std::vector<PageId> pages_b = {PageId{2}, PageId{7}, PageId{0}};
  std::vector<TokenId> tokens = cases[0].tokens;
  tokens.insert(tokens.end(), cases[1].tokens.begin(), cases[1].tokens.end());
  const int a = static_cast<int>(cases[0].tokens.size());
  const int b = static_cast<int>(cases[1].tokens.size());
  const kernels::SequenceRows sequences[] = {{0, a, 0, pages_a}, {a, b, 0, pages_b}};
  // A row may be asked for more than once.
  const int wanted[] = {a + b - 1, a - 1, a - 1};
  const auto vocab = static_cast<std::size_t>(model->config().vocab);
  std::vector<float> logits(3 * vocab);
  model->Forward({tokens, sequences, wanted}, kv, logits);
  const std::span<const float> all(logits);
  EXPECT_LT(MaxDifference(all.subspan(0, vocab), alone_b), 1e-5f);
  EXPECT_LT(MaxDifference(all.subspan(vocab, vocab), alone_a), 1e-5f);
  EXPECT_LT(MaxDifference(all.subspan(2 * vocab, vocab), alone_a), 1e-5f);
}

// A row's bits do not depend on the rows beside it, on how its sequence is cut into steps, nor on
// the number of threads, though rows share experts and experts share threads.
TEST_F(LoadTest, CompanyChangesNoBit) {
  for (const char* name : {"qwen3_moe", "deepseek_v2_lite", "deepseek_v3"}) {
    const std::string bytes = TinyGguf(models_.at(name));
    const auto& cases = models_.at(name).cases;
    for (const char* dtype : {"f32", "bf16", "int8", "int4"}) {
      LoadOptions options;
      options.dtype = ParseDtype(dtype).value();
      const auto model = Load(bytes, options).value();
      const auto alone = RunTokens(*model, cases[1].tokens, 512, kernels::KvType::kBf16);
      ThreadPool one(1);
      options.pool = &one;
      const auto file = GgufFile::Parse(Bytes(bytes), "tiny.gguf").value();
      const auto with_one = LoadModel(file, options).value();
      EXPECT_EQ(RunTokens(*with_one, cases[1].tokens, 3, kernels::KvType::kBf16), alone)
          << name << " " << dtype;

      // The sequence's rows between those of another.
      auto kv = kernels::KvPages::Create(model->kv_shape(kernels::KvType::kBf16), 8).value();
      const std::vector<PageId> pages_a = {PageId{5}};
      const std::vector<PageId> pages_b = {PageId{2}, PageId{7}, PageId{0}};
      std::vector<TokenId> tokens = cases[0].tokens;
      tokens.insert(tokens.end(), cases[1].tokens.begin(), cases[1].tokens.end());
      const int a = static_cast<int>(cases[0].tokens.size());
      const int b = static_cast<int>(cases[1].tokens.size());
      const kernels::SequenceRows sequences[] = {{0, a, 0, pages_a}, {a, b, 0, pages_b}};
      const int wanted[] = {a + b - 1};
      std::vector<float> logits(static_cast<std::size_t>(model->config().vocab));
      model->Forward({tokens, sequences, wanted}, kv, logits);
      EXPECT_EQ(logits, alone.back()) << name << " " << dtype;
    }
  }
}

TEST_F(LoadTest, OlderFilesHaveKvBInOnePiece) {
  for (const char* name : {"deepseek_v2", "kimi_k2"}) {
    const TinyModel& tiny = models_.at(name);
    const std::string bytes = TinyGguf(tiny, {}, true);
    LoadOptions options;
    options.dtype = kernels::WeightType::kF32;
    const auto model = Load(bytes, options);
    ASSERT_TRUE(model) << model.error().message;
    const TinyCase& one = tiny.cases[1];
    const auto logits = RunTokens(**model, one.tokens, 7);
    EXPECT_LT(MaxDifference(logits.back(), one.logits.back()), 1e-4f) << name;
  }
}

TEST_F(LoadTest, CountsWhereTokensWent) {
  EXPECT_EQ(Load(TinyGguf(models_.at("llama"))).value()->expert_use(), nullptr);
  const std::string bytes = TinyGguf(models_.at("deepseek_v3"));
  const auto model = Load(bytes).value();
  const ExpertUse& use = *model->expert_use();
  EXPECT_EQ(use.first_layer, 1);
  ASSERT_EQ(use.layers, 2);
  ASSERT_EQ(use.experts, 8);
  const auto& tokens = models_.at("deepseek_v3").cases[1].tokens;
  (void)RunTokens(*model, tokens, 1);
  for (int layer = 0; layer < 2; ++layer) {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : use.layer(layer)) sum += count;
    EXPECT_EQ(sum, 3 * tokens.size());  // each token goes to 3 experts
  }
  EXPECT_EQ(use.step_touched, 6u);
  EXPECT_EQ(use.step_present, 16u);
  EXPECT_EQ(use.touched, 6 * tokens.size());
  EXPECT_EQ(use.present, 16 * tokens.size());
}

TEST_F(LoadTest, NamesMisshapedExperts) {
  const auto error = [&](const char* model, const char* tensor, const TinyEdit& edit) {
    const std::string bytes =
        TinyGguf(models_.at(model), [&](auto& name, auto& shape, auto& values) {
          return name != tensor || edit(name, shape, values);
        });
    const auto loaded = Load(bytes);
    return loaded ? "no error" : loaded.error().message;
  };
  const auto swap = [](auto&, auto& shape, auto&) {
    std::swap(shape[1], shape[2]);
    return true;
  };
  EXPECT_THAT(error("qwen3_moe", "blk.1.ffn_up_exps.weight", swap),
              HasSubstr("'blk.1.ffn_up_exps.weight' has shape [8, 64, 48], the model's facts ask "
                        "for [8, 48, 64]"));
  EXPECT_THAT(error("deepseek_v2", "blk.0.attn_v_b.weight", swap), HasSubstr("for [4, 24, 32]"));
  EXPECT_THAT(
      error("deepseek_v2", "blk.0.attn_v_b.weight", [](auto&, auto&, auto&) { return false; }),
      HasSubstr("'blk.0.attn_v_b.weight' is missing"));
  EXPECT_THAT(
      error("qwen3_moe", "blk.0.ffn_down_exps.weight", [](auto&, auto&, auto&) { return false; }),
      HasSubstr("'blk.0.ffn_down.0.weight' is missing"));
}

TEST_F(LoadTest, NarrowTypesStayClose) {
  const std::string bytes = TinyGguf(models_.at("llama"));
  const TinyCase& one = models_.at("llama").cases[1];
  const std::pair<kernels::WeightType, float> bounds[] = {{kernels::WeightType::kBf16, 0.05f},
                                                          {kernels::WeightType::kInt8, 0.2f},
                                                          {kernels::WeightType::kInt4, 1.0f}};
  for (const auto& [type, bound] : bounds) {
    LoadOptions options;
    options.dtype = type;
    auto model = Load(bytes, options).value();
    EXPECT_EQ(model->weight_type(), type);
    const auto logits = RunTokens(*model, one.tokens, 512);
    EXPECT_LT(MaxDifference(logits.back(), one.logits.back()), bound) << kernels::ToString(type);
  }
}

TEST_F(LoadTest, NamesMissingTensor) {
  EXPECT_EQ(ErrorWith([](auto& name, auto&, auto&) { return name != "blk.1.ffn_up.weight"; }),
            "tiny.gguf: tensor 'blk.1.ffn_up.weight' is missing; the checkpoint is incomplete, or "
            "not of family llama");
}

TEST_F(LoadTest, NamesMisshapedTensor) {
  EXPECT_EQ(ErrorWith([](auto& name, auto& shape, auto&) {
              if (name == "blk.0.attn_k.weight") std::swap(shape[0], shape[1]);
              return true;
            }),
            "tiny.gguf: tensor 'blk.0.attn_k.weight' has shape [64, 32] (rows first), the model's "
            "facts ask for [32, 64]");
  EXPECT_THAT(ErrorWith([](auto& name, auto& shape, auto& values) {
                if (name == "output_norm.weight") {
                  shape = {63};
                  values.resize(63);
                }
                return true;
              }),
              HasSubstr("'output_norm.weight' has shape [63] (rows first), the model's facts ask "
                        "for [64]"));
}

TEST_F(LoadTest, NamesTensorsItHasNoUseFor) {
  EXPECT_THAT(ErrorWith([](auto& name, auto&, auto&) {
                if (name == "rope_freqs.weight") name = "x";
                return true;
              }),
              "no error");
  const std::string bytes = TinyGguf(models_.at("qwen2"), [](auto&, auto&, auto&) { return true; });
  std::string as_llama = bytes;  // qwen2 and llama differ in the biases only
  for (std::size_t at; (at = as_llama.find("qwen2")) != std::string::npos;) {
    as_llama.replace(at, 5, "llama");
  }
  const auto model = Load(as_llama);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("family llama has no use for tensor "
                                               "'blk.0.attn_k.bias', 'blk.0.attn_q.bias'"));
  EXPECT_THAT(model.error().message, HasSubstr("and 1 more"));
}

TEST_F(LoadTest, RefusesUnknownArchitectureByName) {
  std::string bytes = TinyGguf(models_.at("llama"));
  bytes.replace(bytes.find("llama"), 5, "mamba");
  const auto model = Load(bytes);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(model.error().message,
            "tiny.gguf: GGUF architecture 'mamba' is not supported; supported are llama, qwen2, "
            "qwen3, qwen3moe, deepseek2");
}

TEST_F(LoadTest, RefusesSenselessFacts) {
  const auto with = [&](const char* key, std::uint32_t value) {
    std::string bytes = TinyGguf(models_.at("llama"));
    const std::size_t at = bytes.find(key) + std::string_view(key).size() + 4;
    std::memcpy(bytes.data() + at, &value, 4);
    const auto model = Load(bytes);
    return model ? "no error" : model.error().message;
  };
  EXPECT_THAT(with("llama.block_count", 0), HasSubstr("number of layers is 0"));
  EXPECT_THAT(with("llama.attention.head_count_kv", 0), HasSubstr("number of KV heads is 0"));
  EXPECT_THAT(with("llama.attention.head_count_kv", 3), HasSubstr("cannot share 3 KV heads"));
  EXPECT_THAT(with("llama.embedding_length", 0xffffffff), HasSubstr("which no model has"));
  EXPECT_THAT(with("llama.attention.layer_norm_rms_epsilon", 0), HasSubstr("norm epsilon is 0"));
}

TEST_F(LoadTest, ReportsProgressInOrder) {
  const std::string bytes = TinyGguf(models_.at("llama"));
  LoadOptions options;
  std::vector<double> fractions;
  options.progress = [&](double fraction, std::string_view what) {
    EXPECT_FALSE(what.empty());
    fractions.push_back(fraction);
  };
  ASSERT_TRUE(Load(bytes, options));
  EXPECT_TRUE(std::ranges::is_sorted(fractions));
  EXPECT_EQ(fractions.front(), 0.0);
  EXPECT_EQ(fractions.back(), 1.0);
}

TEST_F(LoadTest, EstimateMatchesWhatLoadingTakes) {
  for (const auto& [name, tiny] : models_) {
    const std::string bytes = TinyGguf(tiny);
    const auto file = GgufFile::Parse(Bytes(bytes), "tiny.gguf").value();
    for (const char* dtype : {"auto", "f32", "bf16", "int8", "int4"}) {
      LoadOptions options;
      options.dtype = ParseDtype(dtype).value();
      const auto need = EstimateMemory(file, options.dtype, 100);
      ASSERT_TRUE(need);
      const auto model = Load(bytes, options);
      ASSERT_TRUE(model);
      const double ratio =
          static_cast<double>(need->weights) / static_cast<double>((*model)->weight_bytes());
      EXPECT_NEAR(ratio, 1.0, 0.02) << name << " " << dtype;
      EXPECT_EQ(need->kv,
                100 * kernels::KvBytesPerToken((*model)->kv_shape(kernels::KvType::kBf16)));
    }
  }
}

TEST_F(LoadTest, ParsesDtypeNames) {
  EXPECT_EQ(ParseDtype("auto").value(), std::nullopt);
  EXPECT_EQ(ParseDtype("int4").value(), kernels::WeightType::kInt4);
  EXPECT_EQ(ParseDtype("fp16").error().message,
            "dtype 'fp16' is not known; it may be auto, f32, bf16, int8 or int4");
  EXPECT_EQ(ParseDtype("fp16").error().param, "dtype");
}

}  // namespace
}  // namespace tare::model
