// A decoder-only transformer ready to compute: the only thing the executor knows of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "kernels/kv_pages.h"
#include "kernels/matmul.h"
#include "model/expert_use.h"
#include "model/model_config.h"

namespace tare::model {

class LoraAdapter;

// One step's rows, all sequences concatenated.
struct ForwardInput {
  std::span<const TokenId> tokens;                   // [rows]
  std::span<const kernels::SequenceRows> sequences;  // cover [0, rows) in order
  std::span<const int> logit_rows;                   // rows whose logits are wanted
  // Of each sequence, null for none; an empty span: none has one. Made for this model.
  std::span<const LoraAdapter* const> adapters = {};
};

// Thread safety: one Forward at a time (it uses the model's pool and scratch memory).
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual const ModelConfig& config() const = 0;
  // Memory the weights take as computed with, in bytes, and the type of the linear layers.
  virtual std::size_t weight_bytes() const = 0;
  virtual kernels::WeightType weight_type() const = 0;
  virtual kernels::KvShape kv_shape(kernels::KvType type) const = 0;
  // Null for models without experts.
  virtual const ExpertUse* expert_use() const { return nullptr; }
  // Counts from nothing: after warming up, whose tokens are nobody's.
  virtual void ResetExpertUse() {}
  // Writes K and V of all rows into kv, then logits[logit_rows.size(), vocab].
  // The caller guarantees valid token ids, positions below max length and pages owned by the rows.
  virtual void Forward(const ForwardInput& input, kernels::KvPages& kv,
                       std::span<float> logits) = 0;
};

}  // namespace tare::model
