// The gated feed-forward block: gate and up from one stacked matrix, then down.
#include "kernels/elementwise.h"
#include "model/blocks.h"

namespace tare::model {
namespace {

class GatedMlp : public FeedForwardBlock {
 public:
  void Forward(Step& step, const float* x, float* out) const override {
    const auto rows = static_cast<std::size_t>(step.rows);
    const auto size = static_cast<std::size_t>(intermediate_);
    float* projected = step.workspace.projected.Get(rows * 2 * size);
    float* activated = step.workspace.activated.Get(rows * size);
    step.activations.Set(x, step.rows, gate_up_.cols());
    kernels::MatMul(gate_up_, step.activations, projected, 0, step.pool);
    if (step.lora != nullptr) {
      step.lora->Add(layer_, LoraSite::kMlpInput, x, gate_up_.cols(), projected,
                     2 * std::int64_t{intermediate_}, step.pool);
    }
    kernels::SiluMultiply(projected, projected + size, 2 * std::int64_t{intermediate_}, step.rows,
                          intermediate_, activated, step.pool);
    step.activations.Set(activated, step.rows, down_.cols());
    kernels::MatMul(down_, step.activations, out, 0, step.pool);
    if (step.lora != nullptr) {
      step.lora->Add(layer_, LoraSite::kMlpOutput, activated, down_.cols(), out, down_.rows(),
                     step.pool);
    }
  }

  std::size_t bytes() const override { return gate_up_.bytes() + down_.bytes(); }

  static Result<std::unique_ptr<FeedForwardBlock>> Load(WeightLoader& weights, int hidden,
                                                        int intermediate, int layer,
                                                        bool shared_expert) {
    auto block = std::make_unique<GatedMlp>();
    block->intermediate_ = intermediate;
    block->layer_ = layer;
    const char* suffix = shared_expert ? "_shexp" : "";
    const auto name = [&](const char* part) {
      return LayerName(layer, std::string(part) + suffix + ".weight");
    };
    const MatrixPart parts[] = {{name("ffn_gate"), intermediate, {}},
                                {name("ffn_up"), intermediate, {}}};
    TARE_TRY(block->gate_up_, weights.Stacked(parts, hidden));
    TARE_TRY(block->down_, weights.Matrix(name("ffn_down"), hidden, intermediate));
    return block;
  }

 private:
  int intermediate_ = 0;
  int layer_ = 0;  // for adapters, which number them alike
  kernels::PackedMatrix gate_up_;
  kernels::PackedMatrix down_;
};

}  // namespace

Result<std::unique_ptr<FeedForwardBlock>> LoadGatedMlp(WeightLoader& weights,
                                                       const ModelConfig& config, int layer) {
  return GatedMlp::Load(weights, config.hidden, config.intermediate, layer, false);
}

Result<std::unique_ptr<FeedForwardBlock>> LoadSharedExpert(WeightLoader& weights,
                                                           const ModelConfig& config, int layer) {
  return GatedMlp::Load(weights, config.hidden, config.experts->shared_intermediate, layer, true);
}

}  // namespace tare::model
