#include "model/lora_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <list>

#include "model/load.h"
#include "model/lora_test_folder.h"

namespace tare::model {
namespace {

using testing::HasSubstr;

class LoraAdapterTest : public testing::Test {
 protected:
  LoraAdapterTest() {
    for (TinyModel& model : ReadTinyModels()) models_.emplace(model.name, std::move(model));
    for (TinyAdapter& one : ReadTinyAdapters()) adapters_.emplace(one.name, std::move(one));
  }

  std::unique_ptr<LanguageModel> Base(const std::string& name, kernels::WeightType type) {
    const std::string& bytes = bytes_.emplace_back(TinyGguf(models_.at(name)));
    const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)), "tiny.gguf");
    EXPECT_TRUE(file) << file.error().message;
    auto model = LoadModel(*file, {.dtype = type, .pool = &pool_});
    EXPECT_TRUE(model) << model.error().message;
    return *std::move(model);
  }

  static std::unique_ptr<const LoraAdapter> Load(const AdapterFolder& folder,
                                                 const LanguageModel& base) {
    auto adapter = LoraAdapter::Load(folder.path(), base.config(), base.weight_type());
    EXPECT_TRUE(adapter) << adapter.error().message;
    return adapter ? *std::move(adapter) : nullptr;
  }

  // What loading a changed adapter "all" beside `base` says.
  std::string ErrorWith(const std::function<void(TinyAdapter&)>& change,
                        const std::string& base = "llama") {
    TinyAdapter adapter = adapters_.at("all");
    change(adapter);
    const AdapterFolder folder(adapter);
    const auto model = Base(base, kernels::WeightType::kF32);
    const auto loaded = LoraAdapter::Load(folder.path(), model->config(), model->weight_type());
    return loaded ? "no error" : loaded.error().message;
  }

  std::map<std::string, TinyModel> models_;
  std::map<std::string, TinyAdapter> adapters_;
  std::list<std::string> bytes_;  // models read from them
  ThreadPool pool_{2};
};

TEST_F(LoraAdapterTest, LogitsMatchPeft) {
  ASSERT_GE(adapters_.size(), 6u);
  float worst = 0.0f;
  for (const auto& [name, tiny] : adapters_) {
    const auto model = Base(tiny.base, kernels::WeightType::kF32);
    const AdapterFolder folder(tiny);
    const auto adapter = Load(folder, *model);
    ASSERT_NE(adapter, nullptr) << name;
    EXPECT_EQ(static_cast<std::size_t>(adapter->modules()) * 2, tiny.tensors.size());
    for (const TinyCase& one : tiny.cases) {
      for (const int chunk : {1, 7, 512}) {  // decode, prompts in pieces, prompts whole
        const auto logits =
            RunTokens(*model, one.tokens, chunk, kernels::KvType::kF32, adapter.get());
        for (std::size_t i = 0; i < one.positions.size(); ++i) {
          const float difference =
              MaxDifference(logits[static_cast<std::size_t>(one.positions[i])], one.logits[i]);
          EXPECT_LT(difference, 2e-3f)
              << name << ", position " << one.positions[i] << ", chunk " << chunk;
          worst = std::max(worst, difference);
        }
      }
    }
  }
  std::printf("largest difference to peft: %.2g\n", static_cast<double>(worst));
}

TEST_F(LoraAdapterTest, NarrowTypesStayClose) {
  const TinyAdapter& tiny = adapters_.at("patterns");
  const AdapterFolder folder(tiny);
  for (const auto& [type, bound] :
       {std::pair(kernels::WeightType::kBf16, 0.2f), std::pair(kernels::WeightType::kInt8, 0.3f)}) {
    const auto model = Base(tiny.base, type);
    const auto adapter = Load(folder, *model);
    ASSERT_NE(adapter, nullptr);
    const TinyCase& one = tiny.cases.back();
    const auto logits = RunTokens(*model, one.tokens, 512, kernels::KvType::kF32, adapter.get());
    float worst = 0.0f;
    for (std::size_t i = 0; i < one.positions.size(); ++i) {
      worst = std::max(
          worst, MaxDifference(logits[static_cast<std::size_t>(one.positions[i])], one.logits[i]));
    }
    EXPECT_LT(worst, bound) << kernels::ToString(type);
    EXPECT_GT(worst, 0.0f);
  }
}

// Sequences with different adapters and without one, in one step, against each alone: bit for bit.
TEST_F(LoraAdapterTest, CompanyChangesNoBit) {
  const struct {
    const char* base;
    const char* two_of;
    const char* other;
    kernels::WeightType type;
  } kTries[] = {{"llama", "all", "patterns", kernels::WeightType::kF32},
                {"llama", "all", "patterns", kernels::WeightType::kBf16},
                {"llama", "all", "patterns", kernels::WeightType::kInt4},
                {"deepseek_v3", "latent", "latent", kernels::WeightType::kF32},
                {"deepseek_v3", "latent", "latent", kernels::WeightType::kBf16}};
  for (const auto& [base, two_of, other, type] : kTries) {
    const AdapterFolder first(adapters_.at(two_of)), second(adapters_.at(two_of), "other"),
        third(adapters_.at(other), "third");
    const auto model = Base(base, type);
    const auto a = Load(first, *model), b = Load(second, *model), c = Load(third, *model);
    const LoraAdapter* all[] = {a.get(), nullptr, b.get(), c.get(), nullptr, a.get()};
    const int lengths[] = {1, 3, 17, 33, 1, 20};
    constexpr int kCount = 6;
    std::vector<TokenId> tokens;
    std::vector<kernels::SequenceRows> sequences;
    std::vector<std::vector<PageId>> pages(kCount);
    std::uint32_t next_page = 0;
    std::vector<int> wanted;
    for (int s = 0; s < kCount; ++s) {
      auto& own = pages[static_cast<std::size_t>(s)];
      for (int p = 0; p <= lengths[s] / kernels::kTokensPerPage; ++p) {
        own.push_back(PageId{next_page++});
      }
      sequences.push_back({static_cast<int>(tokens.size()), lengths[s], 0, own});
      for (int i = 0; i < lengths[s]; ++i) {
        wanted.push_back(static_cast<int>(tokens.size()));
        tokens.push_back(TokenId{(i * 7 + s * 31 + 5) % 160});
      }
    }
    const auto shape = model->kv_shape(kernels::KvType::kF32);
    auto kv = kernels::KvPages::Create(shape, next_page).value();
    const auto vocab = static_cast<std::size_t>(model->config().vocab);
    std::vector<float> together(tokens.size() * vocab);
    model->Forward({tokens, sequences, wanted, all}, kv, together);

    std::vector<std::vector<float>> alone;
    for (int s = 0; s < kCount; ++s) {
      const auto own = std::span(tokens).subspan(
          static_cast<std::size_t>(sequences[static_cast<std::size_t>(s)].first_row),
          static_cast<std::size_t>(lengths[s]));
      // Token by token and whole: the same bits, too.
      for (const int chunk : {1, 512}) {
        auto rows = RunTokens(*model, own, chunk, kernels::KvType::kF32, all[s]);
        for (int i = 0; i < lengths[s]; ++i) {
          const std::size_t at =
              static_cast<std::size_t>(sequences[static_cast<std::size_t>(s)].first_row + i);
          const auto same = std::ranges::equal(rows[static_cast<std::size_t>(i)],
                                               std::span(together).subspan(at * vocab, vocab));
          EXPECT_TRUE(same) << kernels::ToString(type) << ", sequence " << s << ", row " << i
                            << ", chunk " << chunk;
        }
        if (chunk == 512) alone.push_back(std::move(rows.front()));
      }
    }
    EXPECT_NE(alone[0], alone[1]);
  }
}

TEST_F(LoraAdapterTest, TakesNoMoreMemoryThanPromised) {
  TinyAdapter thin = adapters_.at("all");  // of rank 1: mostly padding
  thin.config["r"] = 1;
  for (auto& [name, shape] : thin.tensors) std::ranges::replace(shape, 8, 1);
  adapters_.emplace("thin", thin);
  for (const auto& [name, tiny] : adapters_) {
    for (const auto type : {kernels::WeightType::kF32, kernels::WeightType::kInt8}) {
      const auto model = Base(tiny.base, type);
      const AdapterFolder folder(tiny);
      const auto adapter = Load(folder, *model);
      ASSERT_NE(adapter, nullptr) << name;
      std::uint64_t stored = 0;  // were it of 16-bit values
      for (const auto& [tensor, shape] : tiny.tensors) {
        stored += 2 * static_cast<std::uint64_t>(shape[0] * shape[1]);
      }
      EXPECT_LE(adapter->bytes(), LoraAdapter::MostBytes(stored, model->config(), type)) << name;
    }
  }
}

TEST_F(LoraAdapterTest, EveryLoadIsAnother) {
  const AdapterFolder folder(adapters_.at("all"));
  const auto model = Base("llama", kernels::WeightType::kF32);
  const auto one = Load(folder, *model), other = Load(folder, *model);
  EXPECT_NE(one->id(), other->id());
  EXPECT_EQ(one->bytes(), other->bytes());
  EXPECT_EQ(one->max_rank(), 8);
}

TEST_F(LoraAdapterTest, RefusesWhatDoesNotFitTheBase) {
  EXPECT_THAT(ErrorWith([](TinyAdapter&) {}, "qwen3"), HasSubstr("it was trained for"));
  EXPECT_THAT(ErrorWith([](TinyAdapter&) {}, "deepseek_v3"), HasSubstr("'self_attn.k_proj'"));
  EXPECT_THAT(ErrorWith(
                  [](TinyAdapter& one) {
                    one.tensors.clear();
                    one.tensors
                        ["base_model.model.model.layers.1.mlp.experts.3.up_proj.lora_A."
                         "weight"] = {8, 64};
                  },
                  "deepseek_v3"),
              testing::AllOf(HasSubstr("of an expert"), HasSubstr("mlp.shared_experts.up_proj")));
  EXPECT_THAT(ErrorWith([](TinyAdapter&) {}, "qwen3_moe"), HasSubstr("'mlp.down_proj'"));
  const auto q = [](const char* layer, const char* end) {
    return std::string("base_model.model.model.layers.") + layer + ".self_attn.q_proj." + end;
  };
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) {
                one.tensors[q("0", "lora_A.weight")] = {8, 65};
              }),
              testing::AllOf(HasSubstr("[8, 65]"), HasSubstr("[8, 64]")));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) { one.config["r"] = 4; }), HasSubstr("rank 4"));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) {
                one.tensors[q("2", "lora_A.weight")] = {8, 64};
              }),
              HasSubstr("is for layer 2, the base 'llama' has 2"));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) {
                one.tensors[q("-1", "lora_A.weight")] = {8, 64};
              }),
              HasSubstr("layers.-1.self_attn.q_proj.lora_A.weight' is no low-rank matrix"));
  for (const char* again : {"base_model.model.layers.1", "base_model.model.model.layers.01"}) {
    EXPECT_THAT(ErrorWith([&](TinyAdapter& one) {
                  one.tensors[std::string(again) + ".self_attn.q_proj.lora_A.weight"] = {8, 64};
                }),
                testing::AnyOf(HasSubstr("is there twice"), HasSubstr("one name is needed")));
  }
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) {
                one.tensors.erase(q("1", "lora_A.weight"));
                one.tensors["base_model.model.layers.1.self_attn.q_proj.lora_A.weight"] = {8, 64};
              }),
              HasSubstr("one name is needed"));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) { one.tensors.erase(q("1", "lora_B.weight")); }),
              HasSubstr("has no counterpart lora_B"));
  EXPECT_THAT(
      ErrorWith([&](TinyAdapter& one) { one.tensors[q("1", "lora_magnitude_vector")] = {64}; }),
      HasSubstr("q_proj.lora_magnitude_vector' is no low-rank matrix"));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) {
                one.tensors["base_model.model.lm_head.lora_A.weight"] = {8, 64};
              }),
              HasSubstr("lm_head.lora_A.weight' is no low-rank matrix"));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) { one.config["target_modules"].push_back("fc1"); }),
              HasSubstr("names 'fc1' among target_modules"));
  EXPECT_THAT(ErrorWith([&](TinyAdapter& one) { one.tensors.clear(); }), HasSubstr("no tensors"));
}

TEST_F(LoraAdapterTest, NamesWhatIsMissing) {
  const auto model = Base("llama", kernels::WeightType::kF32);
  const auto load = [&](const std::filesystem::path& path) {
    return LoraAdapter::Load(path, model->config(), model->weight_type()).error();
  };
  EXPECT_EQ(load("/nowhere/at/all").kind, ErrorKind::kNotFound);
  const AdapterFolder folder(adapters_.at("all"));
  std::filesystem::rename(folder.path() / "adapter_model.safetensors",
                          folder.path() / "adapter_model.bin");
  EXPECT_THAT(load(folder.path()).message, HasSubstr("pickle"));
}

}  // namespace
}  // namespace tare::model
