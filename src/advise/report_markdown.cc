#include "advise/report_markdown.h"

#include <algorithm>

#include "advise/escape.h"
#include "base/text.h"

namespace tare::advise {
namespace {

std::string TagWord(const std::string& tag, const Words& words) {
  return tag.empty() ? "" : words.Say("tag." + tag);
}

std::string ComparisonTable(const Table& table, const Words& words) {
  std::string out = "| |";
  for (const std::string& head : table.heads) out += fmt::format(" {} |", EscapeMarkdown(head));
  out += "\n|---|";
  for (std::size_t i = 0; i < table.heads.size(); ++i) out += "---:|";
  out += '\n';
  for (const TableRow& row : table.rows) {
    out += fmt::format("| {}{} |", EscapeMarkdown(row.label),
                       row.note.empty() ? "" : " (" + EscapeMarkdown(row.note) + ")");
    for (const Cell& cell : row.cells) {
      std::string text = EscapeMarkdown(cell.text);
      if (cell.best || cell.bad) text = "**" + text + "**";
      if (!cell.note.empty()) text += " (" + EscapeMarkdown(cell.note) + ")";
      if (!cell.tag.empty()) text += " *" + TagWord(cell.tag, words) + "*";
      out += fmt::format(" {} |", text);
    }
    out += '\n';
  }
  return out;
}

std::string List(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += fmt::format("- {}\n", EscapeMarkdown(line));
  return out;
}

// A fence longer than any run of backticks inside.
std::string Fenced(std::string_view text) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(std::max<std::size_t>(3, longest + 1), '`');
  return fmt::format("{}\n{}{}{}\n", fence, text, text.ends_with('\n') ? "" : "\n", fence);
}

// Columns a terminal gives the text: one a code point, two for the wide scripts of East Asia.
std::size_t Columns(std::string_view text) {
  std::size_t columns = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) continue;
    columns += byte >= 0xE3 ? 2 : 1;
  }
  return columns;
}

std::string ClaimsTable(const ReportContent& content, const Words& words) {
  if (content.claims.empty()) return "";
  std::string out =
      fmt::format("\n## {}\n\n{}\n\n| {} | {} | {} | {} |\n|---|---|---|---|\n",
                  words.Say("h.claims"), words.Say("claims.intro"), words.Say("col.candidate"),
                  words.Say("col.claim"), words.Say("col.verdict"), words.Say("col.arithmetic"));
  for (const CheckedClaim& claim : content.claims) {
    const std::string where = claim.where.empty() ? "" : " (" + claim.where + ")";
    out += fmt::format("| {} | {} | {} | {} |\n", EscapeMarkdown(claim.candidate),
                       EscapeMarkdown(claim.says + where), claim.verdict,
                       EscapeMarkdown(claim.arithmetic));
  }
  return out;
}

}  // namespace

std::string RenderMarkdown(const Report& report, const Words& words) {
  const ReportContent content = ContentOf(report, words);
  std::string out = fmt::format("# {}\n\n{}\n\n## {}\n\n**{}**\n\n", EscapeMarkdown(content.title),
                                EscapeMarkdown(content.meta), words.Say("h.answer"),
                                EscapeMarkdown(content.headline));
  for (const std::string& line : content.why) out += EscapeMarkdown(line) + "\n\n";
  if (!content.keep_up.empty()) {
    out += words.Say("keep_up") + "\n\n";
    for (const std::string& line : content.keep_up) out += Fenced(line) + "\n";
  }
  out += fmt::format("## {}\n\n{}\n\n{}\n", words.Say("h.compare"),
                     EscapeMarkdown(words.Say("compare.intro")),
                     ComparisonTable(content.comparison, words));
  out += fmt::format("## {}\n\n{}\n", words.Say("h.change"), List(content.would_change));
  if (!content.routing.empty()) {
    out += fmt::format("## {}\n\n{}\n\n{}\n", words.Say("h.routing"), words.Say("routing.intro"),
                       List(content.routing));
  }
  if (!content.cautions.empty()) {
    out += fmt::format("## {}\n\n{}\n", words.Say("h.cautions"), List(content.cautions));
  }
  out += fmt::format("## {}\n\n| {} | {} | {} | {} | {} |\n|---|---|---:|---|---|\n",
                     words.Say("h.evidence"), words.Say("col.candidate"), words.Say("col.figure"),
                     words.Say("col.value"), words.Say("col.how"), words.Say("col.source"));
  for (const Evidence& one : content.evidence) {
    out += fmt::format("| {} | {} | {} | {} | {} |\n", EscapeMarkdown(one.candidate),
                       EscapeMarkdown(one.what), EscapeMarkdown(one.text), TagWord(one.tag, words),
                       EscapeMarkdown(one.source));
  }
  out += fmt::format("\n## {}\n\n", words.Say("h.inputs"));
  for (const auto& [name, value] : content.inputs) {
    out += fmt::format("- {}: {}\n", EscapeMarkdown(name), EscapeMarkdown(value));
  }
  out += fmt::format("\n{}:\n\n{}\n## {}\n\n", words.Say("h.plan"), Fenced(report.plan.text),
                     words.Say("h.reproduce"));
  for (const std::string& line : content.reproduce) out += Fenced(line) + "\n";
  out += fmt::format("## {}\n\n", words.Say("h.definitions"));
  for (const auto& [term, text] : content.definitions) {
    out += fmt::format("- **{}**: {}\n", EscapeMarkdown(term), EscapeMarkdown(text));
  }
  return out + ClaimsTable(content, words);
}

std::string RenderTerminalTable(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  lines[0].push_back("");
  for (const std::string& head : table.heads) lines[0].push_back(head);
  for (const TableRow& row : table.rows) {
    std::vector<std::string> line = {
        row.note.empty() ? row.label : fmt::format("{} ({})", row.label, row.note)};
    for (const Cell& cell : row.cells) line.push_back(cell.text);
    lines.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(table.heads.size() + 1, 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], Columns(line[i]));
  }
  std::string out;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - Columns(line[i]), ' ');
      out += i == 0 ? line[i] + padding : "  " + padding + line[i];
    }
    out += '\n';
  }
  return out;
}

}  // namespace tare::advise
