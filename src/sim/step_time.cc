#include "sim/step_time.h"

#include <algorithm>
#include <cmath>

#include "sim/efficiency.h"

namespace tare::sim {

RooflineStepTime::RooflineStepTime(const econ::Deployment& deployment,
                                   const econ::Efficiency& efficiency, int max_rows,
                                   const StepOverheads& overheads)
    : deployment_(deployment), efficiency_(efficiency), overheads_(overheads) {
  const econ::ModelFacts& model = deployment_.model;
  kv_bytes_per_token_ = econ::KvBytesPerToken(model, deployment_.cache);
  decode_flop_per_context_ = econ::AttentionFlopPerContextToken(model);
  // MLA computes prompts expanded (econ::PrefillWork): the FLOP of a prompt less those that grow
  // with its length leave those of its pairs.
  const double tokens = 1 << 20;
  const double square = econ::PrefillWork(deployment_, tokens).flop;
  const double line = 2 * econ::PrefillWork(deployment_, tokens / 2).flop;
  prefill_flop_per_pair_ = (square - line + econ::PrefillWork(deployment_, 0).flop) /
                           (tokens * tokens / 2 - tokens * tokens / 4);
  const econ::ParameterCounts counts = econ::CountParameters(model);
  head_flop_ = 2 * (model.tied_embeddings ? counts.input_embedding : counts.output_head);

  // Rates, through the one function that knows which peak and which link bind.
  const auto seconds = [&](double bytes, double flop, double link) {
    econ::StepWork work;
    work.kv_bytes = bytes;
    work.flop = flop;
    work.link_bytes_per_device = link;
    return econ::TimeOf(work, deployment_, efficiency_);
  };
  seconds_per_byte_ = seconds(1e12, 0, 0).memory_seconds / 1e12;
  seconds_per_flop_ = seconds(0, 1e15, 0).compute_seconds / 1e15;
  overhead_seconds_ =
      econ::TimeOf(econ::DecodeWork(deployment_, 1, 0), deployment_, efficiency_).overhead_seconds +
      overheads_.seconds_per_sparse_layer * model.sparse_layers();
  // Each attention rank schedules and samples its own share of the batch.
  seconds_per_sequence_ =
      overheads_.seconds_per_sequence / std::max(1, deployment_.attention_replicas);
  of_rows_.resize(static_cast<std::size_t>(std::max(1, max_rows)) + 1);
  for (std::size_t rows = 1; rows < of_rows_.size(); ++rows) {
    const econ::StepWork work = econ::DecodeWork(deployment_, static_cast<double>(rows), 0);
    of_rows_[rows] = {work.weight_bytes, work.flop,
                      seconds(0, 0, work.link_bytes_per_device).link_seconds};
  }
}

double RooflineStepTime::Seconds(const StepLoad& load) const {
  const auto rows = std::min(static_cast<std::size_t>(load.rows), of_rows_.size() - 1);
  const OfRows& base = of_rows_[rows];
  const double bytes =
      base.bytes + (load.decode_context + load.prefill_context) * kv_bytes_per_token_;
  const double flop = base.flop - (load.rows - load.logit_rows) * head_flop_ +
                      load.decode_context * decode_flop_per_context_ +
                      load.prefill_pairs * prefill_flop_per_pair_;
  return std::max(bytes * seconds_per_byte_, flop * seconds_per_flop_) + base.link_seconds +
         overhead_seconds_ + load.logit_rows * seconds_per_sequence_;
}

KnownError RooflineStepTime::Error() const { return FittedEfficiencyError(); }

nlohmann::json RooflineStepTime::Describe() const {
  return {{"kind", "roofline"},
          {"model", deployment_.model.name},
          {"device", deployment_.device.name},
          {"devices", deployment_.devices},
          {"weights", deployment_.weights.name},
          {"cache", deployment_.cache.name},
          {"attention_replicas", deployment_.attention_replicas},
          {"efficiency",
           {{"bandwidth", efficiency_.bandwidth},
            {"compute", efficiency_.compute},
            {"seconds_per_layer", efficiency_.seconds_per_layer},
            {"seconds_per_collective", efficiency_.seconds_per_collective},
            {"seconds_per_sparse_layer", overheads_.seconds_per_sparse_layer},
            {"seconds_per_sequence", overheads_.seconds_per_sequence}}}};
}

}  // namespace tare::sim
