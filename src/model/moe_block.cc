// Mixture of experts: each row goes to a few experts that its router chooses, and takes the
// weighted sum of what they say; a shared expert's answer comes on top where the family has one.
//
// Rows are sorted by expert once. Gate and up of all chosen experts are one job over (expert x
// strip of output), activation and down another: experts of few and of many rows share the threads
// without a barrier between them, nothing is padded, and only weights of chosen experts are read. A
// row's sum goes from its best expert down, so its bits do not depend on the rows beside it.
#include <algorithm>
#include <numeric>

#include "kernels/elementwise.h"
#include "model/blocks.h"
#include "model/router.h"

namespace tare::model {
namespace {

// Rows worth waking another thread for: choosing 8 of 128 experts takes about 2 us.
constexpr std::size_t kRowsPerShare = 8;

class MixtureOfExperts : public FeedForwardBlock {
 public:
  void Forward(Step& step, const float* x, float* out) const override {
    if (shared_ != nullptr) shared_->Forward(step, x, out);
    Route(step, x);
    SortByExpert(step);
    const std::size_t places = step.workspace.experts.sorted_row.size();
    const auto size = static_cast<std::size_t>(config_.intermediate);
    ExpertWorkspace& ws = step.workspace.experts;
    float* gate_up = ws.gate_up.Get(places * 2 * size);
    float* down = ws.down.Get(places * hidden_);

    const auto input = [&](std::size_t group, std::int64_t row, float*) {
      const auto place = static_cast<std::size_t>(ws.first_place[group] + row);
      return x + static_cast<std::size_t>(ws.sorted_row[place]) * hidden_;
    };
    const auto activated = [&](std::size_t group, std::int64_t row, float* scratch) {
      const auto place = static_cast<std::size_t>(ws.first_place[group] + row);
      const float* gate = gate_up + place * 2 * size;
      kernels::SiluMultiplyRow(gate, gate + size, config_.intermediate, scratch);
      return static_cast<const float*>(scratch);
    };
    SetGroups(ws, gate_up_, gate_up, 2 * size);
    if (see_) Show(ws, gate_up_name_, hidden_, input);
    step.workspace.grouped.Run(ws.groups, input, step.pool);
    SetGroups(ws, down_, down, hidden_);
    if (see_) Show(ws, down_name_, size, activated);
    step.workspace.grouped.Run(ws.groups, activated, step.pool);
    kernels::WeightedSum(down, static_cast<std::int64_t>(hidden_), ws.places, ws.weights,
                         config_.chosen, shared_ != nullptr, out, step.pool);
  }

  std::size_t bytes() const override {
    return router_.bytes() + (shared_ == nullptr ? 0 : shared_->bytes()) + expert_bytes();
  }

  std::size_t expert_bytes() const override {
    std::size_t sum = 0;
    for (const auto* set : {&gate_up_, &down_}) {
      for (const kernels::PackedMatrix& matrix : *set) sum += matrix.bytes();
    }
    return sum;
  }

  static Result<std::unique_ptr<FeedForwardBlock>> Load(WeightLoader& weights,
                                                        const ModelConfig& config, int layer) {
    auto block = std::make_unique<MixtureOfExperts>();
    const ExpertsConfig& experts = *config.experts;
    block->config_ = experts;
    block->hidden_ = static_cast<std::size_t>(config.hidden);
    block->index_ = layer - experts.leading_dense_layers;
    const auto part = [&](const char* name, std::int64_t rows) {
      return MatrixSetPart{
          LayerName(layer, fmt::format("{}_exps.weight", name)), rows,
          [=](int expert) { return LayerName(layer, fmt::format("{}.{}.weight", name, expert)); }};
    };
    TARE_TRY(block->router_, weights.Matrix(LayerName(layer, "ffn_gate_inp.weight"), experts.count,
                                            config.hidden, MatrixRole::kRouter));
    if (experts.choice_bias) {
      TARE_TRY(block->choice_bias_,
               weights.Vector(LayerName(layer, "exp_probs_b.bias"), experts.count));
    }
    const MatrixSetPart gate_up[] = {part("ffn_gate", experts.intermediate),
                                     part("ffn_up", experts.intermediate)};
    const MatrixSetPart down[] = {part("ffn_down", config.hidden)};
    TARE_TRY(block->gate_up_, weights.Set(gate_up, experts.count, config.hidden));
    TARE_TRY(block->down_, weights.Set(down, experts.count, experts.intermediate));
    block->see_ = weights.observer();
    block->gate_up_name_ = gate_up[0].stacked + "+" + gate_up[1].stacked;
    block->down_name_ = down[0].stacked;
    if (experts.shared_intermediate > 0) {
      TARE_TRY(block->shared_, LoadSharedExpert(weights, config, layer));
    }
    return block;
  }

 private:
  void Route(Step& step, const float* x) const {
    ExpertWorkspace& ws = step.workspace.experts;
    const auto rows = static_cast<std::size_t>(step.rows);
    const auto count = static_cast<std::size_t>(config_.count);
    const auto chosen = static_cast<std::size_t>(config_.chosen);
    float* logits = ws.logits.Get(rows * count);
    step.activations.Set(x, step.rows, router_.cols());
    kernels::MatMul(router_, step.activations, logits, 0, step.pool);
    ws.ids.resize(rows * chosen);
    ws.weights.resize(rows * chosen);
    step.pool.ParallelFor(rows, kRowsPerShare, [&](std::size_t begin, std::size_t end) {
      thread_local RouterScratch scratch;
      for (std::size_t row = begin; row < end; ++row) {
        ChooseExperts(config_, {logits + row * count, count}, choice_bias_, scratch,
                      std::span(ws.ids).subspan(row * chosen, chosen),
                      std::span(ws.weights).subspan(row * chosen, chosen));
      }
    });
  }

  // Counting sort; rows keep their order within an expert.
  void SortByExpert(Step& step) const {
    ExpertWorkspace& ws = step.workspace.experts;
    ws.counts.assign(static_cast<std::size_t>(config_.count), 0);
    for (const std::int32_t id : ws.ids) ++ws.counts[static_cast<std::size_t>(id)];
    Note(ws);
    std::vector<std::int32_t>& next = ws.first_place;
    next.resize(ws.counts.size());
    std::exclusive_scan(ws.counts.begin(), ws.counts.end(), next.begin(), 0);
    ws.places.resize(ws.ids.size());
    ws.sorted_row.resize(ws.ids.size());
    for (std::size_t i = 0; i < ws.ids.size(); ++i) {
      const std::int32_t place = next[static_cast<std::size_t>(ws.ids[i])]++;
      ws.places[i] = place;
      ws.sorted_row[static_cast<std::size_t>(place)] =
          static_cast<std::int32_t>(i / static_cast<std::size_t>(config_.chosen));
    }
  }

  // One group for each expert that has rows, writing `width` floats a place.
  void SetGroups(ExpertWorkspace& ws, const std::vector<kernels::PackedMatrix>& matrices, float* y,
                 std::size_t width) const {
    ws.groups.clear();
    ws.first_place.clear();
    std::int32_t place = 0;
    for (std::size_t expert = 0; expert < ws.counts.size(); ++expert) {
      const std::int32_t rows = ws.counts[expert];
      if (rows == 0) continue;
      ws.groups.push_back(
          {&matrices[expert], rows, y + static_cast<std::size_t>(place) * width, 0});
      ws.first_place.push_back(place);
      place += rows;
    }
  }

  // Tells the observer of every expert's inputs, which `source` gives as GroupedMatMul wants them.
  template <typename Source>
  void Show(const ExpertWorkspace& ws, const std::string& name, std::size_t width,
            const Source& source) const {
    std::vector<float> rows;
    std::size_t group = 0;
    for (std::size_t expert = 0; expert < ws.counts.size(); ++expert) {
      const auto count = static_cast<std::size_t>(ws.counts[expert]);
      if (count == 0) continue;
      rows.resize(count * width);
      for (std::size_t row = 0; row < count; ++row) {
        float* to = rows.data() + row * width;
        const float* from = source(group, static_cast<std::int64_t>(row), to);
        if (from != to) std::copy_n(from, width, to);
      }
      see_(fmt::format("{}[{}]", name, expert), rows, static_cast<std::int64_t>(width));
      ++group;
    }
  }

  void Note(ExpertWorkspace& ws) const {
    ExpertUse& use = ws.use;
    const std::size_t at = static_cast<std::size_t>(index_) * ws.counts.size();
    std::uint64_t touched = 0;
    for (std::size_t expert = 0; expert < ws.counts.size(); ++expert) {
      use.tokens[at + expert] += static_cast<std::uint64_t>(ws.counts[expert]);
      touched += ws.counts[expert] > 0;
    }
    use.step_touched += touched;
    use.step_present += ws.counts.size();
  }

  ExpertsConfig config_;
  std::size_t hidden_ = 0;
  int index_ = 0;  // among the layers that have experts
  kernels::PackedMatrix router_;
  std::vector<float> choice_bias_;              // or empty
  std::vector<kernels::PackedMatrix> gate_up_;  // [experts]
  std::vector<kernels::PackedMatrix> down_;
  std::unique_ptr<FeedForwardBlock> shared_;  // or null
  LoadOptions::Observer see_;                 // mostly empty
  std::string gate_up_name_, down_name_;      // what it is told
};

}  // namespace

Result<std::unique_ptr<FeedForwardBlock>> LoadMixtureOfExperts(WeightLoader& weights,
                                                               const ModelConfig& config,
                                                               int layer) {
  if (layer < config.experts->leading_dense_layers) return LoadGatedMlp(weights, config, layer);
  return MixtureOfExperts::Load(weights, config, layer);
}

}  // namespace tare::model
