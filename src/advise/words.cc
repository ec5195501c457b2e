#include "advise/words.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "advise/assets.h"
#include "base/check.h"

namespace tare::advise {

Result<Language> ParseLanguage(std::string_view name) {
  if (name == "en") return Language::kEnglish;
  if (name == "zh") return Language::kChinese;
  return FailParam("lang", "reports are written in en or zh, not '{}'", name);
}

const char* HtmlCode(Language language) {
  return language == Language::kChinese ? "zh-Hans" : "en";
}

Words::Words(Language language) : language_(language) {
  const std::string_view text = language == Language::kChinese ? assets::kTextZh : assets::kTextEn;
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  TARE_CHECK(document.is_object());
  for (const auto& [key, value] : document.items()) {
    sentences_.emplace(key, value.get<std::string>());
  }
}

std::string Words::Say(std::string_view key, const Arguments& arguments) const {
  const auto it = sentences_.find(key);
  TARE_CHECK(it != sentences_.end());
  const std::string& sentence = it->second;
  std::string out;
  std::size_t at = 0;
  while (at < sentence.size()) {
    const std::size_t open = sentence.find('{', at);
    const std::size_t close = open == std::string::npos ? open : sentence.find('}', open);
    if (close == std::string::npos) {
      out += sentence.substr(at);
      break;
    }
    out += sentence.substr(at, open - at);
    const std::string_view name = std::string_view(sentence).substr(open + 1, close - open - 1);
    bool found = false;
    for (const auto& [argument, value] : arguments) {
      if (argument == name) {
        out += value;
        found = true;
      }
    }
    TARE_CHECK(found);
    at = close + 1;
  }
  return out;
}

std::vector<std::string> Words::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, sentence] : sentences_) keys.push_back(key);
  return keys;
}

std::string FormatFigure(double value) {
  if (!std::isfinite(value)) return "–";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e-9) return fmt::format("{:.2e}", value);
  const int magnitude = static_cast<int>(std::floor(std::log10(size)));
  const int decimals = std::max(0, 2 - magnitude);
  const std::string digits = fmt::format("{:.{}f}", size, decimals);
  std::string text = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    // A number of a thousand and more has no decimals: digits are all there is.
    if (size >= 1000 && i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatUsd(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  const char* sign = value < 0 ? "-" : "";
  if (size >= 1 && size < 1000) return fmt::format("{}${:.2f}", sign, size);
  return fmt::format("{}${}", sign, FormatFigure(size));
}

std::string FormatSeconds(double value) {
  if (!std::isfinite(value)) return "–";
  if (value < 1) return FormatFigure(value * 1000) + " ms";
  return FormatFigure(value) + " s";
}

std::string FormatShare(double value) {
  if (!std::isfinite(value)) return "–";
  const double percent = value * 100;
  const double size = std::abs(percent);
  if (size > 99.9 && size < 100) return percent > 0 ? "> 99.9 %" : "< -99.9 %";
  if (percent == 0) return "0 %";
  if (size < 0.05) return percent > 0 ? "< 0.1 %" : "> -0.1 %";
  return fmt::format("{:.{}f} %", percent, size < 10 ? 1 : 0);
}

}  // namespace tare::advise
