// Common English words that nearly every vocabulary holds as one token, with and without a blank
// before them. Prompts of a wanted length are made of them.
#pragma once

#include <span>
#include <string_view>

namespace tare::load {
std::span<const std::string_view> CommonWords();
}  // namespace tare::load
