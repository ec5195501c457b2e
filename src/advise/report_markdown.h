// The report as Markdown, for wikis and pull requests: the same words and tables, no charts.
#pragma once

#include <string>

#include "advise/report.h"
#include "advise/report_content.h"
#include "advise/words.h"

namespace tare::advise {

std::string RenderMarkdown(const Report& report, const Words& words);

// The comparison as aligned plain text, for a terminal.
std::string RenderTerminalTable(const Table& table);

}  // namespace tare::advise
