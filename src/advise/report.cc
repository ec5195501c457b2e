#include "advise/report.h"

namespace tare::advise {
namespace {

econ::ServingCostInputs CostInputs(const CandidateResult& result, const LevelResult& level,
                                   const Plan& plan) {
  econ::ServingCostInputs inputs;
  inputs.machine_usd_per_hour = result.price.usd_per_hour * result.candidate.machines;
  inputs.rates = level.rates;
  inputs.utilisation = plan.utilisation;
  return inputs;
}

bool KeepsQuality(const Candidate& candidate, const ServiceLevels& levels) {
  if (!levels.min_quality || !candidate.quality) return true;
  return candidate.quality->higher_is_better ? candidate.quality->value >= *levels.min_quality
                                             : candidate.quality->value <= *levels.min_quality;
}

// The highest token rate that keeps the levels for sure enough, else that keeps them at all.
void ChooseLevel(CandidateResult& result, double confidence) {
  result.operating.reset();
  result.shown = 0;
  for (const double least : {confidence, 0.0}) {
    double best = 0;
    for (std::size_t i = 0; i < result.levels.size(); ++i) {
      const LevelResult& level = result.levels[i];
      if (!level.KeepsLevels() || level.SloProbability() < least ||
          level.rates.output_tokens_per_s <= best) {
        continue;
      }
      best = level.rates.output_tokens_per_s;
      result.operating = i;
      result.shown = i;
    }
    if (result.operating) return;
  }
}

}  // namespace

void Judge(Report& report) {
  std::vector<Contender> contenders;
  RankingOptions options;
  options.confidence = report.plan.confidence;
  options.min_difference = report.plan.min_difference;
  options.utilisation = report.plan.utilisation;
  if (report.plan.traffic) {
    options.traffic =
        econ::Traffic{report.plan.traffic->tokens_per_day, report.plan.traffic->peak_to_mean};
  }
  for (CandidateResult& result : report.candidates) {
    ChooseLevel(result, report.plan.confidence);
    result.quality_kept = KeepsQuality(result.candidate, report.plan.levels);
    Contender contender;
    contender.name = result.candidate.name;
    contender.feasible = result.feasible();
    if (const LevelResult* level = result.Shown()) {
      const econ::ServingCostInputs inputs = CostInputs(result, *level, report.plan);
      if (auto cost = econ::CostOfServing(inputs)) result.cost = *cost;
      if (options.traffic) {
        if (auto fleet = econ::FleetFor(inputs, *options.traffic)) result.fleet = *fleet;
      }
      contender.slo_probability = level->SloProbability();
      contender.usd_per_hour = inputs.machine_usd_per_hour;
      contender.rates = level->rates;
      contender.rate_relative_error = level->rate_error.relative_error;
      contender.rate_degrees_of_freedom = level->rate_error.degrees_of_freedom;
      contender.others_share = level->others_share.value_or(0);
    }
    contenders.push_back(std::move(contender));
  }
  report.ranking = Rank(contenders, options);
}

}  // namespace tare::advise
