#include "model/coded_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/test_base64.h"
#include "source_dir.h"

namespace tare::model {
namespace {

using kernels::StoredType;
using kernels::WeightType;
using nlohmann::json;
using testing::HasSubstr;

// A weight as tests/golden/quantized_weights.py stored it.
struct Stored {
  std::string name;
  QuantConfig config;
  std::map<std::string, std::string> bytes;  // what the tensors point into
  std::map<std::string, SafetensorsTensor> tensors;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::string values;  // float32

  CodedTensor::Parts parts() const {
    CodedTensor::Parts out;
    for (const auto& [end, tensor] : tensors) out.emplace(end, &tensor);
    return out;
  }
  Result<CodedTensor> Make() const { return CodedTensor::Make(config, "folder", "x", parts()); }
};

SafetensorsTensor Tensor(const std::string& type, std::vector<std::int64_t> shape,
                         const std::string& bytes) {
  SafetensorsTensor tensor;
  tensor.type = type;
  if (type == "F32") tensor.stored = StoredType::kF32;
  if (type == "F16") tensor.stored = StoredType::kF16;
  if (type == "BF16") tensor.stored = StoredType::kBf16;
  tensor.shape = std::move(shape);
  tensor.data = std::as_bytes(std::span(bytes));
  return tensor;
}

std::vector<std::unique_ptr<Stored>> ReadGolden() {
  const auto text = ReadFile(TARE_SOURCE_DIR "/tests/golden/quantized_weights.json");
  std::vector<std::unique_ptr<Stored>> out;
  if (!text) return out;
  const json document = json::parse(*text);
  for (const json& c : document["cases"]) {
    auto stored = std::make_unique<Stored>();
    stored->name = c["name"];
    auto config = ReadQuantConfig(json{{"quantization_config", c["config"]}}, "config.json");
    EXPECT_TRUE(config) << stored->name << ": " << config.error().message;
    if (!config) continue;
    stored->config = *config;
    for (const auto& [end, tensor] : c["tensors"].items()) {
      std::string& bytes = stored->bytes[end];
      bytes = FromBase64(tensor["data"].get<std::string>());
      stored->tensors.emplace(end, Tensor(tensor["dtype"], tensor["shape"], bytes));
    }
    stored->rows = c["shape"][0];
    stored->cols = c["shape"][1];
    stored->values = FromBase64(c["values"].get<std::string>());
    out.push_back(std::move(stored));
  }
  return out;
}

const Stored& Golden(const std::string& name) {
  static const auto kAll = ReadGolden();
  for (const auto& stored : kAll) {
    if (stored->name == name) return *stored;
  }
  static const Stored kNone;
  ADD_FAILURE() << "tests/golden/quantized_weights.json has no case '" << name << "'";
  return kNone;
}

TEST(CodedTensor, ValuesEqualTheFormatsOwnProgramsBitForBit) {
  ThreadPool pool(2);
  const auto all = ReadGolden();
  EXPECT_EQ(all.size(), 14u);
  for (const auto& stored : all) {
    const auto coded = stored->Make();
    ASSERT_TRUE(coded) << stored->name << ": " << coded.error().message;
    const auto values = coded->Decode(pool);
    ASSERT_TRUE(values) << stored->name << ": " << values.error().message;
    ASSERT_EQ(values->view.rows, stored->rows) << stored->name;
    ASSERT_EQ(values->view.cols, stored->cols) << stored->name;
    EXPECT_EQ(values->view.type, coded->form().type);
    std::vector<float> row(static_cast<std::size_t>(stored->cols));
    for (std::int64_t n = 0; n < stored->rows; ++n) {
      kernels::DequantizeRow(values->view, n, row);
      const char* expected = stored->values.data() + n * stored->cols * 4;
      for (std::size_t k = 0; k < row.size(); ++k) {
        float want;
        std::memcpy(&want, expected + k * 4, 4);
        ASSERT_EQ(row[k], want) << stored->name << " row " << n << ", column " << k;
      }
    }
  }
}

TEST(CodedTensor, KeepsCodesWhereTheKernelsCan) {
  const auto form = [](const char* name) { return Golden(name).Make()->form(); };
  const auto expect = [&](const char* name, StoredType type, WeightType natural) {
    EXPECT_EQ(form(name).type, type) << name;
    EXPECT_EQ(form(name).natural, natural) << name;
  };
  expect("awq_g32", StoredType::kCodes4Zero, WeightType::kInt4);
  expect("gptq_v1", StoredType::kCodes4Zero, WeightType::kInt4);
  expect("gptq_middle", StoredType::kCodes4, WeightType::kInt4);
  expect("packed_symmetric", StoredType::kCodes4, WeightType::kInt4);
  expect("packed_channel", StoredType::kCodes4, WeightType::kInt4);
  expect("packed_zero_points", StoredType::kCodes4Zero, WeightType::kInt4);
  expect("gptq_8_middle", StoredType::kCodes8, WeightType::kInt8);
  expect("int8_channel", StoredType::kCodes8, WeightType::kInt8);
  expect("gptq_8", StoredType::kF32, WeightType::kBf16);      // codes less zeros need 9 bits
  expect("gptq_order", StoredType::kF32, WeightType::kBf16);  // neighbours differ in scale
  expect("fp8_blocks", StoredType::kF32, WeightType::kBf16);
}

TEST(CodedTensor, NamesTensorsThatDoNotFit) {
  const auto without = [](const char* name, const char* end) {
    CodedTensor::Parts parts = Golden(name).parts();
    parts.erase(end);
    const auto made = CodedTensor::Make(Golden(name).config, "folder", "l.0.q", parts);
    return made ? "no error" : made.error().message;
  };
  EXPECT_THAT(without("awq_g32", "scales"), HasSubstr("folder: tensor 'l.0.q.scales' is missing"));
  EXPECT_THAT(without("gptq_v1", "qzeros"), HasSubstr("'l.0.q.qzeros' is missing"));
  EXPECT_THAT(without("packed_symmetric", "weight_shape"), HasSubstr("weight_shape' is missing"));
  EXPECT_THAT(without("fp8_blocks", "weight_scale_inv"), HasSubstr("weight_scale' is missing"));

  const auto with = [](const char* name, const char* end, const char* type,
                       std::vector<std::int64_t> shape, const std::string& bytes) {
    CodedTensor::Parts parts = Golden(name).parts();
    const SafetensorsTensor other = Tensor(type, std::move(shape), bytes);
    parts[end] = &other;
    const auto made = CodedTensor::Make(Golden(name).config, "folder", "x", parts);
    if (!made) return made.error().message;
    ThreadPool pool(1);
    const auto values = made->Decode(pool);
    return values ? "no error" : values.error().message;
  };
  const std::string zeros(4096, '\0');
  EXPECT_THAT(with("awq_g32", "qzeros", "I32", {2, 4}, zeros),
              HasSubstr("'x.qzeros' has shape [2, 4], the others of its weight ask for [2, 2]"));
  EXPECT_THAT(with("awq_g32", "qweight", "I64", {64, 2}, zeros),
              HasSubstr("'x.qweight' has dtype I64, I32 is needed"));
  EXPECT_THAT(with("awq_g32", "scales", "F16", {3, 16}, zeros),
              HasSubstr("3 groups, which do not divide 64 inputs"));
  EXPECT_THAT(with("gptq_v1", "qweight", "I32", {8}, zeros),
              HasSubstr("'x.qweight' has shape [8]"));
  EXPECT_THAT(with("gptq_v1", "qzeros", "I32", {2, 3}, zeros), HasSubstr("'x.qzeros' has shape"));
  EXPECT_THAT(with("gptq_v1", "g_idx", "I32", {64}, std::string(256, '\x07')),
              HasSubstr("puts input 0 into group 117901063, there are 2"));
  EXPECT_THAT(with("packed_symmetric", "weight_shape", "I64", {2}, zeros),
              HasSubstr("holds 0 and 0, which are no sizes"));
  EXPECT_THAT(with("packed_symmetric", "weight_packed", "I32", {16, 9}, zeros),
              HasSubstr("'x.weight_packed' has shape [16, 9]"));
  EXPECT_THAT(with("packed_symmetric", "weight_scale", "BF16", {16, 3}, zeros),
              HasSubstr("does not fit a weight of 16 x 64"));
  EXPECT_THAT(with("fp8_blocks", "weight_scale_inv", "F32", {3, 3}, zeros),
              HasSubstr("does not fit a weight of 24 x 40"));
  EXPECT_THAT(with("awq_g32", "scales", "F32", {2, 16}, std::string(128, '\xff')),
              HasSubstr("'x.scales' holds"));
  EXPECT_THAT(with("awq_g32", "scales", "I32", {2, 16}, zeros), HasSubstr("has dtype I32"));
}

TEST(CodedTensor, KnowsZeroPointsThatProgramsReadDifferently) {
  const Stored& stored = Golden("gptq_v1");
  EXPECT_FALSE(stored.Make()->zeros_wrap());
  const std::string ones(16, '\xff');
  const SafetensorsTensor zeros = Tensor("I32", {2, 2}, ones);
  CodedTensor::Parts parts = stored.parts();
  parts["qzeros"] = &zeros;
  const auto coded = CodedTensor::Make(stored.config, "folder", "x", parts);
  ASSERT_TRUE(coded) << coded.error().message;
  EXPECT_TRUE(coded->zeros_wrap());
  const auto second = CodedTensor::Make(Golden("gptq_v2").config, "folder", "x", parts);
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->zeros_wrap());  // version 2 stores zero points as they are
  ThreadPool pool(1);
  const auto values = coded->Decode(pool);
  ASSERT_TRUE(values);
  std::vector<float> row(64);
  kernels::DequantizeRow(values->view, 0, row);
  for (const float value : row) EXPECT_LT(value, 0.0f);  // code - 16
}

// Whatever the shapes claim, nothing outside the tensors is read.
RC_GTEST_PROP(CodedTensorProperty, AnyShapesAreSafe, ()) {
  static const auto kAll = ReadGolden();
  const Stored& stored = *kAll[*rc::gen::inRange<std::size_t>(0, kAll.size())];
  std::map<std::string, SafetensorsTensor> tensors = stored.tensors;
  std::map<std::string, std::string> bytes;
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    auto at = tensors.begin();
    std::advance(at, *rc::gen::inRange<std::size_t>(0, tensors.size()));
    const auto shape =
        *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 40));
    if (shape.size() > 3) continue;
    std::size_t size = 8;
    for (const std::int64_t d : shape) size *= static_cast<std::size_t>(d);
    bytes[at->first] = std::string(size, static_cast<char>(*rc::gen::inRange(0, 256)));
    const std::string type = *rc::gen::element<std::string>("I32", "I64", "I8", "F8_E4M3", "F16");
    at->second = Tensor(type, shape, bytes[at->first]);
  }
  CodedTensor::Parts parts;
  for (const auto& [end, tensor] : tensors) parts.emplace(end, &tensor);
  const auto coded = CodedTensor::Make(stored.config, "folder", "x", parts);
  if (!coded) return;
  ThreadPool pool(1);
  (void)coded->Decode(pool);
}

TEST(QuantConfig, RefusesWhatCannotBeLoadedByName) {
  const auto error = [](const char* text) {
    const auto config = ReadQuantConfig(json{{"quantization_config", json::parse(text)}}, "c");
    return config ? "no error" : config.error().message;
  };
  EXPECT_EQ(error(R"({"quant_method":"awq","bits":4,"version":"gemm"})"), "no error");
  EXPECT_THAT(error(R"({"quant_method":"bitsandbytes"})"),
              HasSubstr("quantised with 'bitsandbytes'"));
  EXPECT_THAT(error(R"({"bits":4})"), HasSubstr("quantised with 'unnamed'"));
  EXPECT_THAT(error(R"({"quant_method":"awq","version":"gemv"})"), HasSubstr("packed as 'gemv'"));
  EXPECT_THAT(error(R"({"quant_method":"gptq","bits":3})"), HasSubstr("weights of 3 bits"));
  EXPECT_THAT(error(R"({"quant_method":"gptq","checkpoint_format":"marlin"})"),
              HasSubstr("of format 'marlin'"));
  EXPECT_THAT(error(R"({"quant_method":"fp8","fmt":"e5m2"})"), HasSubstr("'e5m2'"));
  EXPECT_THAT(error(R"({"quant_method":"fp8","weight_block_size":[128]})"),
              HasSubstr("two block sizes are needed"));
  EXPECT_THAT(error(R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})"),
              HasSubstr("format 'nvfp4-pack-quantized'"));
  EXPECT_THAT(error(R"({"quant_method":"compressed-tensors","transform_config":{"a":1}})"),
              HasSubstr("under a transform"));
  EXPECT_THAT(error(R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"x"}})"),
              HasSubstr("sparse weights of format 'x'"));
  EXPECT_THAT(error(R"("int4")"), HasSubstr("an object is needed"));
}

}  // namespace
}  // namespace tare::model
