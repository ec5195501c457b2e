// BERT encoders (Devlin and others 2018, arXiv 1810.04805): MiniLM, BGE, E5 and their like, which
// make vectors of texts. encoder.cc computes them; they have no parts of a decoder.
#include <cstdint>

#include "model/config_json.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kTypes[] = {"bert"};

Status AdjustJson(const JsonKeys& keys, ModelConfig& config) {
  TARE_TRY(const auto act, keys.StringOr("hidden_act", "gelu"));
  if (act != "gelu") {
    return Fail(ErrorKind::kUnsupported, "{}: hidden_act '{}' is not supported, gelu is",
                keys.source(), act);
  }
  TARE_TRY(const auto positions, keys.StringOr("position_embedding_type", "absolute"));
  if (positions != "absolute") {
    return Fail(ErrorKind::kUnsupported,
                "{}: position_embedding_type '{}' is not supported, absolute is", keys.source(),
                positions);
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    TARE_TRY(const bool on, keys.BoolOr(key, false));
    if (on) return Fail(ErrorKind::kUnsupported, "{}: {} is not supported", keys.source(), key);
  }
  EncoderConfig encoder;
  TARE_TRY(encoder.token_types, keys.CountOr("type_vocab_size", 2));
  if (encoder.token_types < 1) {
    return Fail(ErrorKind::kCorrupt, "{}: type_vocab_size is 0", keys.source());
  }
  if (config.heads < 1 || config.hidden % config.heads != 0) {
    return Fail(ErrorKind::kCorrupt, "{}: {} numbers cannot be shared by {} heads evenly",
                keys.source(), config.hidden, config.heads);
  }
  // Every head reads its own part of a row and writes there; BERT has no other shapes.
  if (config.kv_heads != config.heads ||
      std::int64_t{config.heads} * config.head_dim != config.hidden) {
    return Fail(ErrorKind::kCorrupt,
                "{}: num_attention_heads {}, num_key_value_heads {} and head_dim {} do not fit the "
                "hidden_size {}: encoders have as many KV heads as heads, and heads times head_dim "
                "is hidden_size",
                keys.source(), config.heads, config.kv_heads, config.head_dim, config.hidden);
  }
  TARE_TRY(config.norm_epsilon, keys.FloatOr("layer_norm_eps", 1e-12f));
  config.attention_bias = true;
  config.encoder = encoder;
  return {};
}

}  // namespace

const Family kBert = {
    .name = "bert",
    .gguf_architecture = nullptr,
    .hugging_face_types = kTypes,
    .names = &kBertNames,
    .encoder = true,
    .adjust_json = AdjustJson,
};

}  // namespace tare::model
