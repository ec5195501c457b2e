#include "advise/routing.h"

#include <set>

#include "advise/candidate_command.h"
#include "advise/escape.h"
#include "advise/explain.h"
#include "advise/tiers.h"

namespace tare::advise {
namespace {

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

// A server at an address.
std::string Remote(const Candidate& candidate) {
  std::string out = fmt::format("    kind: remote\n    url: {}\n", QuoteYaml(candidate.url));
  if (!candidate.served_model.empty()) {
    out += fmt::format("    model: {}\n", QuoteYaml(candidate.served_model));
  }
  if (!candidate.api_key_env.empty()) {
    out += fmt::format("    api_key_env: {}\n", QuoteYaml(candidate.api_key_env));
  }
  return out;
}

std::string Upstream(const CandidateResult& result) {
  const Candidate& candidate = result.candidate;
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
      out += Remote(candidate);
      break;
    case Candidate::Kind::kStored:
    case Candidate::Kind::kSimulated:
    case Candidate::Kind::kClaimed:
      out += !candidate.url.empty()
                 ? Remote(candidate)
                 : "    kind: unknown  # known from figures only; say in the plan where it is "
                   "served (url)\n";
      break;
  }
  // Requests a second either way; the name says whether anybody counted them.
  return out + fmt::format("    {}: {:.6g}\n",
                           result.tag() == "measured" ? "measured_requests_per_s" : "weight",
                           PaceOf(result));
}

std::string NameList(const Report& report, const std::vector<std::size_t>& candidates) {
  std::vector<std::string> names;
  for (const std::size_t i : candidates) {
    names.push_back(QuoteYaml(report.candidates[i].candidate.name));
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

std::string TierLines(const char* name, const Report& report, const Tier& tier) {
  std::string out = fmt::format("  {}:\n", name);
  if (tier.candidates.size() == 1) {
    out += fmt::format("    upstream: {}\n",
                       QuoteYaml(report.candidates[tier.candidates[0]].candidate.name));
  } else {
    out += fmt::format("    upstreams: {}\n", NameList(report, tier.candidates));
  }
  if (!tier.fallbacks.empty()) {
    out += fmt::format("    fallbacks: {}\n", NameList(report, tier.fallbacks));
  }
  out += fmt::format("    shed: {{requests_per_s: {:.6g}, within: {:.0f}ms}}\n",
                     tier.requests_per_s, 1e3 * tier.wait_s);
  return out + fmt::format("    because: {}\n", QuoteYaml(tier.because));
}

}  // namespace

std::string RenderRouting(const Report& report) {
  const Words words(Language::kEnglish);
  std::string out = fmt::format(
      "# Routing plan of `tare advise {}`, {}.\n# {}\n"
      "schema: tare.routing/1\nplan: {}\nmade_at: {}\nanswer: {}\n",
      OneLine(report.plan.source), report.made_at, OneLine(Headline(report, words)),
      QuoteYaml(report.plan.name), QuoteYaml(report.made_at),
      report.plan.mix       ? "mix"
      : report.ranking.pick ? "pick"
                            : "abstain");
  const Tiers tiers = ChooseTiers(report);
  if (!tiers.interactive || !tiers.batch) {
    return out +
           "# No candidate keeps the service levels, so nothing is routed.\ntiers: {}\n"
           "upstreams: {}\n";
  }
  out += "tiers:\n" + TierLines("interactive", report, *tiers.interactive) +
         TierLines("batch", report, *tiers.batch) + "upstreams:\n";
  std::set<std::size_t> used;
  for (const Tier* tier : {&*tiers.interactive, &*tiers.batch}) {
    used.insert(tier->candidates.begin(), tier->candidates.end());
    used.insert(tier->fallbacks.begin(), tier->fallbacks.end());
  }
  for (const std::size_t i : used) out += Upstream(report.candidates[i]);
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
