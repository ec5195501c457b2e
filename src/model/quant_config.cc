#include "model/quant_config.h"

#include <nlohmann/json.hpp>
#include <span>

#include "model/config_json.h"

namespace tare::model {
namespace {

constexpr const char* kRemedy = "use the model's 16-bit files, or a GGUF file";

Status CheckBits(const JsonKeys& keys, const char* key, std::string_view method) {
  TARE_TRY(const int bits, keys.CountOr(key, 4));
  if (bits == 4 || bits == 8) return {};
  return Fail(ErrorKind::kUnsupported,
              "{}: {} weights of {} bits cannot be loaded, 4 and 8 can; {}", keys.source(), method,
              bits, kRemedy);
}

// A pair of positive numbers, as in "weight_block_size": [128, 128].
Status ReadBlock(const JsonKeys& keys, const char* key, QuantConfig& out) {
  if (!keys.Has(key)) return {};
  const auto& value = keys.json()[key];
  const bool pair = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                    value[1].is_number_unsigned();
  constexpr std::uint64_t kLargest = 1 << 20;
  if (!pair || value[0] == 0 || value[1] == 0 || value[0].get<std::uint64_t>() > kLargest ||
      value[1].get<std::uint64_t>() > kLargest) {
    return Fail(ErrorKind::kCorrupt, "{}: key '{}' is {}, two block sizes are needed",
                keys.source(), key, value.is_structured() ? value.type_name() : value.dump());
  }
  out.block_rows = value[0].get<std::int64_t>();
  out.block_cols = value[1].get<std::int64_t>();
  return {};
}

Status ReadAwq(const JsonKeys& keys, QuantConfig& out) {
  out.method = QuantMethod::kAwq;
  TARE_TRY(const std::string version, keys.StringOr("version", "gemm"));
  if (version != "gemm" && version != "GEMM") {
    return Fail(ErrorKind::kUnsupported,
                "{}: AWQ weights packed as '{}' cannot be loaded, those packed as 'gemm' can; {}",
                keys.source(), version, kRemedy);
  }
  return CheckBits(keys, "bits", "AWQ");
}

Status ReadGptq(const JsonKeys& keys, QuantConfig& out) {
  out.method = QuantMethod::kGptq;
  TARE_TRY(const std::string format, keys.StringOr("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    return Fail(ErrorKind::kUnsupported,
                "{}: GPTQ checkpoints of format '{}' cannot be loaded, gptq and gptq_v2 can; {}",
                keys.source(), format, kRemedy);
  }
  out.zeros_less_one = format == "gptq";
  const auto& group = keys.json().find("group_size");
  if (group != keys.json().end() && group->is_number_unsigned()) {
    out.group = static_cast<std::int64_t>(group->get<std::uint32_t>());
  }
  return CheckBits(keys, "bits", "GPTQ");
}

Status CheckCompressedFormat(const std::string& format, const std::string& source) {
  for (const char* known : {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                            "mixed-precision", "dense"}) {
    if (format == known) return {};
  }
  return Fail(ErrorKind::kUnsupported,
              "{}: the compressed-tensors format '{}' cannot be loaded; pack-quantized, "
              "int-quantized, float-quantized and naive-quantized can; {}",
              source, format, kRemedy);
}

Status ReadCompressedGroup(const JsonKeys& group, QuantConfig& out) {
  if (group.Has("format")) {
    TARE_TRY(const std::string format, group.StringOr("format", ""));
    TARE_RETURN_IF_ERROR(CheckCompressedFormat(format, group.source()));
  }
  if (!group.Has("weights")) return {};
  TARE_TRY(const JsonKeys weights, group.Object("weights"));
  TARE_RETURN_IF_ERROR(CheckBits(weights, "num_bits", "compressed-tensors"));
  QuantConfig block;
  TARE_RETURN_IF_ERROR(ReadBlock(weights, "block_structure", block));
  if (block.block_rows == 0) return {};
  if (out.block_rows != 0 &&
      (out.block_rows != block.block_rows || out.block_cols != block.block_cols)) {
    return Fail(ErrorKind::kUnsupported, "{}: config groups with different block_structure",
                group.source());
  }
  out.block_rows = block.block_rows;
  out.block_cols = block.block_cols;
  return {};
}

Status ReadCompressed(const JsonKeys& keys, QuantConfig& out) {
  out.method = QuantMethod::kCompressedTensors;
  TARE_TRY(const std::string format, keys.StringOr("format", "pack-quantized"));
  TARE_RETURN_IF_ERROR(CheckCompressedFormat(format, keys.source()));
  // Both change what has to be computed, not only how weights are stored.
  if (const auto found = keys.json().find("transform_config");
      found != keys.json().end() && !found->empty()) {
    return Fail(ErrorKind::kUnsupported, "{}: weights under a transform cannot be loaded; {}",
                keys.source(), kRemedy);
  }
  if (const auto found = keys.json().find("sparsity_config");
      found != keys.json().end() && found->is_object()) {
    const JsonKeys sparsity(*found, keys.source() + ": sparsity_config");
    TARE_TRY(const std::string sparse, sparsity.StringOr("format", "dense"));
    if (sparse != "dense") {
      return Fail(ErrorKind::kUnsupported, "{}: sparse weights of format '{}' cannot be loaded; {}",
                  keys.source(), sparse, kRemedy);
    }
  }
  if (!keys.Has("config_groups")) return {};
  TARE_TRY(const JsonKeys groups, keys.Object("config_groups"));
  for (const auto& entry : groups.json().items()) {
    TARE_TRY(const JsonKeys group, groups.Object(entry.key().c_str()));
    TARE_RETURN_IF_ERROR(ReadCompressedGroup(group, out));
  }
  return {};
}

Status ReadFp8(const JsonKeys& keys, QuantConfig& out) {
  out.method = QuantMethod::kFp8;
  TARE_TRY(const std::string format, keys.StringOr("fmt", "e4m3"));
  if (format != "e4m3") {
    return Fail(ErrorKind::kUnsupported, "{}: FP8 weights of form '{}' cannot be loaded, e4m3 can",
                keys.source(), format);
  }
  return ReadBlock(keys, "weight_block_size", out);
}

}  // namespace

Result<QuantConfig> ReadQuantConfig(const nlohmann::json& config, const std::string& source) {
  QuantConfig out;
  const JsonKeys whole(config, source);
  const char* key = whole.Has("quantization_config") ? "quantization_config" : "compression_config";
  if (!whole.Has(key)) return out;
  TARE_TRY(const JsonKeys keys, whole.Object(key));
  const bool old_compressed = !keys.Has("quant_method") && keys.Has("config_groups");
  TARE_TRY(const std::string method,
           keys.StringOr("quant_method", old_compressed ? "compressed-tensors" : "unnamed"));
  if (method == "awq") {
    TARE_RETURN_IF_ERROR(ReadAwq(keys, out));
  } else if (method == "gptq") {
    TARE_RETURN_IF_ERROR(ReadGptq(keys, out));
  } else if (method == "compressed-tensors") {
    TARE_RETURN_IF_ERROR(ReadCompressed(keys, out));
  } else if (method == "fp8") {
    TARE_RETURN_IF_ERROR(ReadFp8(keys, out));
  } else {
    return Fail(ErrorKind::kUnsupported,
                "{}: the checkpoint is quantised with '{}', which cannot be loaded; awq, gptq, "
                "compressed-tensors and fp8 can; {}",
                source, method, kRemedy);
  }
  return out;
}

}  // namespace tare::model
