// Two short texts written for this program: one to calibrate with, one to measure on. They mix
// prose, instructions, dialogue, code, lists and figures, and share no sentence.
#pragma once

#include <string_view>

namespace tare::eval {

std::string_view CalibrationText();
std::string_view MeasuringText();

}  // namespace tare::eval
