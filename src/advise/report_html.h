// The report as one HTML file that loads nothing: style and charts inside, no script. Reads on
// screen (light and dark) and on A4 paper. Every outside text is escaped.
#pragma once

#include <string>

#include "advise/report.h"
#include "advise/words.h"

namespace tare::advise {

std::string RenderHtml(const Report& report, const Words& words);

}  // namespace tare::advise
