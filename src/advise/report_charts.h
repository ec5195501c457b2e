// Which charts a report shows, drawn from its figures.
#pragma once

#include <string>
#include <vector>

#include "advise/report.h"
#include "advise/words.h"

namespace tare::advise {

struct ReportChart {
  std::string title, svg, caption;
};
// Those of cost, load, latency distribution and timeline for which there is data.
std::vector<ReportChart> ChartsOf(const Report& report, const Words& words);

}  // namespace tare::advise
