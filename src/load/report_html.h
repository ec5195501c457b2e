// A run as one self-contained HTML page: verdict, figures, heat maps (time × latency),
// distributions, timelines. Charts are SVG drawn here: no script, no network, readable on paper.
// Pure.
#pragma once

#include <string>

#include "store/run_record.h"

namespace tare::load {

std::string HtmlReport(const store::RunRecord& record);

}  // namespace tare::load
