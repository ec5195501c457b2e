#include "advise/routing.h"

#include "advise/candidate_command.h"
#include "advise/escape.h"
#include "advise/explain.h"
#include "advise/report_content.h"

namespace tare::advise {
namespace {

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

std::string Upstream(const Candidate& candidate, double requests_per_s) {
  std::string out = fmt::format("  {}:\n", QuoteYaml(candidate.name));
  switch (candidate.kind) {
    case Candidate::Kind::kLocal:
      out += fmt::format("    kind: local\n    model: {}\n    dtype: {}\n",
                         QuoteYaml(candidate.model.string()), candidate.dtype);
      if (candidate.threads > 0) out += fmt::format("    threads: {}\n", candidate.threads);
      if (!candidate.flags.empty()) {
        out += "    flags: [";
        for (std::size_t i = 0; i < candidate.flags.size(); ++i) {
          out += fmt::format("{}{}", i == 0 ? "" : ", ", QuoteYaml(candidate.flags[i]));
        }
        out += "]\n";
      }
      break;
    case Candidate::Kind::kRemote:
      out += fmt::format("    kind: remote\n    url: {}\n", QuoteYaml(candidate.url));
      if (!candidate.served_model.empty()) {
        out += fmt::format("    model: {}\n", QuoteYaml(candidate.served_model));
      }
      if (!candidate.api_key_env.empty()) {
        out += fmt::format("    api_key_env: {}\n", QuoteYaml(candidate.api_key_env));
      }
      break;
    case Candidate::Kind::kStored:
      out += "    kind: unknown  # known from stored runs only; say where it is served\n";
      break;
    case Candidate::Kind::kSimulated:
      out += "    kind: unknown  # simulated only; say where it is served\n";
      break;
  }
  return out + fmt::format("    measured_requests_per_s: {:.6g}\n", requests_per_s);
}

std::string TierLine(const char* name, const Report& report, const Tier& tier) {
  return fmt::format("  {}:\n    upstream: {}\n    because: {}\n", name,
                     QuoteYaml(report.candidates[tier.candidate].candidate.name),
                     QuoteYaml(tier.because));
}

}  // namespace

std::string RenderRouting(const Report& report) {
  const Words words(Language::kEnglish);
  std::string out = fmt::format(
      "# Routing plan of `tare advise {}`, {}.\n# {}\n"
      "schema: tare.routing/1\nplan: {}\nmade_at: {}\nanswer: {}\n",
      OneLine(report.plan.source), report.made_at, OneLine(Headline(report, words)),
      QuoteYaml(report.plan.name), QuoteYaml(report.made_at),
      report.ranking.pick ? "pick" : "abstain");
  const Tiers tiers = ChooseTiers(report);
  if (!tiers.interactive || !tiers.batch) {
    return out +
           "# No candidate keeps the service levels, so nothing is routed.\ntiers: {}\n"
           "upstreams: {}\n";
  }
  out += "tiers:\n" + TierLine("interactive", report, *tiers.interactive) +
         TierLine("batch", report, *tiers.batch) + "upstreams:\n";
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    if (i != tiers.interactive->candidate && i != tiers.batch->candidate) continue;
    const CandidateResult& result = report.candidates[i];
    out += Upstream(result.candidate, result.Shown()->rates.requests_per_s);
  }
  return out;
}

std::string RenderServeArguments(const Report& report) {
  const Words words(Language::kEnglish);
  std::string out =
      fmt::format("# Flags for `tare serve MODEL`, from `tare advise {}`, {}.\n# {}\n",
                  OneLine(report.plan.source), report.made_at, OneLine(Headline(report, words)));
  if (!report.ranking.first) return out;
  const Candidate& first = report.candidates[*report.ranking.first].candidate;
  if (first.kind != Candidate::Kind::kLocal) {
    return out + fmt::format("# {} is not served by Tare.\n", OneLine(first.name));
  }
  if (!report.ranking.pick) {
    out += fmt::format("# The answer abstained; these are the flags of {}, first by the mean.\n",
                       OneLine(first.name));
  }
  // A line break would make two words of one; such a flag is left out and named.
  for (const std::string& word : ServeFlags(first)) {
    out += word.find_first_of("\r\n") == std::string::npos
               ? word + "\n"
               : fmt::format("# left out, it holds a line break: {}\n", OneLine(word));
  }
  return out;
}

}  // namespace tare::advise
