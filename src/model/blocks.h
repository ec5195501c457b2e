// The parts of a decoder layer and what they share during a step.
//
// A block is immutable once loaded. All scratch memory is in Step and shared by all layers, so a
// model of many layers needs the scratch of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/grouped_matmul.h"
#include "kernels/kv_pages.h"
#include "kernels/matmul.h"
#include "model/expert_use.h"
#include "model/language_model.h"
#include "model/lora_batch.h"
#include "model/rope.h"
#include "model/weight_loader.h"

namespace tare::model {

// Floats that only grow; contents are lost when they do.
class Buffer {
 public:
  float* Get(std::size_t size) {
    if (values_.size() < size) values_ = std::vector<float>(size);
    return values_.data();
  }

 private:
  std::vector<float> values_;
};

// What a mixture of experts needs between its steps; see moe_block.cc.
struct ExpertWorkspace {
  Buffer logits;                             // [rows, experts]
  Buffer gate_up;                            // [rows * chosen, 2 * intermediate], sorted by expert
  Buffer down;                               // [rows * chosen, hidden], sorted by expert
  std::vector<std::int32_t> ids;             // [rows, chosen] expert
  std::vector<float> weights;                // [rows, chosen]
  std::vector<std::int32_t> places;          // [rows, chosen] where in sorted order
  std::vector<std::int32_t> sorted_row;      // [rows * chosen] the row a place belongs to
  std::vector<std::int32_t> counts;          // [experts] rows
  std::vector<kernels::MatMulGroup> groups;  // of experts that have rows
  std::vector<std::int32_t> first_place;     // [groups]
  ExpertUse use;
};

// Scratch of one model, reused by every layer and step.
struct Workspace {
  Buffer angles;                        // [rows, rope half, 2]
  Buffer hidden, normed, delta;         // [rows, hidden]
  Buffer projected;                     // output of a block's first matrix
  Buffer queries, keys, values, mixed;  // attention
  Buffer absorbed;                      // queries against latent keys
  Buffer activated;                     // [rows, intermediate]
  Buffer last, last_delta;              // [logit rows, hidden]
  std::vector<int> positions;           // [rows]
  kernels::GroupedMatMul grouped;
  ExpertWorkspace experts;
  LoraBatch lora;
};

struct Step {
  std::span<const kernels::SequenceRows> sequences;
  int rows = 0;
  std::span<const float> angles;  // cosine and sine: [rows, rope half, 2]
  int rope_half = 0;
  float score_scale = 1.0f;  // RopeTable::score_scale
  kernels::KvPages& kv;
  kernels::Activations& activations;
  Workspace& workspace;
  ThreadPool& pool;
  LoraBatch* lora = nullptr;  // null: no row has an adapter
};

// x: [rows, hidden], normalised; out: [rows, hidden].
class AttentionBlock {
 public:
  virtual ~AttentionBlock() = default;
  virtual void Forward(Step& step, int layer, const float* x, float* out) const = 0;
  virtual std::size_t bytes() const = 0;
};

class FeedForwardBlock {
 public:
  virtual ~FeedForwardBlock() = default;
  virtual void Forward(Step& step, const float* x, float* out) const = 0;
  virtual std::size_t bytes() const = 0;
  virtual std::size_t expert_bytes() const { return 0; }  // of it: experts chosen among
};

// Grouped-query attention over paged K and V: biases and head norms as the config says.
Result<std::unique_ptr<AttentionBlock>> LoadGroupedQueryAttention(WeightLoader& weights,
                                                                  const ModelConfig& config,
                                                                  int layer);
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent vector and one rotated
// key a token in the pages, for all heads.
Result<std::unique_ptr<AttentionBlock>> LoadLatentAttention(WeightLoader& weights,
                                                            const ModelConfig& config, int layer);
// down(silu(gate(x)) * up(x)).
Result<std::unique_ptr<FeedForwardBlock>> LoadGatedMlp(WeightLoader& weights,
                                                       const ModelConfig& config, int layer);

// The expert every token takes: a gated MLP of its own width.
Result<std::unique_ptr<FeedForwardBlock>> LoadSharedExpert(WeightLoader& weights,
                                                           const ModelConfig& config, int layer);
// A router and experts of which each token takes a few; a gated MLP in the leading dense layers.
Result<std::unique_ptr<FeedForwardBlock>> LoadMixtureOfExperts(WeightLoader& weights,
                                                               const ModelConfig& config,
                                                               int layer);

// "blk.3.attn_q.weight"
std::string LayerName(int layer, std::string_view part);

}  // namespace tare::model
