// Small text helpers shared by messages and configuration.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tare {

// Number of single-character edits between a and b (Levenshtein).
std::size_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, or empty when none is near enough to be a likely misspelling
// (more than a third of the word's length, at least 2 edits away).
std::string NearestName(std::string_view word, std::span<const std::string> candidates);

// "1.5 GiB", "912 B": binary units, three significant digits.
std::string FormatBytes(std::uint64_t bytes);

std::vector<std::string_view> Split(std::string_view text, char separator);
std::string_view Trim(std::string_view text);

// Well-formed UTF-8: no overlong forms, surrogates or code points past U+10FFFF.
bool IsValidUtf8(std::string_view text);

}  // namespace tare
