// Pieces of JSON text, appended to a growing string: the writers of this room need no tree.
#pragma once

#include <string>
#include <string_view>

namespace tare::api {

// `text` as a JSON string with its quotes. Ill-formed UTF-8 becomes U+FFFD, so that the result is
// always valid JSON.
void AppendJsonString(std::string& out, std::string_view text);

// A finite number in the shortest form that reads back as the same float; null otherwise.
void AppendJsonNumber(std::string& out, float value);

// Well-formed UTF-8: each byte that fits no character is replaced by U+FFFD.
std::string ReplaceIllFormed(std::string_view text);

}  // namespace tare::api
