#include "econ/judge_common.h"

#include <cmath>
#include <vector>

namespace tare::econ {

std::string_view ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kImpossible:
      return "impossible";
    case Verdict::kInconsistent:
      return "inconsistent";
    case Verdict::kUnsupported:
      return "unsupported";
    case Verdict::kPlausible:
      break;
  }
  return "plausible";
}

Judgement Judge(const ClaimBody& body) {
  return std::visit([](const auto& claim) { return Judge(claim); }, body);
}

std::optional<Judgement> Missing(std::initializer_list<Needed> inputs) {
  std::string names;
  for (const Needed& input : inputs) {
    if (input.present) continue;
    if (!names.empty()) names += ", ";
    names += input.name;
  }
  if (names.empty()) return std::nullopt;
  return Judgement{Verdict::kUnsupported, "not stated: " + names, std::nullopt};
}

Judgement Compare(std::string how, const Interval& computed, double exact,
                  const Published& stated) {
  Judgement judgement;
  judgement.margin = RelativeMargin(stated.base(), exact);
  const bool agrees = computed.Overlaps(stated.range());
  judgement.verdict = agrees ? Verdict::kPlausible : Verdict::kInconsistent;
  judgement.arithmetic = fmt::format("{} {}{} {}", how, stated.Show(exact),
                                     agrees ? ", as stated:" : ", not", stated.text());
  return judgement;
}

std::string Gigabytes(double bytes) {
  return fmt::format("{:.4g} GB ({:.4g} GiB)", bytes / 1e9, bytes / (1024.0 * 1024 * 1024));
}

std::string Percent(double share) { return fmt::format("{:.3g} %", share * 100); }

double RelativeMargin(double claimed, double computed) {
  if (computed == 0) return claimed == 0 ? 0 : std::copysign(INFINITY, claimed);
  return (claimed - computed) / std::abs(computed);
}

}  // namespace tare::econ
