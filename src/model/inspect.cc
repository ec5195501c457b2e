#include "model/inspect.h"

#include "model/memory_need.h"

namespace tare::model {
namespace {

using kernels::WeightType;

enum class PartKind { kLinear, kHead, kTable, kFloat };

std::uint64_t Bytes(std::uint64_t weights, PartKind kind, WeightType type) {
  if (kind == PartKind::kFloat) return weights * 4;
  if (kind == PartKind::kTable) return weights * (type == WeightType::kF32 ? 4 : 2);
  if (kind == PartKind::kHead && type == WeightType::kInt4) type = WeightType::kInt8;
  switch (type) {
    case WeightType::kF32:
      return weights * 4;
    case WeightType::kBf16:
      return weights * 2;
    case WeightType::kInt8:
      return weights * 17 / 16;
    case WeightType::kInt4:
      return weights * 10 / 16;
  }
  return 0;
}

constexpr int kLengths[] = {2048, 8192, 32768, 131072};

}  // namespace

Inspection Inspect(const ModelConfig& config, std::uint64_t available_bytes) {
  Inspection out;
  out.parameters = CountParameters(config);
  const ParameterCount& n = out.parameters;
  // A tied head is packed once more beside the table it shares weights with.
  struct Part {
    const char* name;
    std::uint64_t weights;
    PartKind kind;
  };
  const Part parts[] = {
      {"embedding", n.embedding + n.tables, PartKind::kTable},
      {"attention", n.attention, PartKind::kLinear},
      {"feed_forward", n.dense_mlp, PartKind::kLinear},
      {"routed_experts", n.routed_experts, PartKind::kLinear},
      {"shared_experts", n.shared_experts, PartKind::kLinear},
      {"routers", n.routers, PartKind::kFloat},
      {"norms", n.norms, PartKind::kFloat},
      {"head", n.head > 0 ? n.head : n.embedding, PartKind::kHead},
  };
  for (const Part& part : parts) {
    if (part.weights == 0) continue;
    PartSize size{part.name, part.weights, {}};
    for (std::size_t i = 0; i < kPrecisions.size(); ++i) {
      size.bytes[i] = Bytes(part.weights, part.kind, kPrecisions[i]);
      out.weight_bytes[i] += size.bytes[i];
    }
    out.parts.push_back(size);
  }
  out.kv_bytes_per_token = KvBytesPerToken(config, kernels::KvType::kBf16);
  if (out.kv_bytes_per_token == 0) return out;  // an encoder: nothing grows with what is served
  const std::uint64_t working = WorkingBytes(config);
  for (std::size_t i = 0; i < kPrecisions.size(); ++i) {
    const std::uint64_t fixed = out.weight_bytes[i] + working;
    const std::uint64_t left = available_bytes > fixed ? available_bytes - fixed : 0;
    bool whole_context = false;
    for (const int candidate : kLengths) {
      if (whole_context) break;
      whole_context = candidate >= config.context_length;
      const int length = whole_context ? config.context_length : candidate;
      out.capacities.push_back(
          {kPrecisions[i], length,
           left / (static_cast<std::uint64_t>(length) * out.kv_bytes_per_token)});
    }
  }
  return out;
}

}  // namespace tare::model
