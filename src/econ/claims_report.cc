#include "econ/claims_report.h"

#include <algorithm>
#include <cmath>

#include "base/html.h"
#include "econ/html.h"

namespace tare::econ {
namespace {

std::string MarginText(const Judgement& judgement) {
  if (!judgement.margin || !std::isfinite(*judgement.margin)) return "";
  const double margin = *judgement.margin;
  if (std::abs(margin) >= 10) return fmt::format("{:+.3g} x", margin + 1);
  return fmt::format("{:+.1f} %", margin * 100);
}

const char* ColourOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kImpossible:
      return "\x1b[1;31m";
    case Verdict::kInconsistent:
      return "\x1b[33m";
    case Verdict::kUnsupported:
      return "\x1b[90m";
    case Verdict::kPlausible:
      break;
  }
  return "\x1b[32m";
}

}  // namespace

std::vector<JudgedClaim> JudgeAll(const ClaimsFile& file) {
  std::vector<JudgedClaim> judged;
  judged.reserve(file.claims.size());
  for (const Claim& claim : file.claims) judged.push_back({claim, Judge(claim.body)});
  return judged;
}

VerdictCounts CountVerdicts(const std::vector<JudgedClaim>& claims) {
  VerdictCounts counts;
  for (const JudgedClaim& judged : claims) {
    switch (judged.judgement.verdict) {
      case Verdict::kImpossible:
        ++counts.impossible;
        break;
      case Verdict::kInconsistent:
        ++counts.inconsistent;
        break;
      case Verdict::kUnsupported:
        ++counts.unsupported;
        break;
      case Verdict::kPlausible:
        ++counts.plausible;
        break;
    }
  }
  return counts;
}

std::string ClaimsTable(const std::vector<JudgedClaim>& claims, bool colour) {
  std::size_t id_width = 2;
  for (const JudgedClaim& judged : claims) id_width = std::max(id_width, judged.claim.id.size());
  std::string table;
  for (const JudgedClaim& judged : claims) {
    const Verdict verdict = judged.judgement.verdict;
    table += fmt::format("{}{:<12}{}  {:<{}}  {:>10}  {}\n", colour ? ColourOf(verdict) : "",
                         ToString(verdict), colour ? "\x1b[0m" : "", judged.claim.id, id_width,
                         MarginText(judged.judgement), judged.judgement.arithmetic);
    if (!judged.claim.assumes.empty()) {
      table += fmt::format("{:{}}  (assumes {})\n", "", 12 + 2 + id_width + 2 + 10,
                           judged.claim.assumes);
    }
  }
  const VerdictCounts counts = CountVerdicts(claims);
  table += fmt::format(
      "\n{} claims: {} impossible, {} inconsistent, {} unsupported, {} plausible\n", claims.size(),
      counts.impossible, counts.inconsistent, counts.unsupported, counts.plausible);
  return table;
}

nlohmann::json ClaimsJson(const ClaimsFile& file, const std::vector<JudgedClaim>& claims) {
  nlohmann::json list = nlohmann::json::array();
  for (const JudgedClaim& judged : claims) {
    nlohmann::json margin = nullptr;
    if (judged.judgement.margin && std::isfinite(*judged.judgement.margin)) {
      margin = *judged.judgement.margin;
    }
    list.push_back({{"id", judged.claim.id},
                    {"verdict", ToString(judged.judgement.verdict)},
                    {"arithmetic", judged.judgement.arithmetic},
                    {"margin", margin},
                    {"kind", judged.claim.kind},
                    {"where", judged.claim.where},
                    {"says", judged.claim.says},
                    {"assumes", judged.claim.assumes}});
  }
  const VerdictCounts counts = CountVerdicts(claims);
  return {{"title", file.title},
          {"source", file.source},
          {"claims", std::move(list)},
          {"counts",
           {{"impossible", counts.impossible},
            {"inconsistent", counts.inconsistent},
            {"unsupported", counts.unsupported},
            {"plausible", counts.plausible}}}};
}

std::string ClaimsHtml(const ClaimsFile& file, const std::vector<JudgedClaim>& claims) {
  const VerdictCounts counts = CountVerdicts(claims);
  std::string body = fmt::format(
      "<h1>{}</h1>\n<p class=\"note\">{}</p>\n<div class=\"cards\">"
      "<div><b class=\"impossible\">{}</b>impossible</div>"
      "<div><b class=\"inconsistent\">{}</b>inconsistent</div>"
      "<div><b class=\"unsupported\">{}</b>unsupported</div>"
      "<div><b class=\"plausible\">{}</b>plausible</div></div>\n",
      EscapeHtml(file.title), EscapeHtml(file.source), counts.impossible, counts.inconsistent,
      counts.unsupported, counts.plausible);
  body +=
      "<p class=\"note\">Impossible: physics forbids it. Inconsistent: it does not follow from its "
      "own figures. Unsupported: a needed input was not published. Margin: claimed against what "
      "follows.</p>\n<table>\n<tr><th>Claim</th><th>Verdict</th><th>Published</th>"
      "<th>Arithmetic</th><th class=\"n\">Margin</th></tr>\n";
  for (const JudgedClaim& judged : claims) {
    const std::string_view verdict = ToString(judged.judgement.verdict);
    body += fmt::format(
        "<tr><td><code>{}</code><br><small>{}</small></td><td class=\"{}\">{}</td><td>{}</td>"
        "<td>{}{}</td><td class=\"n\">{}</td></tr>\n",
        EscapeHtml(judged.claim.id), EscapeHtml(judged.claim.where), verdict, verdict,
        EscapeHtml(judged.claim.says), EscapeHtml(judged.judgement.arithmetic),
        judged.claim.assumes.empty()
            ? std::string()
            : fmt::format("<br><small>assumes {}</small>", EscapeHtml(judged.claim.assumes)),
        MarginText(judged.judgement));
  }
  body += "</table>\n";
  return HtmlPage(file.title, body);
}

}  // namespace tare::econ
