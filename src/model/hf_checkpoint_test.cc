#include "model/hf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "model/load.h"
#include "model/safetensors.h"
#include "model/tiny_checkpoint.h"

namespace tare::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string WithHeader(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  return out + header + data;
}

// The tensors whose name satisfies `wanted`, as a safetensors file of F32 or, cut off, BF16.
template <typename Wanted>
std::string Safetensors(const TinyModel& tiny, bool bf16, Wanted wanted) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, shape] : tiny.tensors) {
    if (!wanted(name)) continue;
    const std::size_t begin = data.size();
    for (const float value : TinyWeights(name, shape)) {
      const auto* bytes = reinterpret_cast<const char*>(&value);
      data.append(bf16 ? bytes + 2 : bytes, bf16 ? 2 : 4);
    }
    header[name] = {
        {"dtype", bf16 ? "BF16" : "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  return WithHeader(header.dump(), data);
}

class HuggingFaceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tare-folder-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    models_ = ReadTinyModels();
    ASSERT_FALSE(models_.empty());
    UseModel(models_.front());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void UseModel(const TinyModel& tiny) {
    Write("config.json", tiny.config.dump());
    Write("model.safetensors", Safetensors(tiny, false, [](auto&) { return true; }));
  }
  void Write(const char* name, std::string_view text) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / name, text));
  }
  Result<std::unique_ptr<LanguageModel>> Load() {
    TARE_TRY(const auto checkpoint, OpenCheckpoint(dir_));
    return LoadModel(*checkpoint, {.dtype = kernels::WeightType::kF32, .pool = &pool_});
  }
  std::string Error() {
    const auto model = Load();
    return model ? "no error" : model.error().message;
  }

  std::vector<TinyModel> models_;
  std::filesystem::path dir_;
  ThreadPool pool_{2};
};

TEST_F(HuggingFaceTest, LogitsMatchTransformers) {
  for (const TinyModel& tiny : models_) {
    UseModel(tiny);
    const auto model = Load();
    ASSERT_TRUE(model) << tiny.name << ": " << model.error().message;
    for (const TinyCase& one : tiny.cases) {
      const auto logits = RunTokens(**model, one.tokens, 512);
      for (std::size_t i = 0; i < one.positions.size(); ++i) {
        EXPECT_LT(MaxDifference(logits[static_cast<std::size_t>(one.positions[i])], one.logits[i]),
                  1e-4f)
            << tiny.name << ", position " << one.positions[i];
      }
    }
  }
}

TEST_F(HuggingFaceTest, ReadsShards) {
  const TinyModel& tiny = models_.front();
  const auto in_first = [](const std::string& name) { return name.find("layers.0") == name.npos; };
  std::filesystem::remove(dir_ / "model.safetensors");
  Write("a.safetensors", Safetensors(tiny, true, in_first));
  Write("b.safetensors", Safetensors(tiny, true, [&](auto& n) { return !in_first(n); }));
  json map;
  for (const auto& entry : tiny.tensors) {
    map[entry.first] = in_first(entry.first) ? "a.safetensors" : "b.safetensors";
  }
  Write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  auto model = Load();
  ASSERT_TRUE(model) << model.error().message;
  const auto logits = RunTokens(**model, tiny.cases[0].tokens, 512);
  EXPECT_LT(MaxDifference(logits.back(), tiny.cases[0].logits.back()), 0.1f);

  map["model.layers.9.mlp.up_proj.weight"] = "b.safetensors";
  Write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  EXPECT_THAT(Error(), HasSubstr("b.safetensors: tensor 'model.layers.9.mlp.up_proj.weight' is "
                                 "listed in the index, but missing"));
  map["x"] = "../b.safetensors";
  Write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  EXPECT_THAT(Error(), HasSubstr("tensor 'x' has no plain file name"));
  Write("model.safetensors.index.json", "[]");
  EXPECT_THAT(Error(), HasSubstr("has no object 'weight_map'"));
  std::filesystem::remove(dir_ / "model.safetensors.index.json");
  EXPECT_THAT(Error(), HasSubstr("holds neither model.safetensors nor"));
}

TEST_F(HuggingFaceTest, NamesTensorsAsTheFileDoes) {
  const auto without = [this](const std::string& part) {
    Write("model.safetensors", Safetensors(models_.front(), false, [&](const std::string& name) {
            return name.find(part) == std::string::npos;
          }));
    return Error();
  };
  EXPECT_THAT(without("1.self_attn.q_proj"),
              HasSubstr("tensor 'model.layers.1.self_attn.q_proj.weight' is missing"));
  EXPECT_THAT(without("lm_head"), HasSubstr("tensor 'lm_head.weight' is missing"));
}

TEST_F(HuggingFaceTest, RefusesQuantisedFoldersByMethod) {
  json config = models_.front().config;
  config["quantization_config"] = {{"quant_method", "awq"}};
  Write("config.json", config.dump());
  EXPECT_THAT(Error(), HasSubstr("quantised with 'awq'"));
}

TEST_F(HuggingFaceTest, ExpertsCanBeInspectedButNotComputed) {
  json config = models_.front().config;
  config.update({{"model_type", "qwen3_moe"},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 32}});
  Write("config.json", config.dump());
  EXPECT_THAT(Error(), HasSubstr("family qwen3_moe can be inspected, but not computed"));
}

TEST(SafetensorsTest, NamesWhatIsWrong) {
  const auto error = [](const std::string& header) {
    const std::string bytes = WithHeader(header, std::string(16, '\0'));
    const auto file = SafetensorsFile::Parse(Bytes(bytes), "f");
    return file ? "no error" : file.error().message;
  };
  EXPECT_EQ(error(R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})"), "no error");
  EXPECT_THAT(error("{"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(error("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(error(R"({"t":3})"), HasSubstr("'t' has no dtype"));
  EXPECT_THAT(error(R"({"t":{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}})"),
              HasSubstr("dtype 'Q7', which is not known"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("no shape"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})"),
              HasSubstr("a dimension is -2"));
  EXPECT_THAT(
      error(R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})"),
      HasSubstr("which is no size"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0]}})"),
              HasSubstr("no pair of data_offsets"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})"),
              HasSubstr("no pair of data_offsets"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})"),
              HasSubstr("ends at byte 20 of the data section, which has 16"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
              HasSubstr("has 8 bytes, its shape and dtype ask for 12"));
}

RC_GTEST_PROP(SafetensorsProperty, DamageNeverCrashes, ()) {
  std::string bytes = WithHeader(
      R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})",
      std::string(22, 'x'));
  const int flips = *rc::gen::inRange(0, 6);
  for (int i = 0; i < flips; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << *rc::gen::inRange(0, 8)));
  }
  bytes.resize(*rc::gen::inRange<std::size_t>(0, bytes.size() + 1));
  if (const auto file = SafetensorsFile::Parse(Bytes(bytes), "f")) {
    for (const auto& [name, tensor] : file->tensors()) RC_ASSERT(tensor.data.size() <= 22u);
  }
}

}  // namespace
}  // namespace tare::model
