// The names of BERT's tensors. A prefix "bert." is there when the checkpoint was saved with a head.
#include <fmt/format.h>

#include <utility>

#include "model/file_names.h"

namespace tare::model {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // common, Hugging Face

constexpr Names kWholeParts[] = {
    {"token_embd", "embeddings.word_embeddings"},
    {"position_embd", "embeddings.position_embeddings"},
    {"token_types", "embeddings.token_type_embeddings"},
    {"token_embd_norm", "embeddings.LayerNorm"},
};
constexpr Names kLayerParts[] = {
    {"attn_q", "attention.self.query"},        {"attn_k", "attention.self.key"},
    {"attn_v", "attention.self.value"},        {"attn_output", "attention.output.dense"},
    {"ffn_up", "intermediate.dense"},          {"ffn_down", "output.dense"},
    {"layer_output_norm", "output.LayerNorm"}, {"attn_output_norm", "attention.output.LayerNorm"},
};
constexpr std::string_view kPrefix = "bert.";
constexpr std::string_view kLayer = "encoder.layer.";
constexpr std::string_view kBlock = "blk.";

std::string_view WithoutPrefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

// {"a.b", "c"} of "a.b.c".
std::pair<std::string_view, std::string_view> SplitLast(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// {"3", "attn_q"} of "3.attn_q".
std::pair<std::string_view, std::string_view> SplitFirst(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string ToCommon(std::string_view name) {
  auto [part, end] = SplitLast(WithoutPrefix(name));
  // As the first checkpoints, converted from TensorFlow, have it.
  if (part.ends_with("LayerNorm")) end = end == "gamma" ? "weight" : end == "beta" ? "bias" : end;
  for (const auto& [common, hf] : kWholeParts) {
    if (part == hf) return fmt::format("{}.{}", common, end);
  }
  if (part.starts_with(kLayer)) {
    const auto [layer, in_layer] = SplitFirst(part.substr(kLayer.size()));
    for (const auto& [common, hf] : kLayerParts) {
      if (in_layer == hf) return fmt::format("{}{}.{}.{}", kBlock, layer, common, end);
    }
  }
  return std::string(name);
}

std::string ToHuggingFace(std::string_view common_name) {
  const auto [part, end] = SplitLast(common_name);
  for (const auto& [common, hf] : kWholeParts) {
    if (part == common) return fmt::format("{}.{}", hf, end);
  }
  if (part.starts_with(kBlock)) {
    const auto [layer, in_layer] = SplitFirst(part.substr(kBlock.size()));
    for (const auto& [common, hf] : kLayerParts) {
      if (in_layer == common) return fmt::format("{}{}.{}.{}", kLayer, layer, hf, end);
    }
  }
  return std::string(common_name);
}

// What follows the last layer (the pooler of BERT's own training task, heads of others) and tables
// of positions' numbers.
bool NoUseFor(std::string_view name, const ModelConfig&) {
  const std::string_view own = WithoutPrefix(name);
  return own.starts_with("pooler.") || own.starts_with("cls.") || own.starts_with("classifier.") ||
         own == "embeddings.position_ids" || own == "embeddings.token_type_ids";
}

}  // namespace

const FileNames kBertNames = {ToCommon, ToHuggingFace, NoUseFor};

}  // namespace tare::model
