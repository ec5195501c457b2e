#include "advise/report_html.h"

#include <algorithm>
#include <map>

#include "advise/assets.h"
#include "advise/escape.h"
#include "advise/report_charts.h"
#include "advise/report_content.h"
#include "base/check.h"
#include "base/html.h"

namespace tare::advise {
namespace {

// More candidates than this side by side do not fit a page; the table is cut into several.
constexpr std::size_t kCandidatesAcross = 4;

std::string TagPill(const std::string& tag, const Words& words) {
  if (tag.empty()) return "";
  return fmt::format(R"(<span class="tag {}">{}</span>)", tag, EscapeHtml(words.Say("tag." + tag)));
}

std::string Small(const std::string& text) {
  return text.empty() ? "" : fmt::format(R"(<span class="small">{}</span>)", EscapeHtml(text));
}

std::string Paragraphs(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += fmt::format("<p>{}</p>\n", EscapeHtml(line));
  return out;
}

std::string Bullets(const std::vector<std::string>& lines) {
  std::string out = "<ul class=\"plain\">\n";
  for (const std::string& line : lines) out += fmt::format("<li>{}</li>\n", EscapeHtml(line));
  return out + "</ul>\n";
}

std::string Commands(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += fmt::format("<pre>{}</pre>\n", EscapeHtml(line));
  return out;
}

std::string Figures(const ReportContent& content, const Words& words) {
  if (content.key_figures.empty()) return "";
  std::string out = "<ul class=\"figures\">\n";
  for (const KeyFigure& figure : content.key_figures) {
    out += fmt::format(
        R"(<li><span class="value" data-tag="{}">{}</span> <span class="what">{} ({})</span> {}</li>)",
        figure.tag, EscapeHtml(figure.text), EscapeHtml(figure.label), EscapeHtml(figure.note),
        TagPill(figure.tag, words));
    out += '\n';
  }
  return out + "</ul>\n";
}

// The tag all cells of the row share, or empty when they differ.
std::string CommonTag(const TableRow& row, std::size_t begin, std::size_t end) {
  std::string common;
  for (std::size_t i = begin; i < end; ++i) {
    const std::string& tag = row.cells[i].tag;
    if (tag.empty() || tag == common) continue;
    if (!common.empty()) return "";
    common = tag;
  }
  return common;
}

std::string TablePart(const Table& table, std::size_t begin, std::size_t end, const Words& words) {
  std::string out = "<div class=\"scroll\"><table>\n<thead><tr><th></th>";
  for (std::size_t i = begin; i < end; ++i) {
    out += fmt::format(R"(<th class="num" scope="col">{}</th>)", EscapeHtml(table.heads[i]));
  }
  out += fmt::format("<th scope=\"col\">{}</th></tr></thead>\n<tbody>\n",
                     EscapeHtml(words.Say("col.how")));
  for (const TableRow& row : table.rows) {
    const std::string common = CommonTag(row, begin, end);
    out += fmt::format("<tr><th scope=\"row\">{}{}</th>", EscapeHtml(row.label), Small(row.note));
    for (std::size_t i = begin; i < end; ++i) {
      const Cell& cell = row.cells[i];
      const char* style = cell.best ? " best" : cell.bad ? " broken" : "";
      out += fmt::format(R"(<td class="num{}" data-tag="{}">{}{}{}</td>)", style,
                         cell.tag.empty() ? "none" : cell.tag, EscapeHtml(cell.text),
                         Small(cell.note), common.empty() ? " " + TagPill(cell.tag, words) : "");
    }
    out += fmt::format("<td>{}</td></tr>\n", TagPill(common, words));
  }
  return out + "</tbody></table></div>\n";
}

std::string ComparisonTables(const Table& table, const Words& words) {
  std::string out;
  for (std::size_t begin = 0; begin < table.heads.size(); begin += kCandidatesAcross) {
    out += TablePart(table, begin, std::min(begin + kCandidatesAcross, table.heads.size()), words);
  }
  return out;
}

// Whether a figure belongs to a load its candidate is not judged under; those fill pages and are
// in report.json.
bool OfAnotherLevel(const Evidence& one, const Report& report) {
  for (const CandidateResult& result : report.candidates) {
    if (result.candidate.name != one.candidate || result.levels.empty()) continue;
    const auto of_level = [&](const LevelResult& level) {
      const std::string prefix = fmt::format("{}.{:g}.", one.candidate, level.level);
      return one.id.compare(0, prefix.size(), prefix) == 0;
    };
    return !of_level(*result.Shown()) &&
           std::any_of(result.levels.begin(), result.levels.end(), of_level);
  }
  return false;
}

std::string EvidenceTable(const std::vector<Evidence>& evidence, const Report& report,
                          const Words& words) {
  std::string out = "<div class=\"scroll\"><table class=\"evidence\">\n<thead><tr>";
  for (const char* column : {"col.candidate", "col.figure"}) {
    out += fmt::format("<th scope=\"col\">{}</th>", EscapeHtml(words.Say(column)));
  }
  out += fmt::format("<th scope=\"col\" class=\"num\">{}</th>", EscapeHtml(words.Say("col.value")));
  for (const char* column : {"col.how", "col.source"}) {
    out += fmt::format("<th scope=\"col\">{}</th>", EscapeHtml(words.Say(column)));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const Evidence& one : evidence) {
    if (OfAnotherLevel(one, report)) continue;
    out += fmt::format(
        R"(<tr><td>{}</td><td>{}</td><td class="num" data-tag="{}">{}</td><td>{}</td><td>{}</td></tr>)",
        EscapeHtml(one.candidate), EscapeHtml(one.what), one.tag, EscapeHtml(one.text),
        TagPill(one.tag, words), EscapeHtml(one.source));
    out += '\n';
  }
  return out + "</tbody></table></div>\n";
}

std::string Pairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string out = "<dl>\n";
  for (const auto& [term, text] : pairs) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", EscapeHtml(term), EscapeHtml(text));
  }
  return out + "</dl>\n";
}

std::string ChartFigures(const Report& report, const Words& words) {
  std::string out;
  for (const ReportChart& chart : ChartsOf(report, words)) {
    out += fmt::format("<figure><h3>{}</h3>\n{}\n<figcaption>{}</figcaption></figure>\n",
                       EscapeHtml(chart.title), chart.svg, EscapeHtml(chart.caption));
  }
  return out;
}

std::string RoutingSection(const ReportContent& content, const Words& words) {
  if (content.routing.empty()) return "";
  return fmt::format("<section>\n<h2>{}</h2>\n<p class=\"intro\">{}</p>\n{}</section>",
                     EscapeHtml(words.Say("h.routing")), EscapeHtml(words.Say("routing.intro")),
                     Bullets(content.routing));
}

std::string ClaimsSection(const ReportContent& content, const Words& words) {
  if (content.claims.empty()) return "";
  std::string out = fmt::format(
      "<section>\n<h2>{}</h2>\n<p class=\"intro\">{}</p>\n"
      "<div class=\"scroll\"><table class=\"evidence claims\">\n<thead><tr>",
      EscapeHtml(words.Say("h.claims")), EscapeHtml(words.Say("claims.intro")));
  for (const char* column : {"col.candidate", "col.claim", "col.verdict", "col.arithmetic"}) {
    out += fmt::format("<th scope=\"col\">{}</th>", EscapeHtml(words.Say(column)));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const CheckedClaim& claim : content.claims) {
    out += fmt::format("<tr><td>{}</td><td>{}{}</td><td{}>{}</td><td>{}</td></tr>\n",
                       EscapeHtml(claim.candidate), EscapeHtml(claim.says), Small(claim.where),
                       claim.bad ? " class=\"broken\"" : "", EscapeHtml(claim.verdict),
                       EscapeHtml(claim.arithmetic));
  }
  return out + "</tbody></table></div>\n</section>";
}

std::string CautionSection(const ReportContent& content, const Words& words) {
  if (content.cautions.empty()) return "";
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>", EscapeHtml(words.Say("h.cautions")),
                     Bullets(content.cautions));
}

const char* AnswerClass(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPick:
      return "pick";
    case Verdict::kNoneFeasible:
      return "none";
    default:
      return "abstain";
  }
}

// Replaces every {{slot}}; the template may name no other.
std::string FillSlots(std::string_view text, const std::map<std::string, std::string>& slots) {
  std::string out;
  while (true) {
    const std::size_t open = text.find("{{");
    out += text.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = text.find("}}", open);
    TARE_CHECK(close != std::string_view::npos);
    const auto it = slots.find(std::string(text.substr(open + 2, close - open - 2)));
    TARE_CHECK(it != slots.end());
    out += it->second;
    text.remove_prefix(close + 2);
  }
}

}  // namespace

std::string RenderHtml(const Report& report, const Words& words) {
  const ReportContent content = ContentOf(report, words);
  std::map<std::string, std::string> slots = {
      {"lang", HtmlCode(words.language())},
      {"css", std::string(assets::kReportCss)},
      {"title", EscapeHtml(content.title)},
      {"meta", EscapeHtml(content.meta)},
      {"answer_class", AnswerClass(report.ranking.verdict)},
      {"headline", EscapeHtml(content.headline)},
      {"why", Paragraphs(content.why)},
      {"key_figures", Figures(content, words)},
      {"comparison", ComparisonTables(content.comparison, words)},
      {"charts", ChartFigures(report, words)},
      {"would_change", Bullets(content.would_change)},
      {"routing", RoutingSection(content, words)},
      {"claims", ClaimsSection(content, words)},
      {"cautions", CautionSection(content, words)},
      {"evidence", EvidenceTable(content.evidence, report, words)},
      {"inputs", Pairs(content.inputs)},
      {"plan", EscapeHtml(report.plan.text)},
      {"reproduce", Commands(content.reproduce)},
      {"definitions", Pairs(content.definitions)},
  };
  slots["keep_up"] = content.keep_up.empty()
                         ? ""
                         : fmt::format("<p class=\"small\">{}</p>{}",
                                       EscapeHtml(words.Say("keep_up")), Commands(content.keep_up));
  slots["eyebrow"] = EscapeHtml(words.Say("eyebrow"));
  for (const char* heading : {"answer", "compare", "charts", "change", "evidence", "inputs", "plan",
                              "reproduce", "definitions"}) {
    slots[fmt::format("h_{}", heading)] = EscapeHtml(words.Say(fmt::format("h.{}", heading)));
  }
  for (const char* intro : {"compare", "evidence", "reproduce"}) {
    slots[fmt::format("{}_intro", intro)] = EscapeHtml(words.Say(fmt::format("{}.intro", intro)));
  }
  return FillSlots(assets::kReportHtml, slots);
}

}  // namespace tare::advise
