#include "eval/awq.h"

#include <initializer_list>
#include <optional>
#include <utility>

#include "eval/scale_search.h"

namespace tare::eval {
namespace {

using model::Checkpoint;
using model::ModelConfig;

std::string Name(int layer, std::string_view part) {
  return fmt::format("blk.{}.{}.weight", layer, part);
}

bool IsMixture(const ModelConfig& config, int layer) {
  return config.experts && layer >= config.experts->leading_dense_layers;
}

// Rounds one layer, part by part.
class LayerRounder {
 public:
  LayerRounder(const Checkpoint& checkpoint, int layer, const RoundingRule& rule,
               const InputCollector* inputs, ThreadPool& pool, QuantizedTensors& out)
      : checkpoint_(checkpoint),
        config_(checkpoint.config()),
        layer_(layer),
        rule_(rule),
        inputs_(inputs),
        pool_(pool),
        out_(out) {}

  Status Round() {
    TARE_RETURN_IF_ERROR(config_.latent ? LatentAttention() : GroupedQueryAttention());
    return IsMixture(config_, layer_) ? Mixture() : GatedMlp();
  }

 private:
  Status GroupedQueryAttention() {
    TARE_TRY(SharedInput qkv, Read({"attn_q", "attn_k", "attn_v"}));
    TARE_TRY(SharedInput output, Read({"attn_output"}));
    if (inputs_ != nullptr) {
      TARE_TRY(const auto before_qkv, Scale(qkv));
      TARE_RETURN_IF_ERROR(DivideVector(Name(layer_, "attn_norm"), before_qkv));
      TARE_RETURN_IF_ERROR(ScaleOutput(output, qkv.parts[2]));
    }
    Emit(qkv);
    Emit(output);
    return {};
  }

  // Input d of query head h comes from row d of the value head that h shares.
  Status ScaleOutput(SharedInput& output, Matrix& v) {
    std::vector<int> value_row;
    const int share = config_.heads / config_.kv_heads;
    for (int i = 0; i < config_.heads * config_.head_dim; ++i) {
      value_row.push_back(i / config_.head_dim / share * config_.head_dim + i % config_.head_dim);
    }
    TARE_TRY(const auto before_output, Scale(output, value_row));
    std::vector<float> by_value_row(static_cast<std::size_t>(v.rows), 1.0f);
    for (std::size_t i = 0; i < value_row.size(); ++i) {
      by_value_row[static_cast<std::size_t>(value_row[i])] = before_output[i];
    }
    DivideRows(v, by_value_row);
    const std::string bias = fmt::format("blk.{}.attn_v.bias", layer_);
    if (!checkpoint_.Find(bias)) return {};
    return DivideVector(bias, by_value_row);
  }

  Status LatentAttention() {
    const bool direct = config_.latent->q_rank == 0;
    TARE_TRY(SharedInput down, Read({direct ? "attn_q" : "attn_q_a", "attn_kv_a_mqa"}));
    TARE_TRY(SharedInput output, Read({"attn_output"}));
    std::optional<SharedInput> query_up;
    if (!direct) {
      TARE_TRY(query_up, Read({"attn_q_b"}));
    }
    if (inputs_ != nullptr) {
      TARE_TRY(const auto before_down, Scale(down));
      TARE_RETURN_IF_ERROR(DivideVector(Name(layer_, "attn_norm"), before_down));
      if (query_up) {
        TARE_TRY(const auto before_up, Scale(*query_up));
        TARE_RETURN_IF_ERROR(DivideVector(Name(layer_, "attn_q_a_norm"), before_up));
      }
      // What computes its inputs, kv_b, is not rounded and stays as it is.
      TARE_RETURN_IF_ERROR(NeedInputs(output));
      output.seen = output.inputs->MeanSquares();
    }
    Emit(down);
    if (query_up) Emit(*query_up);
    Emit(output);
    return {};
  }

  Status GatedMlp() {
    TARE_TRY(SharedInput gate_up, Read({"ffn_gate", "ffn_up"}));
    TARE_TRY(SharedInput down, Read({"ffn_down"}));
    if (inputs_ != nullptr) {
      TARE_TRY(const auto before_gate_up, Scale(gate_up));
      TARE_RETURN_IF_ERROR(DivideVector(Name(layer_, "ffn_norm"), before_gate_up));
      TARE_RETURN_IF_ERROR(ScaleDown(down, gate_up.parts[1]));
    }
    Emit(gate_up);
    Emit(down);
    return {};
  }

  Status ScaleDown(SharedInput& down, Matrix& up) {
    TARE_TRY(const auto before_down, Scale(down));
    DivideRows(up, before_down);
    return {};
  }

  Status Mixture() {
    TARE_TRY(std::vector<SharedInput> gate_up, ReadSets({"ffn_gate", "ffn_up"}));
    TARE_TRY(std::vector<SharedInput> down, ReadSets({"ffn_down"}));
    std::optional<SharedInput> shared_gate_up, shared_down;
    if (config_.experts->shared_intermediate > 0) {
      TARE_TRY(shared_gate_up, Read({"ffn_gate_shexp", "ffn_up_shexp"}));
      TARE_TRY(shared_down, Read({"ffn_down_shexp"}));
    }
    out_.experts += config_.experts->count;
    if (inputs_ != nullptr) {
      std::vector<SharedInput*> all, known;
      for (SharedInput& expert : gate_up) {
        all.push_back(&expert);
        if (EnoughFor(expert)) known.push_back(&expert);
      }
      out_.experts_unsearched += static_cast<int>(all.size() - known.size());
      if (shared_gate_up) {
        TARE_RETURN_IF_ERROR(NeedInputs(*shared_gate_up));
        all.push_back(&*shared_gate_up);
        known.push_back(&*shared_gate_up);
      }
      TARE_RETURN_IF_ERROR(ScaleExperts(all, known));
      for (std::size_t i = 0; i < down.size(); ++i) {
        if (!EnoughFor(gate_up[i])) continue;
        TARE_RETURN_IF_ERROR(ScaleDown(down[i], gate_up[i].parts[1]));
      }
      if (shared_down) TARE_RETURN_IF_ERROR(ScaleDown(*shared_down, shared_gate_up->parts[1]));
    }
    EmitSets(gate_up);
    EmitSets(down);
    if (shared_gate_up) Emit(*shared_gate_up);
    if (shared_down) Emit(*shared_down);
    return {};
  }

  // One scale for the columns of `all` and the router's, by the error of those in `known`.
  Status ScaleExperts(const std::vector<SharedInput*>& all,
                      const std::vector<SharedInput*>& known) {
    TARE_TRY(Matrix router, ReadMatrix(checkpoint_, Name(layer_, "ffn_gate_inp"), pool_));
    const InputStatistics* every_token = inputs_->Find(router.name);
    if (every_token == nullptr) return NoInputs(router.name);
    const std::vector<const SharedInput*> places(known.begin(), known.end());
    TARE_TRY(const auto scale,
             SearchScales(places, every_token->MeanMagnitudes(), {}, rule_, pool_));
    for (SharedInput* place : all) {
      for (Matrix& part : place->parts) ScaleColumns(part, scale);
    }
    for (SharedInput* place : known) place->seen = SeenAfter(*place->inputs, scale);
    ScaleColumns(router, scale);
    out_.scaled[router.name] = std::move(router.values);
    return DivideVector(Name(layer_, "ffn_norm"), scale);
  }

  static bool EnoughFor(const SharedInput& expert) {
    return expert.inputs != nullptr && expert.inputs->rows >= kLeastExpertInputs;
  }

  Status DivideVector(const std::string& name, std::span<const float> by) {
    TARE_TRY(Matrix row, ReadMatrix(checkpoint_, name, pool_));
    Divide(row.values, by);
    out_.scaled[name] = std::move(row.values);
    return {};
  }

  // Scales for the columns of `place`, put into them.
  Result<std::vector<float>> Scale(SharedInput& place, std::span<const int> tied = {}) {
    TARE_RETURN_IF_ERROR(NeedInputs(place));
    const SharedInput* const one[] = {&place};
    TARE_TRY(const std::vector<float> scale,
             SearchScales(one, place.inputs->MeanMagnitudes(), tied, rule_, pool_));
    for (Matrix& part : place.parts) ScaleColumns(part, scale);
    place.seen = SeenAfter(*place.inputs, scale);
    return scale;
  }

  static Status NeedInputs(const SharedInput& place) {
    if (place.inputs == nullptr || place.inputs->sample_rows == 0 ||
        place.inputs->cols != place.parts.front().cols) {
      return NoInputs(place.parts.front().name);
    }
    return {};
  }
  static Status NoInputs(const std::string& name) {
    return Fail(ErrorKind::kInternal, "no inputs of {} were seen during calibration", name);
  }

  Result<SharedInput> Read(std::initializer_list<const char*> parts) {
    SharedInput place;
    std::string joined;
    for (const char* part : parts) {
      TARE_TRY(Matrix matrix, ReadMatrix(checkpoint_, Name(layer_, part), pool_));
      joined += (joined.empty() ? "" : "+") + matrix.name;
      place.parts.push_back(std::move(matrix));
    }
    if (inputs_ != nullptr) place.inputs = inputs_->Find(joined);
    return place;
  }

  // One for each expert.
  Result<std::vector<SharedInput>> ReadSets(std::initializer_list<const char*> parts) {
    const auto count = static_cast<std::size_t>(config_.experts->count);
    std::vector<SharedInput> places(count);
    std::string joined;
    for (const char* part : parts) {
      const std::string stacked = Name(layer_, std::string(part) + "_exps");
      joined += (joined.empty() ? "" : "+") + stacked;
      std::optional<Matrix> whole;
      if (checkpoint_.Find(stacked)) {
        TARE_TRY(whole, ReadMatrix(checkpoint_, stacked, pool_));
      }
      for (std::size_t i = 0; i < count; ++i) {
        if (!whole) {
          TARE_TRY(Matrix one,
                   ReadMatrix(checkpoint_, Name(layer_, fmt::format("{}.{}", part, i)), pool_));
          places[i].parts.push_back(std::move(one));
          continue;
        }
        const std::size_t size = whole->values.size() / count;
        const auto from = whole->values.begin() + static_cast<std::ptrdiff_t>(i * size);
        places[i].parts.push_back({stacked,
                                   whole->rows / static_cast<std::int64_t>(count),
                                   whole->cols,
                                   {from, from + static_cast<std::ptrdiff_t>(size)}});
      }
    }
    for (std::size_t i = 0; i < count && inputs_ != nullptr; ++i) {
      places[i].inputs = inputs_->Find(fmt::format("{}[{}]", joined, i));
    }
    return places;
  }

  void Emit(const SharedInput& place) {
    for (const Matrix& part : place.parts) {
      out_.matrices[part.name] =
          RoundMatrix(part.values, part.rows, part.cols, rule_, place.seen, pool_);
    }
  }

  // Experts of one name are slices of one tensor and become one again.
  void EmitSets(const std::vector<SharedInput>& places) {
    for (const SharedInput& place : places) {
      for (const Matrix& part : place.parts) {
        CodedMatrix coded =
            RoundMatrix(part.values, part.rows, part.cols, rule_, place.seen, pool_);
        const auto [known, fresh] = out_.matrices.try_emplace(part.name, std::move(coded));
        if (!fresh) known->second.Append(coded);
      }
    }
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const int layer_;
  const RoundingRule& rule_;
  const InputCollector* inputs_;
  ThreadPool& pool_;
  QuantizedTensors& out_;
};

}  // namespace

std::vector<std::string> RoundedMatrices(const Checkpoint& checkpoint, int layer) {
  const ModelConfig& config = checkpoint.config();
  std::vector<std::string> names;
  const auto add = [&](std::initializer_list<const char*> parts) {
    for (const char* part : parts) names.push_back(Name(layer, part));
  };
  if (config.latent) {
    config.latent->q_rank > 0 ? add({"attn_q_a", "attn_q_b"}) : add({"attn_q"});
    add({"attn_kv_a_mqa", "attn_output"});
  } else {
    add({"attn_q", "attn_k", "attn_v", "attn_output"});
  }
  if (!IsMixture(config, layer)) {
    add({"ffn_gate", "ffn_up", "ffn_down"});
    return names;
  }
  for (const char* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
    const std::string stacked = Name(layer, std::string(part) + "_exps");
    if (checkpoint.Find(stacked)) {
      names.push_back(stacked);
      continue;
    }
    for (int expert = 0; expert < config.experts->count; ++expert) {
      names.push_back(Name(layer, fmt::format("{}.{}", part, expert)));
    }
  }
  if (config.experts->shared_intermediate > 0) {
    add({"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"});
  }
  return names;
}

Status CheckQuantizable(const Checkpoint& checkpoint, const RoundingRule& rule) {
  if (rule.bits == 8 && rule.zero_point) {
    return FailParam("zero_point", "8-bit weights have no zero points; leave out --zero-point");
  }
  if (rule.group <= 0 || rule.group % 32 != 0) {
    return FailParam("group", "a group of {} is not possible; multiples of 32 are", rule.group);
  }
  if (checkpoint.family().encoder) {
    return Fail(ErrorKind::kUnsupported,
                "{}: models of family {} make embeddings and cannot be quantised here",
                checkpoint.name(), checkpoint.config().family);
  }
  for (int layer = 0; layer < checkpoint.config().layers; ++layer) {
    for (const std::string& name : RoundedMatrices(checkpoint, layer)) {
      const auto stored = checkpoint.Find(name);
      const std::size_t rank = name.ends_with("_exps.weight") ? 3 : 2;
      if (!stored || stored->shape.size() != rank) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is {}", checkpoint.name(),
                    checkpoint.FileName(name), stored ? "no matrix" : "missing");
      }
      if (stored->shape.back() % 32 != 0) {
        return Fail(ErrorKind::kUnsupported, "{}: tensor '{}' has {} inputs, no multiple of 32",
                    checkpoint.name(), stored->name, stored->shape.back());
      }
    }
  }
  return {};
}

Status QuantizeLayer(const Checkpoint& checkpoint, int layer, const RoundingRule& rule,
                     const InputCollector* inputs, ThreadPool& pool, QuantizedTensors& out) {
  return LayerRounder(checkpoint, layer, rule, inputs, pool, out).Round();
}

}  // namespace tare::eval
