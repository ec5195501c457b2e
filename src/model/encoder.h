// A bidirectional encoder ready to compute: texts as tokens in, one vector each out.
//
// Sequences lie back to back, without padding. A sequence's vector has the same bits whatever is
// computed beside it. Order of computation: Devlin and others 2018 (norms after each residual);
// pooling as sentence-transformers does it.
//
// Ownership: keeps the checkpoint's storage; the pool must outlive it. Thread safety: one Forward
// at a time (it uses the pool and scratch memory of its own).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/types.h"
#include "kernels/matmul.h"
#include "model/checkpoint.h"
#include "model/load.h"
#include "model/model_config.h"
#include "model/sentence_config.h"

namespace tare::model {

class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const SentenceConfig& sentence() const = 0;
  // Memory the weights take as computed with, in bytes, and the type of the linear layers.
  virtual std::size_t weight_bytes() const = 0;
  virtual kernels::WeightType weight_type() const = 0;
  // Numbers of a vector.
  int dimension() const { return config().hidden; }

  // lengths: tokens of each sequence, in [1, config().context_length]; they cover `tokens`.
  // out: [lengths.size(), dimension()]. The caller guarantees valid token ids.
  virtual void Forward(std::span<const TokenId> tokens, std::span<const int> lengths,
                       std::span<float> out) = 0;
};

// Whether a checkpoint is an encoder's: LoadEncoder's then, not LoadModel's.
bool IsEncoder(const Checkpoint& checkpoint);

Result<std::unique_ptr<Encoder>> LoadEncoder(const Checkpoint& checkpoint,
                                             const SentenceConfig& sentence,
                                             const LoadOptions& options);

// Makes a vector shorter: its first out.size() numbers, of length 1 again if `normalise`.
void Shorten(std::span<const float> vector, bool normalise, std::span<float> out);

}  // namespace tare::model
