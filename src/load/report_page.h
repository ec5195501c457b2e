// What the pages of this room have in common: head and style, and how figures are written. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "load/svg_chart.h"

namespace tare::load {

// Up to and with <body>; `title` is plain text.
std::string PageHead(std::string_view title);
std::string PageEnd();

// Milliseconds, or a dash for a figure that does not exist.
std::string Ms(double seconds);

// The range of a logarithmic axis that holds the finite positive values, with some air.
Axis LogSeconds(const std::vector<double>& values, std::string label);

}  // namespace tare::load
