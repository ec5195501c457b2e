#include "model/hf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/load.h"
#include "model/safetensors.h"
#include "model/safetensors_writer.h"
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

using TinyEditNames = std::function<bool(const std::string& name)>;

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
  config["quantization_config"] = {{"quant_method", "hqq"}};
  Write("config.json", config.dump());
  EXPECT_THAT(Error(), HasSubstr("quantised with 'hqq'"));
}

// Layer matrices as 4-bit codes of compressed-tensors, and a folder of the values they stand for.
// Between one matrix and the next everything that may differ does: zero points, order of groups,
// left as numbers.
class CodedFolder {
 public:
  explicit CodedFolder(const TinyModel& tiny) {
    int index = 0;
    for (const auto& [name, shape] : tiny.tensors) {
      const std::vector<float> values = TinyWeights(name, shape);
      const std::size_t stem = name.find("_proj.weight");
      const bool layer = stem != std::string::npos && shape[1] % 32 == 0 &&
                         !tiny.tensors.contains(name.substr(0, stem) + "_proj.bias");
      if (!layer || index++ % 4 == 3) {
        Add(coded_, name, "F32", shape, values);
        Add(plain_, name, "F32", shape, values);
        continue;
      }
      AddCoded(name.substr(0, name.size() - 7), shape[0], shape[1], values, index % 4);
    }
  }

  Status WriteTo(const std::filesystem::path& path, bool coded) const {
    const auto& tensors = coded ? coded_ : plain_;
    std::vector<SafetensorsEntry> entries;
    for (const auto& [entry, bytes] : tensors) entries.push_back(entry);
    TARE_TRY(SafetensorsWriter writer, SafetensorsWriter::Create(path, entries));
    for (const auto& [entry, bytes] : tensors) {
      TARE_RETURN_IF_ERROR(writer.Add(std::as_bytes(std::span(bytes))));
    }
    return writer.Commit();
  }

 private:
  using Tensors = std::vector<std::pair<SafetensorsEntry, std::string>>;

  template <typename Value>
  static void Add(Tensors& to, const std::string& name, const char* type,
                  std::vector<std::int64_t> shape, const std::vector<Value>& values) {
    std::string bytes(values.size() * sizeof(Value), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    to.push_back({{name, type, std::move(shape)}, std::move(bytes)});
  }

  void AddCoded(const std::string& stem, std::int64_t rows, std::int64_t cols,
                std::vector<float> values, int kind) {
    const bool zero_points = kind == 2;
    const bool shuffled = kind == 3;
    const std::int64_t groups = cols / 32;
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    std::vector<float> scales(size(rows * groups));
    std::vector<std::int8_t> zeros(scales.size(), 0);
    std::vector<std::uint32_t> words(size(rows * cols / 8), 0);
    std::vector<std::int32_t> group_of(size(cols));
    for (std::int64_t k = 0; k < cols; ++k) {
      group_of[size(k)] = static_cast<std::int32_t>(shuffled ? k % groups : k / 32);
    }
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t g = 0; g < groups; ++g) {
        scales[size(n * groups + g)] = 0x1p-7f * static_cast<float>(1 + (n + g) % 3);
        if (zero_points) zeros[size(n * groups + g)] = static_cast<std::int8_t>((n + g) % 5 - 2);
      }
      for (std::int64_t k = 0; k < cols; ++k) {
        const std::size_t at = size(n * groups + group_of[size(k)]);
        float& value = values[size(n * cols + k)];
        const float code = std::clamp(std::nearbyint(value / scales[at]) + zeros[at], -8.0f, 7.0f);
        value = scales[at] * (code - zeros[at]);
        words[size((n * cols + k) / 8)] |= static_cast<std::uint32_t>(code + 8) << (k % 8 * 4);
      }
    }
    Add(plain_, stem + ".weight", "F32", {rows, cols}, values);
    Add(coded_, stem + ".weight_packed", "I32", {rows, cols / 8}, words);
    Add(coded_, stem + ".weight_scale", "F32", {rows, groups}, scales);
    Add(coded_, stem + ".weight_shape", "I64", {2}, std::vector<std::int64_t>{rows, cols});
    Add(coded_, stem + ".bias", "F32", {rows}, std::vector<float>(size(rows), 0.0f));
    if (zero_points) Add(coded_, stem + ".weight_zero_point", "I8", {rows, groups}, zeros);
    if (shuffled) Add(coded_, stem + ".weight_g_idx", "I32", {cols}, group_of);
  }

  Tensors coded_, plain_;
};

// Every family: experts and the parts of latent attention take other ways through the loader.
TEST_F(HuggingFaceTest, CodesComputeLikeTheValuesTheyStandFor) {
  for (const TinyModel& tiny : models_) {
    const CodedFolder folder(tiny);
    json config = tiny.config;
    Write("config.json", config.dump());
    ASSERT_TRUE(folder.WriteTo(dir_ / "model.safetensors", false));
    auto plain = Load();
    ASSERT_TRUE(plain) << plain.error().message;
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "pack-quantized"}};
    Write("config.json", config.dump());
    ASSERT_TRUE(folder.WriteTo(dir_ / "model.safetensors", true));
    auto coded = Load();
    ASSERT_TRUE(coded) << tiny.name << ": " << coded.error().message;
    const auto& tokens = tiny.cases[0].tokens;
    const auto expected = RunTokens(**plain, tokens, 512);
    const auto logits = RunTokens(**coded, tokens, 512);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(MaxDifference(logits[i], expected[i]), 0.0f) << tiny.name << " position " << i;
    }
  }
}

TEST_F(HuggingFaceTest, CountsAndRefusesPartsOfCodedWeights) {
  json config = models_.front().config;
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  Write("config.json", config.dump());
  const CodedFolder folder(models_.front());
  ASSERT_TRUE(folder.WriteTo(dir_ / "model.safetensors", true));
  EXPECT_THAT(Error(), HasSubstr("_proj.weight_packed' has dtype I32"));  // no GPTQ tensor
  config["quantization_config"] = {{"quant_method", "compressed-tensors"}};
  Write("config.json", config.dump());
  const auto checkpoint = OpenCheckpoint(dir_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  std::uint64_t bytes = 0;
  bool found = false;
  for (const std::string& name : (*checkpoint)->TensorNames()) {
    const auto tensor = (*checkpoint)->Find(name);
    bytes += tensor->bytes;
    found |= std::string_view(tensor->type) == "packed 4 bit";
    EXPECT_EQ(name.find("weight_"), std::string::npos) << name;
  }
  EXPECT_TRUE(found);
  EXPECT_LT(bytes, std::filesystem::file_size(dir_ / "model.safetensors"));
  const auto need = EstimateMemory(**checkpoint, {}, 0);
  ASSERT_TRUE(need) << need.error().message;
}

TEST_F(HuggingFaceTest, NamesExpertsAsTheFileDoes) {
  const auto with = [this](const char* model, const TinyEditNames& keep) {
    for (const TinyModel& tiny : models_) {
      if (tiny.name != model) continue;
      UseModel(tiny);
      Write("model.safetensors", Safetensors(tiny, false, keep));
    }
    return Error();
  };
  const auto without = [&](const char* model, const std::string& part) {
    return with(model, [&](const std::string& name) { return name.find(part) == name.npos; });
  };
  EXPECT_THAT(without("qwen3_moe", "1.mlp.experts.5.up_proj"),
              HasSubstr("tensor 'model.layers.1.mlp.experts.5.up_proj.weight' is missing"));
  EXPECT_THAT(without("qwen3_moe", "0.mlp.gate.weight"),
              HasSubstr("tensor 'model.layers.0.mlp.gate.weight' is missing"));
  EXPECT_THAT(without("deepseek_v3", "e_score_correction_bias"),
              HasSubstr("tensor 'model.layers.1.mlp.gate.e_score_correction_bias' is missing"));
  EXPECT_THAT(without("deepseek_v2", "2.self_attn.kv_b"),
              HasSubstr("tensor 'model.layers.2.self_attn.kv_b_proj.weight' is missing"));
}

// DeepSeek-V3's files hold one more layer, which predicts a token further on.
TEST_F(HuggingFaceTest, LeavesOutPredictionLayers) {
  TinyModel tiny = *std::ranges::find(models_, "deepseek_v3", &TinyModel::name);
  const auto tensors = tiny.tensors;
  for (const auto& [name, shape] : tensors) {
    if (!name.starts_with("model.layers.2.")) continue;
    tiny.tensors["model.layers.3." + name.substr(15)] = shape;
  }
  tiny.tensors["model.layers.3.eh_proj.weight"] = {64, 128};
  UseModel(tiny);
  EXPECT_THAT(Error(), HasSubstr("family deepseek_v3 has no use for tensor"));
  tiny.config["num_nextn_predict_layers"] = 1;
  UseModel(tiny);
  EXPECT_EQ(Error(), "no error");
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
