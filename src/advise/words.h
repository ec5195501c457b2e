// The report's words in the reader's language, from web/report/text.LANG.json, and figures written
// the way people read them. Immutable after construction; safe to share between threads.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tare::advise {

enum class Language { kEnglish, kChinese };
Result<Language> ParseLanguage(std::string_view name);  // "en", "zh"
const char* HtmlCode(Language language);                // "en", "zh-Hans"

class Words {
 public:
  using Arguments = std::vector<std::pair<std::string_view, std::string>>;
  explicit Words(Language language);

  // The sentence `key`, its {placeholders} replaced. The key must exist in the language's file.
  std::string Say(std::string_view key, const Arguments& arguments = {}) const;
  Language language() const { return language_; }
  std::vector<std::string> Keys() const;

 private:
  Language language_;
  std::map<std::string, std::string, std::less<>> sentences_;
};

// Three significant digits with thousands separators: "1,234", "56.7", "0.0123"; "–" when not
// finite.
std::string FormatFigure(double value);
std::string FormatUsd(double value);      // "$0.0123"
std::string FormatSeconds(double value);  // "812 ms", "1.24 s"
std::string FormatShare(double value);    // "41 %", "0.4 %"

}  // namespace tare::advise
