#include "advise/simulated.h"

#include "advise/live_bench.h"
#include "sim/simulate.h"

namespace tare::advise {

Result<store::RunRecord> SimulateLevel(const Candidate& candidate, const LoadPlan& load,
                                       double level, int round,
                                       const std::function<bool()>& cancelled) {
  if (!load.dataset.empty()) {
    return Fail(ErrorKind::kUnsupported,
                "a simulation cannot read the data set's texts; give input_tokens and "
                "output_tokens, or measure this candidate");
  }
  const load::LoadOptions like = LoadOptionsFor(candidate, load, level, round);
  sim::SimPlan plan;
  plan.cluster.traffic.arrival = like.arrival;
  plan.cluster.traffic.seed = like.workload.seed;
  sim::TrafficClass kind;
  kind.input_tokens = load.input_tokens;
  kind.output_tokens = load.output_tokens;
  kind.length_cv = load.length_cv;
  kind.shared_prefix = load.shared_prefix;
  plan.cluster.traffic.classes = {kind};
  plan.cluster.duration = load.duration;
  plan.cluster.requests = load.requests;
  plan.cluster.warm_up = load.warm_up.value_or(load::DefaultWarmUp(load.duration));
  TARE_TRY(const sim::Traffic traffic, sim::Traffic::Create(plan.cluster.traffic));
  TARE_TRY(const econ::Catalog catalog, econ::Catalog::BuiltIn());
  TARE_TRY(sim::BuiltGroup group,
           sim::BuildGroup(candidate.replica, catalog, traffic.LongestSequence()));
  plan.cluster.groups = {std::move(group.spec)};
  plan.facts = {std::move(group.facts)};
  TARE_TRY(sim::Simulation simulation,
           sim::Simulate(plan, [&](const sim::SimProgress&) { return cancelled && cancelled(); }));
  if (simulation.outcome.cancelled) return Fail(ErrorKind::kCancelled, "stopped");
  simulation.record.target["candidate"] = candidate.name;
  return std::move(simulation.record);
}

}  // namespace tare::advise
