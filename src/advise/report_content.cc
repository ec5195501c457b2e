#include "advise/report_content.h"

#include <algorithm>
#include <cmath>

#include "advise/escape.h"
#include "advise/explain.h"
#include "advise/tiers.h"
#include "base/text.h"
#include "base/units.h"

namespace tare::advise {
namespace {

constexpr const char* kComputed = "computed";
constexpr const char* kAssumed = "assumed";
// Other programs' part of the machine from which a caution is due: it moves rates by about as much,
// and twice the smallest cost difference a plan counts by default can turn an answer.
constexpr double kWorthSaying = 0.04;

std::string MemoryText(std::uint64_t bytes) { return bytes == 0 ? "–" : FormatBytes(bytes); }

// Builds the comparison, one row after the other.
class Comparison {
 public:
  Comparison(const Report& report, const Words& words) : report_(report), words_(words) {
    // One without figures would be a column of dashes; the answer says why it is out.
    for (std::size_t i = 0; i < report.candidates.size(); ++i) {
      if (report.candidates[i].Shown() != nullptr) columns_.push_back(i);
    }
    for (const std::size_t i : columns_) {
      table_.heads.push_back(report.candidates[i].candidate.name);
    }
  }

  Table Build() {
    Verdicts();
    Costs();
    Rates();
    Latencies();
    Resources();
    return std::move(table_);
  }

 private:
  // Adds a row; `cell` makes each candidate's cell from its shown level.
  template <typename MakeCell>
  TableRow& Row(std::string label, MakeCell cell) {
    TableRow row;
    row.label = std::move(label);
    for (const std::size_t i : columns_) {
      const CandidateResult& result = report_.candidates[i];
      row.cells.push_back(cell(i, result, *result.Shown()));
    }
    table_.rows.push_back(std::move(row));
    return table_.rows.back();
  }

  void Verdicts() {
    Row(words_.Say("row.levels"),
        [&](std::size_t, const CandidateResult& result, const LevelResult&) {
          Cell cell;
          cell.tag = kComputed;
          cell.text = words_.Say(result.feasible() ? "yes" : "no");
          cell.bad = !result.feasible();
          return cell;
        });
    Row(words_.Say("row.load"),
        [&](std::size_t, const CandidateResult& result, const LevelResult& level) {
          return Cell{LevelText(report_.plan.load, level.level, words_), kAssumed,
                      result.operating ? "" : words_.Say("row.load.lightest"), false, false};
        });
  }

  void Costs() {
    Row(words_.Say(report_.plan.traffic ? "row.cost_full" : "row.cost"),
        [&](std::size_t i, const CandidateResult& result, const LevelResult&) {
          Cell cell;
          cell.tag = kComputed;
          cell.text = result.cost ? FormatUsd(result.cost->usd_per_million_tokens) : "–";
          const Standing& standing = report_.ranking.standings[i];
          if (result.cost && std::isfinite(standing.low) && !report_.plan.traffic) {
            cell.note = standing.interval_known()
                            ? words_.Say("interval", {{"low", FormatUsd(standing.low)},
                                                      {"high", FormatUsd(standing.high)}})
                            : words_.Say("interval.unknown");
          }
          cell.best = report_.ranking.pick == i;
          return cell;
        });
    Row(words_.Say("row.cost_output"),
        [&](std::size_t, const CandidateResult& result, const LevelResult&) {
          return Cell{result.cost ? FormatUsd(result.cost->usd_per_million_output_tokens) : "–",
                      kComputed, "", false, false};
        });
    Row(words_.Say("row.requests_per_usd"),
        [&](std::size_t, const CandidateResult& result, const LevelResult&) {
          return Cell{result.cost ? FormatFigure(result.cost->requests_per_s_per_usd_month) : "–",
                      kComputed, "", false, false};
        });
    Row(words_.Say("row.price"),
        [&](std::size_t, const CandidateResult& result, const LevelResult&) {
          Cell cell{FormatUsd(result.price.usd_per_hour * result.candidate.machines),
                    result.price.tag, "", false, false};
          if (result.candidate.machines > 1) {
            cell.note = fmt::format("{} × {}", result.candidate.machines,
                                    FormatUsd(result.price.usd_per_hour));
          }
          return cell;
        });
    if (report_.plan.traffic) {
      Row(words_.Say("row.cost_traffic"),
          [&](std::size_t i, const CandidateResult& result, const LevelResult&) {
            Cell cell{"–", kComputed, "", false, false};
            if (result.fleet) {
              cell.text = FormatUsd(report_.ranking.standings[i].usd_per_million_tokens);
            }
            return cell;
          });
      Row(words_.Say("row.fleet"),
          [&](std::size_t, const CandidateResult& result, const LevelResult&) {
            Cell cell{"–", kComputed, "", false, false};
            if (result.fleet) {
              cell.text = FormatUsd(result.fleet->usd_per_month);
              cell.note =
                  words_.Say(result.fleet->machines == 1 ? "row.fleet.note_one" : "row.fleet.note",
                             {{"machines", fmt::format("{}", result.fleet->machines)},
                              {"share", FormatShare(result.fleet->utilisation)}});
            }
            return cell;
          });
    }
    Row(words_.Say("row.p_best"), [&](std::size_t i, const CandidateResult&, const LevelResult&) {
      return Cell{FormatShare(report_.ranking.standings[i].p_best), kComputed, "", false, false};
    });
  }

  void Rates() {
    Row(words_.Say("row.output_rate"),
        [&](std::size_t, const CandidateResult&, const LevelResult& level) {
          Cell cell{FormatFigure(level.rates.output_tokens_per_s), level.tag, "", false, false};
          if (level.rate_error.relative_error < 1) {
            cell.note = "± " + FormatShare(level.rate_error.relative_error);
          }
          return cell;
        });
    Row(words_.Say("row.request_rate"),
        [&](std::size_t, const CandidateResult&, const LevelResult& level) {
          return Cell{FormatFigure(level.rates.requests_per_s), level.tag, "", false, false};
        });
  }

  void Latencies() {
    for (const Metric metric : kMetrics) {
      for (const Percentile percentile : kPercentiles) {
        AddLatency(metric, percentile);
      }
    }
  }

  void AddLatency(Metric metric, Percentile percentile) {
    const auto m = static_cast<std::size_t>(metric);
    const auto p = static_cast<std::size_t>(percentile);
    const auto& limits = report_.plan.levels.latency;
    const auto limit = std::find_if(limits.begin(), limits.end(), [&](const LatencyLimit& one) {
      return one.metric == metric && one.percentile == percentile;
    });
    const bool limited = limit != limits.end();
    const bool known = std::any_of(
        report_.candidates.begin(), report_.candidates.end(), [&](const CandidateResult& result) {
          return result.Shown() != nullptr && std::isfinite(result.Shown()->percentile_s[m][p]);
        });
    // Chunk gaps are shown where a limit is on them; the mean gap (TPOT) serves otherwise.
    if (!limited && (!known || metric == Metric::kItl)) return;
    TableRow& row = Row(NameOf(metric, words_) + ", " + words_.Say(ToString(percentile)),
                        [&](std::size_t, const CandidateResult&, const LevelResult& level) {
                          const double value = level.percentile_s[m][p];
                          Cell cell{FormatSeconds(value), level.tag, "", false, false};
                          if (std::isnan(value)) {
                            cell.text = words_.Say("too_few");
                            cell.note =
                                fmt::format("{} < {}", level.samples[m], SamplesNeeded(percentile));
                          }
                          cell.bad = limited && !(value <= limit->limit_s);
                          return cell;
                        });
    if (limited) row.note = words_.Say("limit", {{"limit", FormatSeconds(limit->limit_s)}});
  }

  void Resources() {
    if (std::any_of(report_.candidates.begin(), report_.candidates.end(),
                    [](const CandidateResult& result) {
                      return result.Shown() != nullptr && result.Shown()->prediction_error > 0;
                    })) {
      Row(words_.Say("row.known_error"),
          [&](std::size_t, const CandidateResult&, const LevelResult& level) {
            if (level.prediction_error <= 0) return Cell{"–", "", "", false, false};
            return Cell{
                FormatShare(level.prediction_error), level.tag == "claimed" ? kAssumed : kComputed,
                words_.Say("known_error.first", {{"share", FormatShare(level.first_token_error)}}),
                false, false};
          });
    }
    Row(words_.Say("row.errors"), [&](std::size_t, const CandidateResult&,
                                      const LevelResult& level) {
      if (level.tag == "claimed") return Cell{"–", "", "", false, false};
      return Cell{FormatShare(level.error_share), level.tag,
                  words_.Say("of_requests", {{"n", fmt::format("{}", level.total)}}), false,
                  !level.errors_kept};
    }).note = words_.Say("limit", {{"limit", FormatShare(report_.plan.levels.max_error_share)}});
    if (std::any_of(report_.candidates.begin(), report_.candidates.end(),
                    [](const CandidateResult& result) {
                      return result.Shown() != nullptr && result.Shown()->others_share;
                    })) {
      Row(words_.Say("row.others"),
          [&](std::size_t, const CandidateResult&, const LevelResult& level) {
            return level.others_share
                       ? Cell{FormatShare(*level.others_share), level.tag, "", false, false}
                       : Cell{"–", "", "", false, false};
          });
    }
    if (std::any_of(report_.candidates.begin(), report_.candidates.end(),
                    [](const CandidateResult& result) {
                      return result.Shown() != nullptr && result.Shown()->peak_memory_bytes > 0;
                    })) {
      Row(words_.Say("row.memory"),
          [&](std::size_t, const CandidateResult&, const LevelResult& level) {
            return Cell{MemoryText(level.peak_memory_bytes),
                        level.peak_memory_bytes ? level.tag : "", "", false, false};
          });
    }
    if (std::any_of(report_.candidates.begin(), report_.candidates.end(),
                    [](const CandidateResult& result) { return result.ready_s.has_value(); })) {
      Row(words_.Say("row.ready"), [&](std::size_t, const CandidateResult& result,
                                       const LevelResult& level) {
        return result.ready_s ? Cell{FormatSeconds(*result.ready_s), level.tag, "", false, false}
                              : Cell{"–", "", "", false, false};
      });
    }
    for (const CandidateResult& result : report_.candidates) {
      if (!result.candidate.quality) continue;
      TableRow& row = Row(words_.Say("row.quality", {{"metric", result.candidate.quality->metric}}),
                          [&](std::size_t, const CandidateResult& one, const LevelResult&) {
                            if (!one.candidate.quality) return Cell{"–", "", "", false, false};
                            return Cell{FormatFigure(one.candidate.quality->value), "claimed", "",
                                        false, !one.quality_kept};
                          });
      if (report_.plan.levels.min_quality) {
        row.note = words_.Say("limit", {{"limit", FormatFigure(*report_.plan.levels.min_quality)}});
      }
      break;
    }
  }

  const Report& report_;
  const Words& words_;
  std::vector<std::size_t> columns_;  // candidates shown
  Table table_;
};

// Collects every figure the report rests on.
class EvidenceList {
 public:
  EvidenceList(const Report& report, const Words& words) : report_(report), words_(words) {}

  std::vector<Evidence> Build() {
    for (std::size_t i = 0; i < report_.candidates.size(); ++i) AddCandidate(i);
    return std::move(list_);
  }

 private:
  void Add(const CandidateResult& result, std::string id, std::string what, double value,
           std::string text, std::string unit, std::string tag, std::string source) {
    if (!std::isfinite(value)) return;
    list_.push_back({result.candidate.name + "." + id, result.candidate.name, std::move(what),
                     value, std::move(text), std::move(unit), std::move(tag), std::move(source)});
  }

  void AddCandidate(std::size_t index) {
    const CandidateResult& result = report_.candidates[index];
    std::string price_source = result.price.source;
    if (!result.price.date.empty()) price_source += ", " + result.price.date;
    Add(result, "price", words_.Say("row.price"), result.price.usd_per_hour,
        FormatUsd(result.price.usd_per_hour), "USD/h", result.price.tag, price_source);
    if (result.ready_s) {
      Add(result, "ready", words_.Say("row.ready"), *result.ready_s, FormatSeconds(*result.ready_s),
          "s", "measured", words_.Say("source.ready"));
    }
    if (result.candidate.quality) {
      const Quality& quality = *result.candidate.quality;
      Add(result, "quality", words_.Say("row.quality", {{"metric", quality.metric}}), quality.value,
          FormatFigure(quality.value), quality.metric, "claimed", quality.source);
    }
    for (const econ::JudgedClaim& judged : result.claims) AddClaim(result, judged);
    for (const LevelResult& level : result.levels) AddLevel(result, level);
    if (result.cost) AddCosts(index, result);
  }

  // The verdict is computed; that what it judges was claimed, its name says.
  void AddClaim(const CandidateResult& result, const econ::JudgedClaim& judged) {
    list_.push_back({result.candidate.name + ".claim." + judged.claim.id, result.candidate.name,
                     words_.Say("evidence.claim", {{"claim", judged.claim.id}}),
                     judged.judgement.margin.value_or(0),
                     std::string(econ::ToString(judged.judgement.verdict)), "", kComputed,
                     judged.judgement.arithmetic});
  }

  void AddLevel(const CandidateResult& result, const LevelResult& level) {
    const bool claimed = level.tag == "claimed";
    const std::string source =
        claimed
            ? result.candidate.claimed.source
            : words_.Say("source.runs", {{"runs", fmt::format("{}", fmt::join(level.runs, ", "))}});
    const std::string at = LevelText(report_.plan.load, level.level, words_);
    const std::string prefix = fmt::format("{:g}.", level.level);
    const auto add = [&](const char* id, const std::string& what, double value, std::string text,
                         const char* unit, const char* tag = nullptr) {
      Add(result, prefix + id, what + " (" + at + ")", value, std::move(text), unit,
          tag != nullptr ? tag : level.tag, source);
    };
    if (!claimed) {
      const auto ok = static_cast<double>(level.ok);
      add("answers", words_.Say("evidence.answers"), ok, FormatFigure(ok), "requests");
      add("errors", words_.Say("row.errors"), level.error_share, FormatShare(level.error_share),
          "");
    }
    add("requests_per_s", words_.Say("row.request_rate"), level.rates.requests_per_s,
        FormatFigure(level.rates.requests_per_s), "1/s");
    add("output_tokens_per_s", words_.Say("row.output_rate"), level.rates.output_tokens_per_s,
        FormatFigure(level.rates.output_tokens_per_s), "tokens/s");
    add("output_rate_error", words_.Say("evidence.rate_error"), level.rate_error.relative_error,
        FormatShare(level.rate_error.relative_error), "", kComputed);
    if (level.prediction_error > 0) {
      add("known_error", words_.Say("row.known_error"), level.prediction_error,
          FormatShare(level.prediction_error), "", claimed ? kAssumed : kComputed);
      add("known_error_first_token", words_.Say("row.known_error_first"), level.first_token_error,
          FormatShare(level.first_token_error), "", claimed ? kAssumed : kComputed);
    }
    for (const Metric metric : kMetrics) {
      const auto m = static_cast<std::size_t>(metric);
      for (const Percentile percentile : kPercentiles) {
        const double value = level.percentile_s[m][static_cast<std::size_t>(percentile)];
        add(fmt::format("{}_{}", ToString(metric), ToString(percentile)).c_str(),
            NameOf(metric, words_) + ", " + words_.Say(ToString(percentile)), value,
            FormatSeconds(value), "s");
      }
      add(fmt::format("{}_max", ToString(metric)).c_str(),
          NameOf(metric, words_) + ", " + words_.Say("max"), level.max_s[m],
          FormatSeconds(level.max_s[m]), "s");
    }
    if (level.peak_memory_bytes > 0) {
      add("memory", words_.Say("row.memory"), static_cast<double>(level.peak_memory_bytes),
          MemoryText(level.peak_memory_bytes), "bytes");
    }
  }

  void AddCosts(std::size_t index, const CandidateResult& result) {
    const std::string formula =
        words_.Say("source.cost", {{"share", FormatShare(report_.plan.utilisation)}});
    Add(result, "cost", words_.Say("row.cost"), result.cost->usd_per_million_tokens,
        FormatUsd(result.cost->usd_per_million_tokens), "USD/1M tokens", kComputed, formula);
    Add(result, "cost_output", words_.Say("row.cost_output"),
        result.cost->usd_per_million_output_tokens,
        FormatUsd(result.cost->usd_per_million_output_tokens), "USD/1M tokens", kComputed, formula);
    Add(result, "p_best", words_.Say("row.p_best"), report_.ranking.standings[index].p_best,
        FormatShare(report_.ranking.standings[index].p_best), "", kComputed,
        words_.Say("source.p_best"));
  }

  const Report& report_;
  const Words& words_;
  std::vector<Evidence> list_;
};

std::vector<KeyFigure> KeyFigures(const Report& report, const Words& words) {
  if (!report.ranking.first) return {};
  const std::size_t first = *report.ranking.first;
  const CandidateResult& result = report.candidates[first];
  const LevelResult& level = *result.Shown();
  std::vector<KeyFigure> figures;
  figures.push_back({words.Say(report.plan.traffic ? "key.cost_traffic" : "key.cost"),
                     FormatUsd(report.ranking.standings[first].usd_per_million_tokens), kComputed,
                     result.candidate.name});
  figures.push_back({words.Say("key.rate"), FormatFigure(level.rates.output_tokens_per_s),
                     level.tag, LevelText(report.plan.load, level.level, words)});
  for (const Percentile percentile :
       {Percentile::kP99, Percentile::kP95, Percentile::kP90, Percentile::kP50}) {
    const double value = level.percentile_s[static_cast<std::size_t>(Metric::kE2e)]
                                           [static_cast<std::size_t>(percentile)];
    if (std::isnan(value)) continue;
    figures.push_back({words.Say("key.e2e", {{"share", FormatShare(ShareOf(percentile))}}),
                       FormatSeconds(value), level.tag,
                       LevelText(report.plan.load, level.level, words)});
    break;
  }
  if (level.peak_memory_bytes > 0) {
    figures.push_back({words.Say("key.memory"), MemoryText(level.peak_memory_bytes), level.tag,
                       result.candidate.name});
  }
  return figures;
}

// "8 × h200, deepseek-v3 at fp8, 2 replicas": in names, not in a language.
std::string DescribeReplica(const sim::ReplicaPlan& replica) {
  std::string text = !replica.calibration.empty()
                         ? "tare sim: " + replica.calibration.string()
                         : fmt::format("tare sim: {} × {}, {} ({})", replica.devices,
                                       replica.device, replica.model, replica.weights);
  if (replica.replicas > 1) text += fmt::format(" × {}", replica.replicas);
  return text;
}

std::vector<std::pair<std::string, std::string>> Inputs(const Report& report, const Words& words) {
  const LoadPlan& load = report.plan.load;
  std::vector<std::pair<std::string, std::string>> inputs;
  std::vector<std::string> levels;
  for (const double level : load.levels) levels.push_back(LevelText(load, level, words));
  inputs.emplace_back(words.Say("input.load"), fmt::format("{}", fmt::join(levels, ", ")));
  inputs.emplace_back(
      words.Say("input.lengths"),
      words.Say("input.lengths.value", {{"input", fmt::format("{}", load.input_tokens)},
                                        {"output", fmt::format("{}", load.output_tokens)}}));
  inputs.emplace_back(
      words.Say("input.amount"),
      load.requests > 0
          ? words.Say("input.amount.requests", {{"n", fmt::format("{}", load.requests)},
                                                {"rounds", fmt::format("{}", load.rounds)}})
          : words.Say("input.amount.time", {{"time", FormatDuration(load.duration)},
                                            {"rounds", fmt::format("{}", load.rounds)}}));
  inputs.emplace_back(words.Say("input.utilisation"), FormatShare(report.plan.utilisation));
  inputs.emplace_back(words.Say("input.confidence"), FormatShare(report.plan.confidence));
  inputs.emplace_back(words.Say("input.min_difference"), FormatShare(report.plan.min_difference));
  if (report.plan.traffic) {
    inputs.emplace_back(words.Say("input.traffic"),
                        words.Say("input.traffic.value",
                                  {{"tokens", FormatFigure(report.plan.traffic->tokens_per_day)},
                                   {"peak", FormatFigure(report.plan.traffic->peak_to_mean)}}));
  }
  for (const CandidateResult& result : report.candidates) {
    std::string value;
    switch (result.candidate.kind) {
      case Candidate::Kind::kLocal:
        for (const std::string& word : result.command) value += QuoteShell(word) + " ";
        break;
      case Candidate::Kind::kRemote:
        value = result.candidate.url;
        break;
      case Candidate::Kind::kStored:
        value = words.Say("source.runs",
                          {{"runs", fmt::format("{}", fmt::join(result.candidate.runs, ", "))}});
        break;
      case Candidate::Kind::kSimulated:
        value = DescribeReplica(result.candidate.replica);
        break;
      case Candidate::Kind::kClaimed:
        value = result.candidate.claimed.source;
        break;
    }
    inputs.emplace_back(words.Say("input.candidate", {{"name", result.candidate.name}}),
                        std::string(Trim(value)));
  }
  inputs.emplace_back(
      words.Say("input.machine"),
      words.Say("input.machine.value", {{"cpu", report.machine.cpu},
                                        {"cores", fmt::format("{}", report.machine.usable_cores)},
                                        {"memory", FormatBytes(report.machine.memory_bytes)},
                                        {"system", report.machine.system}}));
  return inputs;
}

// One caution for each check that loads of a candidate failed, with those loads. A load that is too
// much is too much in every round and for every heavier one: the first reason tells.
void InvalidLoads(const Report& report, const CandidateResult& result, const Words& words,
                  std::vector<std::string>& cautions) {
  struct FailedCheck {
    std::string name, reason;
    std::vector<std::string> loads;
  };
  std::vector<FailedCheck> failed;
  for (const LevelResult& level : result.levels) {
    const std::string load = LevelText(report.plan.load, level.level, words);
    for (const std::string& reason : level.invalid) {
      const std::string name = reason.substr(0, reason.find(':'));
      auto check = std::find_if(failed.begin(), failed.end(),
                                [&](const FailedCheck& one) { return one.name == name; });
      if (check == failed.end()) check = failed.insert(check, {name, reason, {}});
      if (check->loads.empty() || check->loads.back() != load) check->loads.push_back(load);
    }
  }
  for (const FailedCheck& check : failed) {
    cautions.push_back(words.Say(
        "caution.invalid",
        {{"name", result.candidate.name},
         {"level", fmt::format("{}", fmt::join(check.loads, words.Say("list.separator")))},
         {"reason", check.reason}}));
  }
}

// Who was still within its levels at the heaviest load tried: the plan, not the machine, says how
// much it carries, and who is cheapest may only be a matter of price.
void TopLoads(const Report& report, const Words& words, std::vector<std::string>& cautions) {
  std::vector<std::string> names;
  double heaviest = 0;
  for (const CandidateResult& result : report.candidates) {
    for (const LevelResult& level : result.levels) heaviest = std::max(heaviest, level.level);
  }
  for (const CandidateResult& result : report.candidates) {
    // A claim has the one load it was published for.
    if (!result.feasible() || result.tag() == "claimed") continue;
    if (result.Shown()->level >= heaviest) names.push_back(result.candidate.name);
  }
  if (names.empty()) return;
  cautions.push_back(
      words.Say("caution.top_load",
                {{"names", fmt::format("{}", fmt::join(names, words.Say("list.separator")))},
                 {"level", LevelText(report.plan.load, heaviest, words)}}));
}

std::vector<std::string> Cautions(const Report& report, const Words& words) {
  std::vector<std::string> cautions;
  for (const CandidateResult& result : report.candidates) {
    if (!result.error.empty()) {
      cautions.push_back(
          words.Say("caution.error", {{"name", result.candidate.name}, {"error", result.error}}));
    }
    InvalidLoads(report, result, words, cautions);
  }
  for (const auto& [tag, key] :
       {std::pair("simulated", "caution.simulated"), std::pair("claimed", "caution.claimed")}) {
    const LevelResult* worst = nullptr;
    for (const CandidateResult& result : report.candidates) {
      const LevelResult* level = result.Shown();
      if (level == nullptr || level->tag != tag) continue;
      if (worst == nullptr || level->prediction_error > worst->prediction_error) worst = level;
    }
    if (worst == nullptr) continue;
    cautions.push_back(words.Say(key, {{"share", FormatShare(worst->prediction_error)},
                                       {"first", FormatShare(worst->first_token_error)},
                                       {"source", worst->error_source}}));
  }
  for (const CandidateResult& result : report.candidates) {
    for (const econ::JudgedClaim& judged : result.claims) {
      const bool bad = judged.judgement.verdict == econ::Verdict::kImpossible ||
                       judged.judgement.verdict == econ::Verdict::kInconsistent;
      if (!bad) continue;
      cautions.push_back(words.Say("caution.claim", {{"name", result.candidate.name},
                                                     {"claim", judged.claim.id},
                                                     {"why", judged.judgement.arithmetic}}));
    }
  }
  TopLoads(report, words, cautions);
  double others = 0;
  for (const CandidateResult& result : report.candidates) {
    if (result.Shown() != nullptr) {
      others = std::max(others, result.Shown()->others_share.value_or(0));
    }
  }
  if (others >= kWorthSaying) {
    cautions.push_back(words.Say("caution.others", {{"share", FormatShare(others)}}));
  }
  if (report.plan.load.rounds == 1) cautions.push_back(words.Say("caution.one_round"));
  const bool assumed =
      std::any_of(report.candidates.begin(), report.candidates.end(),
                  [](const CandidateResult& result) { return result.price.tag == kAssumed; });
  if (assumed) cautions.push_back(words.Say("caution.assumed_price"));
  const bool no_quality =
      std::any_of(report.candidates.begin(), report.candidates.end(),
                  [](const CandidateResult& result) { return !result.candidate.quality; });
  if (no_quality && report.candidates.size() > 1) cautions.push_back(words.Say("caution.quality"));
  return cautions;
}

std::string Names(const Report& report, const std::vector<std::size_t>& candidates,
                  const Words& words) {
  std::vector<std::string> names;
  for (const std::size_t i : candidates) names.push_back(report.candidates[i].candidate.name);
  return fmt::format("{}", fmt::join(names, words.Say("list.separator")));
}

std::vector<std::string> RoutingSentences(const Report& report, const Words& words) {
  const Tiers tiers = ChooseTiers(report);
  if (!tiers.interactive) return {};
  std::vector<std::string> sentences;
  for (const auto& [name, tier] :
       {std::pair("interactive", &*tiers.interactive), std::pair("batch", &*tiers.batch)}) {
    std::string sentence = words.Say(fmt::format("routing.{}", name),
                                     {{"names", Names(report, tier->candidates, words)}});
    sentence += words.Say(
        fmt::format("routing.{}_shed", name),
        {{"rate", FormatFigure(tier->requests_per_s)}, {"wait", FormatSeconds(tier->wait_s)}});
    if (!tier->fallbacks.empty()) {
      sentence +=
          words.Say("routing.fallbacks", {{"names", Names(report, tier->fallbacks, words)}});
    }
    sentences.push_back(std::move(sentence));
  }
  if (tiers.interactive->candidates.size() > 1) {
    std::vector<std::string> shares;
    for (const std::size_t i : tiers.interactive->candidates) {
      shares.push_back(report.candidates[i].candidate.name + " " +
                       FormatShare(PaceOf(report.candidates[i]) /
                                   std::max(tiers.interactive->requests_per_s, 1e-12)));
    }
    sentences.push_back(
        words.Say("routing.shares",
                  {{"shares", fmt::format("{}", fmt::join(shares, words.Say("list.separator")))}}));
  }
  return sentences;
}

std::vector<CheckedClaim> CheckedClaims(const Report& report, const Words& words) {
  std::vector<CheckedClaim> claims;
  for (const CandidateResult& result : report.candidates) {
    for (const econ::JudgedClaim& judged : result.claims) {
      const econ::Verdict verdict = judged.judgement.verdict;
      claims.push_back(
          {result.candidate.name, judged.claim.says.empty() ? judged.claim.id : judged.claim.says,
           judged.claim.where, words.Say(fmt::format("verdict.{}", econ::ToString(verdict))),
           judged.judgement.arithmetic,
           verdict == econ::Verdict::kImpossible || verdict == econ::Verdict::kInconsistent});
    }
  }
  return claims;
}

std::vector<std::pair<std::string, std::string>> Definitions(const Words& words) {
  std::vector<std::pair<std::string, std::string>> definitions;
  for (const char* term :
       {"token",  "ttft",   "tpot",        "itl",     "e2e",      "percentile", "users",
        "rate",   "cost",   "utilisation", "per_usd", "interval", "p_best",     "levels",
        "memory", "others", "known_error", "ready",   "dtype",    "tags"}) {
    definitions.emplace_back(words.Say(fmt::format("term.{}", term)),
                             words.Say(fmt::format("define.{}", term)));
  }
  return definitions;
}

}  // namespace

std::string NameOf(Metric metric, const Words& words) {
  return words.Say(fmt::format("metric.{}", ToString(metric)));
}

std::string NameOf(const LatencyLimit& limit, const Words& words) {
  return NameOf(limit.metric, words) + ", " + words.Say(ToString(limit.percentile));
}

std::string LevelText(const LoadPlan& load, double level, const Words& words) {
  if (load.open_loop) {
    return words.Say(level == 1 ? "level.rate_one" : "level.rate",
                     {{"n", fmt::format("{:g}", level)}});
  }
  return words.Say(level == 1 ? "level.user" : "level.users", {{"n", fmt::format("{:g}", level)}});
}

ReportContent ContentOf(const Report& report, const Words& words) {
  ReportContent content;
  content.title = report.plan.name;
  content.meta = words.Say("meta", {{"date", report.made_at.substr(0, 10)},
                                    {"version", report.tare_version},
                                    {"cpu", report.machine.cpu},
                                    {"cores", fmt::format("{}", report.machine.usable_cores)},
                                    {"took", FormatDuration(FromSeconds(report.took_s))}});
  content.headline = Headline(report, words);
  content.why = Why(report, words);
  content.would_change = WouldChange(report, words);
  content.key_figures = KeyFigures(report, words);
  content.comparison = Comparison(report, words).Build();
  content.routing = RoutingSentences(report, words);
  content.claims = CheckedClaims(report, words);
  content.evidence = EvidenceList(report, words).Build();
  content.cautions = Cautions(report, words);
  content.inputs = Inputs(report, words);
  if (report.ranking.first) {
    const CandidateResult& first = report.candidates[*report.ranking.first];
    if (first.candidate.kind == Candidate::Kind::kLocal) {
      std::string line;
      for (const std::string& word : first.command) line += QuoteShell(word) + " ";
      content.keep_up.push_back(std::string(Trim(line)));
    }
  }
  content.reproduce.push_back(fmt::format("tare advise {}", QuoteShell(report.plan.source)));
  for (const CandidateResult& result : report.candidates) {
    if (const LevelResult* level = result.Shown(); level != nullptr && !level->runs.empty()) {
      content.reproduce.push_back(fmt::format("tare runs show {}", QuoteShell(level->runs[0])));
    }
  }
  content.definitions = Definitions(words);
  return content;
}

}  // namespace tare::advise
