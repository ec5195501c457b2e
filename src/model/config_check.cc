#include "model/config_check.h"

#include <cmath>

namespace tare::model {
namespace {

constexpr int kMaxRank = 1 << 20;

}  // namespace

Status CheckConfig(const ModelConfig& c, std::string_view source) {
  struct Range {
    const char* what;
    int value;
    int most;
  };
  const Range ranges[] = {
      {"number of layers", c.layers, 1 << 12},
      {"hidden size", c.hidden, 1 << 20},
      {"number of heads", c.heads, 1 << 14},
      {"number of KV heads", c.kv_heads, 1 << 14},
      {"head size", c.head_dim, 1 << 14},
      {"feed-forward size", c.intermediate, 1 << 24},
      {"vocabulary size", c.vocab, 1 << 24},
      {"context length", c.context_length, 1 << 30},
      {"rotated head size", c.rope.dims, 1 << 14},
      {"number of token types", c.encoder ? c.encoder->token_types : 1, 1 << 16},
  };
  for (const Range& range : ranges) {
    if (range.value < 1 || range.value > range.most) {
      return Fail(ErrorKind::kCorrupt, "{}: the {} is {}; 1 to {} are allowed", source, range.what,
                  range.value, range.most);
    }
  }
  if (c.heads % c.kv_heads != 0) {
    return Fail(ErrorKind::kCorrupt, "{}: {} heads cannot share {} KV heads evenly", source,
                c.heads, c.kv_heads);
  }
  if (!(c.norm_epsilon > 0.0f && c.norm_epsilon < 1.0f)) {
    return Fail(ErrorKind::kCorrupt, "{}: the norm epsilon is {}; it must lie between 0 and 1",
                source, c.norm_epsilon);
  }
  if (c.encoder) return {};
  const int rotated_head = c.latent ? c.latent->rope_dim : c.head_dim;
  if (c.rope.dims % 2 != 0 || c.rope.dims > rotated_head) {
    return Fail(ErrorKind::kCorrupt, "{}: {} elements of a head of {} cannot be rotated in pairs",
                source, c.rope.dims, rotated_head);
  }
  if (!(c.rope.theta > 1.0f && std::isfinite(c.rope.theta))) {
    return Fail(ErrorKind::kCorrupt, "{}: the rotary base is {}; it must be above 1", source,
                c.rope.theta);
  }
  if (c.latent) {
    const LatentAttentionConfig& m = *c.latent;
    if (m.q_rank > kMaxRank || m.kv_rank < 1 || m.kv_rank > kMaxRank || m.nope_dim < 1 ||
        m.nope_dim > kMaxRank || m.rope_dim < 1 || m.rope_dim > kMaxRank || m.value_dim < 1 ||
        m.value_dim > kMaxRank) {
      return Fail(ErrorKind::kCorrupt,
                  "{}: latent attention with ranks {} and {}, head parts {}, {} and {}", source,
                  m.q_rank, m.kv_rank, m.nope_dim, m.rope_dim, m.value_dim);
    }
  }
  if (c.experts) {
    const ExpertsConfig& e = *c.experts;
    if (e.count < 1 || e.count > (1 << 16) || e.chosen < 1 || e.chosen > e.count ||
        e.intermediate < 1 || e.intermediate > (1 << 24) || e.leading_dense_layers > c.layers ||
        e.groups < 1 || e.count % e.groups != 0 || e.chosen_groups < 1 ||
        e.chosen_groups > e.groups || e.chosen > e.count / e.groups * e.chosen_groups ||
        e.shared_intermediate < 0) {
      return Fail(ErrorKind::kCorrupt,
                  "{}: {} experts of size {} in {} groups, {} chosen in {} groups, after {} dense "
                  "layers",
                  source, e.count, e.intermediate, e.groups, e.chosen, e.chosen_groups,
                  e.leading_dense_layers);
    }
  }
  return {};
}

}  // namespace tare::model
