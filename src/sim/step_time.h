// How long a step takes. Two kinds of knowledge give it: what a device can do at most and the share
// of it servers reach (RooflineStepTime), or steps measured on a machine (MeasuredStepTime).
//
// Thread safety: immutable once made.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "econ/roofline.h"
#include "sim/step_load.h"

namespace tare::sim {

// How far off predictions made from a StepTime have been found to be: mean of |predicted / measured
// - 1| over measurements that were not fitted.
struct KnownError {
  double rate = 0;         // of tokens a second and of the time per token
  double first_token = 0;  // of the time to the first token
  std::string source;
};

class StepTime {
 public:
  virtual ~StepTime() = default;
  virtual double Seconds(const StepLoad& load) const = 0;
  virtual KnownError Error() const { return {}; }
  // What it rests on, for the record.
  virtual nlohmann::json Describe() const = 0;
};

// What a step costs a server besides bytes and FLOP, beyond econ::Efficiency's terms.
struct StepOverheads {
  double seconds_per_sparse_layer = 0;  // gathering tokens by expert, each step
  double seconds_per_sequence = 0;      // scheduling, sampling, detokenising, each token given
};

// The roofline of econ/roofline.h for a step of any composition. Weights are read once for all rows
// of a step (of sparse models the experts its tokens are expected to touch), keys and values once a
// sequence; bytes and FLOP overlap, links and overheads do not. For steps that only decode, or only
// prefill one prompt, it is econ::DecodeWork and econ::PrefillWork to the last digit but for the
// half token of causal attention.
class RooflineStepTime final : public StepTime {
 public:
  // `max_rows`: rows a step can have at most.
  RooflineStepTime(const econ::Deployment& deployment, const econ::Efficiency& efficiency,
                   int max_rows, const StepOverheads& overheads = {});
  double Seconds(const StepLoad& load) const override;
  KnownError Error() const override;  // of the fitted efficiency (efficiency.h)
  nlohmann::json Describe() const override;

 private:
  struct OfRows {  // of a step with so many rows, before attention
    double bytes = 0, flop = 0, link_seconds = 0;
  };
  econ::Deployment deployment_;
  econ::Efficiency efficiency_;
  StepOverheads overheads_;
  double kv_bytes_per_token_ = 0;
  double decode_flop_per_context_ = 0;
  double prefill_flop_per_pair_ = 0;
  double head_flop_ = 0;  // of one row's logits
  double seconds_per_byte_ = 0;
  double seconds_per_flop_ = 0;
  double overhead_seconds_ = 0;
  double seconds_per_sequence_ = 0;
  std::vector<OfRows> of_rows_;  // [rows]
};

}  // namespace tare::sim
